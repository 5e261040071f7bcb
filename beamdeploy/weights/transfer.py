"""Bring the files of one folder onto one host: from a hub, from another host, or from this machine."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources

from beamdeploy.errors import HostError, Problem
from beamdeploy.remote import Held, Result, Session
from beamdeploy.weights import hub
from beamdeploy.weights.meter import progress

Say = Callable[[str, str], None]
SECONDS = 7 * 24 * 3600
BEAT = 10.0
UNREACHED = 41
_NO_RSYNC, _NO_HF = 40, 42


@dataclass(frozen=True)
class Place:
    """Where a folder is filled: its name in the end, and the one that it has until then. Both absolute, on the host."""

    final: str

    @property
    def unfinished(self) -> str:
        folder, _, name = self.final.rstrip("/").rpartition("/")
        return f"{folder}/.{name}.unfinished"


@dataclass(frozen=True)
class Load:
    """What is to come: names below the folder, their bytes, and how many bytes of the whole are there already."""

    names: tuple[str, ...]
    total: int
    there: int


def part(session: Session, *args: str, timeout: int = 600, stdin: bytes = b"") -> Result:
    """Run one part of the host's script. HostError: it failed."""
    result = session.script(script(), args, timeout=timeout, stdin=stdin)
    if not result.ok:
        raise HostError(_failed(session, args[0], result.err or result.out))
    return result


def script() -> str:
    """The parts that a host does: POSIX sh."""
    return resources.files(__package__ or "").joinpath("stage.sh").read_text("utf-8")


def from_hub(
    session: Session, place: Place, source: hub.Source, load: Load, environ: Mapping[str, str], say: Say
) -> None:
    """`hf download` on the host at a commit. The token travels on stdin into a file that is removed at the end."""
    state = session.host.state_folder
    part(session, "token", state, stdin=(hub.token(environ) or "").encode())
    endpoint = environ.get("HF_ENDPOINT", "")
    words = ("hub", state, place.unfinished, endpoint, source.repository, str(source.revision), *load.names)
    result = _watched(session, words, load, say)
    if not result.ok:
        raise HostError(_hub_failed(session, source, endpoint or hub.ENDPOINT, result))


def from_host(session: Session, place: Place, source: Session, folder: str, load: Load, streams: int, say: Say) -> None:
    """rsync from a server on `source` that lives as long as this takes. HostError: they cannot reach each other."""
    state = session.host.state_folder
    public = part(session, "key", state).out.strip()
    with _sender(source, folder, public) as (port, user, key, addresses):
        given = (source.host.address or source.host.name, *addresses)
        words = ("receive", state, place.unfinished, str(streams), port, user, key, " ".join(given), *load.names)
        result = _watched(session, words, load, say)
    if not result.ok:
        raise HostError(_rsync_failed(session, source.host.name, result))


def from_here(here: Session, session: Session, place: Place, folder: str, load: Load, say: Say) -> None:
    """rsync from this machine, by the user's own ssh."""
    from beamdeploy.remote.openssh import configuration

    words = ("push", folder, place.unfinished, configuration(session.host), *load.names)
    result = _watched(here, words, load, say)
    if not result.ok:
        raise HostError(_rsync_failed(session, "this machine", result))


@contextmanager
def _sender(source: Session, folder: str, public: str) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """(port, user, host key, addresses) of a server for one key, kept alive by a beat."""
    held = source.hold(script(), ("send", source.host.state_folder, folder, public), timeout=60)
    word, _, rest = held.said.partition(" ")
    if word != "port":
        held.close()
        remedy = "Install openssh-server and rsync there, or stage from the hub or a folder of this machine."
        raise HostError(Problem(f"{source.host.name} cannot send: {rest or held.said}", remedy, source.host.name))
    stop = threading.Event()
    threading.Thread(target=_beat, args=(held, stop), daemon=True).start()
    port, user, kind, key, *addresses = rest.split()
    try:
        yield port, user, f"{kind} {key}", tuple(addresses)
    finally:
        stop.set()
        held.close()


def _beat(held: Held, stop: threading.Event) -> None:
    while not stop.wait(BEAT):
        with suppress(OSError, EOFError):
            held.beat()


def _watched(session: Session, words: Sequence[str], load: Load, say: Say) -> Result:
    """Run a part that takes long, and say how far it is."""
    started = time.monotonic()

    def line(text: str) -> None:
        told = re.match(r"@@P (\d+)$|\s*([\d,]+)\s+\d+%", text)
        if told is None:
            return  # what a tool says else is for the failure: hf's traceback of a hundred lines is no progress
        done = int(told[1]) if told[1] else load.there + int(told[2].replace(",", ""))
        say("stage", progress(min(done, load.total), load.total, time.monotonic() - started, load.there))

    return session.follow(("sh", "-c", script(), "stage", *words), line, timeout=SECONDS)


def _tail(text: str) -> str:
    return " / ".join(line for line in text.splitlines() if line and not line.startswith("@@"))[-600:]


def _failed(session: Session, what: str, said: str) -> Problem:
    remedy = "see that model_dir and state_dir can be written by this user"
    return Problem(f"{what}: {_tail(said) or 'it failed and said nothing'}", remedy, f"{session.host.name}: stage")


def _rsync_failed(session: Session, source: str, result: Result) -> Problem:
    where, said = f"{session.host.name}: stage", _tail(result.out)
    if result.exit == _NO_RSYNC:
        return Problem(said, "install rsync there, or stage from the hub", where)
    if result.exit == UNREACHED:
        what = f"{session.host.name} cannot reach {source}: {said}"
        return Problem(what, "let it through the firewall, or stage with --from PATH from this machine", where)
    remedy = "run the same again: it goes on with what lacks"
    return Problem(f"the copy from {source} ended (exit {result.exit}): {said}", remedy, where)


def _hub_failed(session: Session, source: hub.Source, endpoint: str, result: Result) -> Problem:
    """What `hf` said, in words that say what to do."""
    where, said = f"{session.host.name}: stage", _tail(result.out)
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
