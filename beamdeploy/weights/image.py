"""Bring an image of one docker into another: what `docker save` gives, straight into `docker load`."""

from __future__ import annotations

from collections.abc import Sequence

from beamdeploy.errors import HostError, Problem
from beamdeploy.remote import Result, Session
from beamdeploy.weights.parts import Load, Say, part, script, tail, watched, work_folder
from beamdeploy.weights.sending import received, sender


def from_host(session: Session, source: Session, image: str, size: int, say: Say) -> str | None:
    """From the docker of `source`, by id; why it went through this machine, if it did. HostError: it did not arrive.

    `size`: bytes of the image, about. What has arrived is to be asked of docker afterwards.
    """
    work = work_folder(session.host.state_folder, image)
    how = _how(source, session, work)
    public = part(session, "key", work).out.strip()

    def ask(way: Sequence[str]) -> Result:
        return watched(session, ("receive_image", work, *way, how, *session.host.docker_words), Load(size, 0), say)

    with sender(source, public, "/", image, *source.host.docker_words) as at:
        result, why = received(session, at, ask, say)
    if not result.ok:
        raise HostError(_failed(session, source.host.name, result))
    return why


def from_here(here: Session, session: Session, image: str, size: int, say: Say) -> None:
    """The same from this machine's docker, by the user's own ssh."""
    from beamdeploy.remote.openssh import configuration
    from beamdeploy.remote.words import command_line, script_words

    work = work_folder(here.host.state_folder, session.host.name, image)
    how = _how(here, session, work)
    there = work_folder(session.host.state_folder, image)
    unpack = command_line(script_words(script(), ("unpack", there, how, *session.host.docker_words)))
    words = ("push_image", work, how, image, configuration(session.host), unpack, *here.host.docker_words)
    result = watched(here, words, Load(size, 0), say)
    if not result.ok:
        raise HostError(_failed(session, "this machine", result))


def _how(source: Session, session: Session, work: str) -> str:
    """What both have to make it smaller on its way; "": nothing."""
    return next(iter({part(each, "packs", work).out.strip() for each in (source, session)} - {"zstd"}), "zstd")


def _failed(session: Session, source: str, result: Result) -> Problem:
    said = tail(result.out) or "nothing was said"
    remedy = "see docker and the room for it on both, then run the same again: nothing half done counts as there"
    return Problem(f"the image from {source} did not arrive (exit {result.exit}): {said}", remedy, session.host.name)
