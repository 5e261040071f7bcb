"""Who sends the weights to whom: a tree that doubles, so that n hosts take about log2(n) rounds from one source."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

HERE = "this machine"


@dataclass
class Holders:
    """Who has the weights and is free to send: each sends to one at a time, so that n hosts take about log2(n) rounds.

    This machine sends only while no host has them: its link is used once.
    """

    free: list[str]
    changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self) -> str:
        """Wait for one that is free."""
        with self.changed:
            while not self.free:
                self.changed.wait()
            return self.free.pop(0)

    def give(self, *names: str) -> None:
        """These are free (again)."""
        with self.changed:
            self.free += [name for name in names if name not in self.free]
            if any(name != HERE for name in self.free):
                self.free = [name for name in self.free if name != HERE]
            self.changed.notify_all()


@dataclass
class Borrowed:
    """The one that sends to a host, taken when the first folder lacks something and kept until the host is done."""

    holders: Holders
    name: str | None = None

    def take(self) -> str:
        """Wait for one that is free, the first time."""
        self.name = self.name or self.holders.take()
        return self.name

    def give_back(self, *more: str) -> None:
        """It is free again, and `more` are from now on: told at once, so that this machine does not send twice."""
        self.holders.give(*more, *((self.name,) if self.name else ()))
