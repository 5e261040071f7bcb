"""Bring the files of one folder onto one host: from a hub, from another host, or from this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from beamdeploy.errors import HostError, Problem
from beamdeploy.remote import Result, Session
from beamdeploy.weights import hub
from beamdeploy.weights.parts import Load, Say, lines, part, tail, watched, work_folder
from beamdeploy.weights.sending import UNREACHED, received, sender

_NO_RSYNC, _NO_HF = 40, 42


@dataclass(frozen=True)
class Place:
    """Where a folder is filled: its name in the end, absolute, on a host that keeps our state in `state`."""

    final: str
    state: str

    @property
    def unfinished(self) -> str:
        """The name that it has until then."""
        folder, _, name = self.final.rstrip("/").rpartition("/")
        return f"{folder}/.{name}.unfinished"

    @property
    def work(self) -> str:
        """Our own folder on the host for this one."""
        return work_folder(self.state, self.final)


def from_hub(
    session: Session,
    place: Place,
    source: hub.Source,
    names: Sequence[str],
    load: Load,
    environ: Mapping[str, str],
    image: str,
    say: Say,
) -> None:
    """`hf download` on the host at a commit, in a container of `image` where the host has no `hf`.

    The token travels on stdin into a file that is removed at the end.
    """
    part(session, "names", place.work, stdin=lines(names))
    part(session, "token", place.work, stdin=(hub.token(environ) or "").encode())
    endpoint = environ.get("HF_ENDPOINT", "")
    asked = (source.repository, str(source.revision), image, *session.host.docker_words)
    words = ("hub", place.work, place.unfinished, endpoint, *asked)
    result = watched(session, words, load, say)
    if not result.ok:
        raise HostError(_hub_failed(session, source, endpoint or hub.ENDPOINT, result))


def from_host(
    session: Session,
    place: Place,
    source: Session,
    folder: str,
    names: Sequence[str],
    load: Load,
    streams: int,
    say: Say,
) -> str | None:
    """rsync from a server on `source` that lives as long as this takes; why it went through this machine, if it did."""
    part(session, "names", place.work, stdin=lines(names))
    public = part(session, "key", place.work).out.strip()

    def ask(way: Sequence[str]) -> Result:
        return watched(session, ("receive", place.work, place.unfinished, str(streams), *way), load, say)

    with sender(source, public, folder) as at:
        result, why = received(session, at, ask, say)
    if not result.ok:
        raise HostError(_rsync_failed(session, source.host.name, result))
    return why


def from_here(
    here: Session, session: Session, place: Place, folder: str, names: Sequence[str], load: Load, say: Say
) -> None:
    """rsync from this machine, by the user's own ssh."""
    from beamdeploy.remote.openssh import configuration

    work = work_folder(here.host.state_folder, session.host.name, place.final)
    part(here, "names", work, stdin=lines(names))
    words = ("push", work, folder, place.unfinished, configuration(session.host))
    result = watched(here, words, load, say)
    if not result.ok:
        raise HostError(_rsync_failed(session, "this machine", result))


def _rsync_failed(session: Session, source: str, result: Result) -> Problem:
    where, said = f"{session.host.name}: stage", tail(result.out)
    if result.exit == _NO_RSYNC:
        return Problem(said, "install rsync there, or stage from the hub", where)
    if result.exit == UNREACHED:
        what = f"{session.host.name} cannot reach {source}: {said}"
        return Problem(what, "let it through the firewall, or stage with --from PATH from this machine", where)
    remedy = "run the same again: it goes on with what lacks"
    return Problem(f"the copy from {source} ended (exit {result.exit}): {said}", remedy, where)


def _hub_failed(session: Session, source: hub.Source, endpoint: str, result: Result) -> Problem:
    """What `hf` said, in words that say what to do."""
    where, said = f"{session.host.name}: stage", tail(result.out)
    page = f"{endpoint}/{source.repository}"
    if result.exit == _NO_HF:
        remedy = "pip install huggingface_hub there (or pipx), or stage from a host or folder that has the weights"
        return Problem(said, remedy, where)
    for pattern, what, remedy in _HUB_SAYS:
        if re.search(pattern, said, re.IGNORECASE):
            return Problem(
                f"{source.text}: {what}: {said.rsplit(' / ', 1)[-1]}",
                remedy.format(page=page, endpoint=endpoint),
                where,
            )
    return Problem(
        f"hf ended (exit {result.exit}): {said.rsplit(' / ', 1)[-1]}",
        "run the same again: it goes on where it stopped",
        where,
    )


_LOG_IN = "put a token that may read it into HF_TOKEN where beamdeploy runs"
_HUB_SAYS = (
    (
        r'"hf": executable file not found|exec: "?hf|exec hf failed',
        "neither the host nor the image has hf",
        "name an image that has it (--hf-image), or pip install huggingface_hub on the host",
    ),
    (
        r"error during connect|docker daemon|docker: .*not found|unable to find image",
        "the host has no hf, and docker does not run the image for it",
        "pip install huggingface_hub on the host, or name another image (--hf-image)",
    ),
    (r"gated|403|forbidden|awaiting a review", "it is gated", "ask for access on {page}, then " + _LOG_IN),
    (r"429|too many requests", "the hub gives no more for now", "wait some minutes, then run the same again"),
    (
        r"401|unauthorized|repository not found",
        "the hub hides it or has none",
        "check its name; if private, " + _LOG_IN,
    ),
    (
        r"revision not found|404",
        "the hub has no such revision or file",
        "lock again: beamdeploy lock --upgrade=weights",
    ),
    (r"407|proxy", "the proxy refuses", "set https_proxy on the host to one that lets it out"),
    (r"closed connection|incompleteread|connection broken", "the connection broke", "run the same again: it goes on"),
    (r"no space left", "the disk is full", "free room there"),
    (
        r"resolve|getaddrinfo|connection|timed? ?out|offline|local entry not found|cannot find the requested",
        "the host does not reach the hub",
        "check DNS and https_proxy on the host, name a mirror in HF_ENDPOINT, or stage with --from HOST or PATH",
    ),
)
