"""HTTP questions over channels of the same connection, asked while the script runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from beamdeploy.endpoint import Answer, ask_over_channel
from beamdeploy.errors import HostError
from beamdeploy.remote import Session

SECONDS = 5.0


def get_all(session: Session, questions: Iterable[tuple[str, int, str]]) -> Mapping[str, Answer]:
    """What each (address, port, path) answered, by path."""
    return {path: _get(session, address, port, path) for address, port, path in questions}


def _get(session: Session, address: str, port: int, path: str) -> Answer:
    try:
        return ask_over_channel(session, address, port, path, timeout=SECONDS)
    except HostError as error:
        return Answer(None, reason="; ".join(f"{p.what} ({p.remedy})" if p.remedy else p.what for p in error.problems))
