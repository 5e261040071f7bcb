"""Sessions that stay open between one look and the next, so that looking again costs no new connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TypeVar

from beamdeploy.errors import UNREACHABLE, HostError
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.inventory import Host
from beamdeploy.remote import Session, open_session
from beamdeploy.remote.gates import Gates

T = TypeVar("T")


class Kept:
    """The open sessions of some hosts, each used by one thread at a time; one that was lost is opened anew."""

    def __init__(self, hosts: Iterable[Host], *, accept_new: bool, forks: Forks = AS_USUAL) -> None:
        self.hosts = {host.name: host for host in hosts}
        self._accept_new = accept_new
        self._forks = forks
        self._gates = Gates(forks.through_a_bastion)
        self._open: dict[str, Session] = {}

    def each(self, work: Callable[[Session], T]) -> dict[str, T | HostError]:
        """Host → what `work` gave there, or why it could not be asked."""
        self._gates.hope()
        return each(self.hosts, lambda name: self._ask(name, work), at_once=self._forks.hosts)

    def _ask(self, name: str, work: Callable[[Session], T]) -> T:
        kept = self._open.get(name)
        if kept is not None:
            try:
                return work(kept)
            except HostError as error:
                if error.exit != UNREACHABLE:
                    raise
                kept.close()
                del self._open[name]
        session = open_session(self.hosts[name], accept_new=self._accept_new, gates=self._gates)
        self._open[name] = session
        return work(session)

    def __enter__(self) -> Kept:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in tuple(self._open.values()):
            session.close()
