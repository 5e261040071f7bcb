"""One run of a command: its open sessions, its progress, and who started it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

from beamdeploy import apikey, endpoint, look, secrets
from beamdeploy.errors import Problem
from beamdeploy.fleet import AS_USUAL, Forks
from beamdeploy.inventory import Host
from beamdeploy.remote import Looker, Session, open_session
from beamdeploy.remote.gates import Gates
from beamdeploy.remote.read_only import ReadOnly
from beamdeploy.standstill import Standstill

SayHost = Callable[[str, str, str], None]
"""Progress: (host, phase, detail)."""


@dataclass
class Run:
    """The open sessions of a run and the last phase of each host, for whoever interrupts it."""

    stack: ExitStack
    say: SayHost
    forks: Forks = AS_USUAL
    phases: dict[str, str] = field(default_factory=dict)
    gates: Gates = field(init=False)
    _standstill: Standstill = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.gates = Gates(self.forks.through_a_bastion)
        self._standstill = Standstill(self.say, self.phases)
        self.stack.callback(self._standstill.end)

    def opened(self, host: Host, *, accept_new: bool) -> Session:
        """An open session that lasts as long as the run."""
        self.say(host.name, "connect", host.address or "")
        return self._watched(open_session(host, accept_new=accept_new, gates=self.gates))

    def opened_again(self, host: Host, *, accept_new: bool) -> Session:
        """Another one in place of a session that was lost; a bastion that has failed is asked anew."""
        self.gates.hope()
        return self._watched(open_session(host, accept_new=accept_new, gates=self.gates))

    def _watched(self, session: Session) -> Session:
        self.stack.callback(session.close)
        self._standstill.watch(session)
        return session

    def opened_to_look(self, host: Host, *, accept_new: bool) -> ReadOnly:
        """The same for a command that must not change the host: nothing that could write passes."""
        return to_look(self.opened(host, accept_new=accept_new))

    def sayer(self, host: str) -> Callable[[str, str], None]:
        """The progress of one host."""

        def say(phase: str, detail: str) -> None:
            self.phases[host] = phase
            self.say(host, phase, detail)

        return say


def to_look(session: Session) -> ReadOnly:
    """What a look may do with a session: run the scripts that only read, and ask a server over HTTP."""
    return ReadOnly(session, (look.script(), secrets.COMPARE, endpoint.GET, apikey.READ))


def told(session: Looker) -> tuple[Problem, ...]:
    """What an open session has to tell, such as which new host key was stored where."""
    where = f"{session.host.name}: connect"
    return tuple(Problem(note, where=where, level="info") for note in session.notes)


def started_by() -> str:
    """user@machine (process) of this run, for those who meet its lock or its history."""
    return f"{getpass.getuser()}@{socket.gethostname()} (pid {os.getpid()})"


def now() -> str:
    """The time of this machine in UTC, "2026-11-30T17:00:00Z"."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
