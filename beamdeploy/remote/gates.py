"""How many connections may be opened at once through one bastion; one that is down is asked once, not by every host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from beamdeploy.errors import HostError

AT_ONCE = 8
"""sshd drops connections from the 10th unauthenticated one on (MaxStartups 10:30:100), and others want in, too."""


class Gates:
    """The bastions of a run. Any thread may use it."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._guard = threading.Lock()
        self._gates: dict[str, threading.BoundedSemaphore] = {}
        self._down: dict[str, HostError] = {}

    @contextmanager
    def through(self, bastion: str | None, host: str) -> Iterator[None]:
        """Wait until a connection may be opened. HostError: this bastion has failed another host of the run."""
        if bastion is None:
            yield
            return
        with self._guard:
            gate = self._gates.setdefault(bastion, threading.BoundedSemaphore(self._at_once))
        with gate:
            if bastion in self._down:
                raise _for(host, self._down[bastion])
            yield

    def failed(self, bastion: str | None, error: HostError) -> None:
        """Remember what a bastion itself said (its key, its refusal, its silence) for those who come after."""
        if bastion is not None and is_of_a_bastion(error):
            self._down.setdefault(bastion, error)

    def hope(self) -> None:
        """Forget which bastions have failed: some time has passed."""
        self._down.clear()


def is_of_a_bastion(error: HostError) -> bool:
    """Whether the way to a host ended at a bastion. `connect` says so in `where`: "gpu-a: connect: bastion …"."""
    return ": connect: bastion " in error.problems[0].where


def _for(host: str, error: HostError) -> HostError:
    problem = error.problems[0]
    return HostError(replace(problem, where=f"{host}: {problem.where.partition(': ')[2]}"), exit=error.exit)
