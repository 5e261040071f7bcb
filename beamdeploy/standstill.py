"""What is said while a link stands still, so that nobody takes the silence for work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from beamdeploy.remote import Session

_SILENT_FOR = 10.0
"""Seconds; shorter ones are the network's everyday."""


class Standstill:
    """Says so of each watched host, once a second while it lasts; a thread of its own from the first host on.

    `phases`: host → what it was doing.
    """

    def __init__(self, say: Callable[[str, str, str], None], phases: Mapping[str, str]) -> None:
        self._say = say
        self._phases = phases
        self._sessions: dict[str, Session] = {}
        self._since: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="standstill", daemon=True)
        self._starting = threading.Lock()

    def watch(self, session: Session) -> None:
        """From now on, instead of an earlier one of that host."""
        with self._starting:
            self._sessions = {**self._sessions, session.host.name: session}
            if self._thread.ident is None:
                self._thread.start()

    def end(self) -> None:
        """Nothing more is said."""
        self._ended.set()

    def _go_on(self) -> None:
        while not self._ended.wait(1):
            for host, session in self._sessions.items():
                self._look(host, session, time.monotonic())

    def _look(self, host: str, session: Session, now: float) -> None:
        if session.stalled and not session.closed:
            silent = now - self._since.setdefault(host, now)
            if silent >= _SILENT_FOR:
                # what stands after the tab moves: it is no news by itself
                self._say(host, "waiting", f"no answer for \t{silent:.0f} s")
            return
        since = self._since.pop(host, now)
        if now - since >= _SILENT_FOR and not session.closed:
            self._say(host, self._phases.get(host, "look"), "it answers again")
