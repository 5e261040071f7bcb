"""Work on a host that outlives the connection: what goes on there by itself is taken up again over a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from beamdeploy.errors import HostError
from beamdeploy.remote import Session

T = TypeVar("T")

Regain = Callable[[HostError], None]
"""Called with what the lost connection said; the session carries again when it returns. HostError: it does not."""

_A_MOMENT = 15


def give_up(error: HostError) -> None:
    """No second connection is tried."""
    raise error


def lasting(session: Session, work: Callable[[], T], regain: Regain) -> T:
    """What `work` gives; it is begun again after each connection that was lost and regained. HostError.

    A failure counts only if the connection lives: a cut link looks like a server that gives no answer.
    """
    while True:
        try:
            return work()
        except HostError as error:
            if session.closed or not _is_lost(session):
                raise
            regain(error)


def _is_lost(session: Session) -> bool:
    try:
        session.run(("true",), timeout=_A_MOMENT)
    except HostError:
        return True
    return False
