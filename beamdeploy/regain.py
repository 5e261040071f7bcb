"""The way back to a host whose connection was lost: tried again with longer and longer pauses, for a stated time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from beamdeploy.errors import UNREACHABLE, HostError
from beamdeploy.remote import Session

WITHIN = 600.0
"""Seconds for which a lost host is tried again, unless the caller has less time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0

Say = Callable[[str, str], None]


@dataclass(frozen=True)
class WayBack:
    """How a lost connection is replaced. `within`: seconds of all losses together; `goes_on`: what does meanwhile.

    `opened`: opens another; `taken_up`: what to do with it before it is used, such as taking a lock again.
    """

    opened: Callable[[], Session]
    taken_up: Callable[[Session], None]
    say: Say
    goes_on: str
    within: float = WITHIN

    def regainer(self) -> Callable[[HostError], None]:
        """See `lasting.Regain`; one for all losses of a run."""
        left = [self.within]

        def regain(lost: HostError) -> None:
            began = time.monotonic()
            self.say("reconnect", f"the connection was lost, {self.goes_on}; tried again for {_minutes(left[0])}")
            self._reconnect(began + left[0], lost)
            gone = time.monotonic() - began
            left[0] -= gone
            self.say("connected", f"again after {gone:.0f} s")

        return regain

    def _reconnect(self, until: float, lost: HostError) -> None:
        """HostError: the host stays away, or something else than the way to it is wrong."""
        for pause in _pauses():
            time.sleep(max(0.0, min(pause, until - time.monotonic())))
            try:
                self.taken_up(self.opened())
                return
            except HostError as error:
                if error.exit != UNREACHABLE:
                    raise
                if error.final or time.monotonic() >= until:
                    raise self._gone(error) from lost

    def _gone(self, error: HostError) -> HostError:
        problem = error.problems[0]
        what = (
            f"the connection was lost, {self.goes_on}, and it does not come back ({problem.what}); the state of this "
            "host is unknown"
        )
        return HostError(replace(problem, what=what), exit=UNREACHABLE)


def _pauses() -> Iterator[float]:
    """Seconds before each try, varied so that many hosts do not come back at once."""
    pause = _FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.7, 1.3)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
