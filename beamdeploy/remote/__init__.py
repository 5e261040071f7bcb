"""The one door to a host: a `Session` over SSH (Fabric) or on this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from beamdeploy.inventory import Host

if TYPE_CHECKING:
    from beamdeploy.remote.gates import Gates


@dataclass(frozen=True)
class Result:
    """How a command ended. `exit` is None where a signal ended it: look, never assume.

    124: the time was up. `out` and `err` hold what the words printed, not what the login shell's start-up files did.
    """

    words: tuple[str, ...]
    exit: int | None
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.exit == 0


class Held(Protocol):
    """A process on the host that lives as long as it hears a line now and then. `said`: the first line it printed."""

    said: str

    @property
    def ended(self) -> bool:
        """Whether it is known here that it has ended."""
        ...

    def beat(self) -> None:
        """Let it hear a line. OSError: it has ended, or the connection is lost."""
        ...

    def close(self) -> None:
        """End its stdin, which ends it."""
        ...


class Looker(Protocol):
    """What a look at a host needs of its session, and no more: a `Session` is one, and so is `read_only.ReadOnly`."""

    @property
    def host(self) -> Host: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def script(self, text: str, args: Sequence[str], *, timeout: int, stdin: bytes = b"") -> Result:
        """See `Session.script`."""
        ...

    def channel(self, port: int, address: str = "127.0.0.1", *, timeout: float = 10.0) -> socket.socket:
        """See `Session.channel`."""
        ...


class Session(Protocol):
    """An open way to one host. Used by one thread at a time, except `channel`, which any thread may call.

    `notes`: what the caller should tell the user ("the host key was stored in …").
    """

    host: Host
    notes: tuple[str, ...]

    @property
    def closed(self) -> bool:
        """Whether it was ended here; what is lost then was not the network's doing."""
        ...

    @property
    def stalled(self) -> bool:
        """Whether what was sent does not reach the host just now; False also where that cannot be told."""
        ...

    def run(self, words: Sequence[str], *, timeout: int) -> Result:
        """Run words; `timeout` seconds are kept on the host (exit 124). HostError: the connection is lost.

        The words read an empty stdin.
        """
        ...

    def script(self, text: str, args: Sequence[str], *, timeout: int, stdin: bytes = b"") -> Result:
        """Run a POSIX sh script with $1… = args, in one exec channel, whatever the login shell is.

        `stdin` is for what must not be seen in a process list.
        """
        ...

    def follow(self, words: Sequence[str], line: Callable[[str], None], *, timeout: int) -> Result:
        """Run words and hand over each line of stdout and stderr as it comes; the result holds the last 200.

        What `line` raises ends the remote process and is passed on; a lost connection ends the process, too.
        """
        ...

    def hold(self, text: str, args: Sequence[str], *, timeout: int) -> Held:
        """Start a script that reads lines from stdin as long as it is to live; wait `timeout` s for its first line."""
        ...

    def channel(self, port: int, address: str = "127.0.0.1", *, timeout: float = 10.0) -> socket.socket:
        """A connected socket to address:port as seen from the host. ConnectionRefusedError: nothing listens there.

        HostError: the server forbids forwarding (AllowTcpForwarding).
        """
        ...

    def listen(self, connect: Callable[[], socket.socket]) -> AbstractContextManager[int]:
        """A port on the host's own 127.0.0.1: whoever connects to it there is joined with what `connect` gives.

        One at a time on a session. HostError: the server forbids forwarding.
        """
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Session: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_session(
    host: Host, *, accept_new: bool = False, connect_timeout: int = 15, gates: Gates | None = None
) -> Session:
    """An open session. HostError (exit UNREACHABLE) with a remedy for whatever prevents it.

    `accept_new`: store the key of a host that no known hosts file names; a key that changed is refused all the same.
    `gates`: shared by all hosts of a run, so that they do not crowd their bastion.
    """
    # imported here, since fabric and paramiko cost 200 ms and `validate` or `--help` never come here
    if host.connection == "local":
        from beamdeploy.remote.local import LocalSession

        return LocalSession(host)
    from beamdeploy.remote.connect import connect
    from beamdeploy.remote.gates import Gates

    return connect(host, accept_new=accept_new, timeout=connect_timeout, gates=gates or Gates())


__all__ = ["Held", "Looker", "Result", "Session", "open_session"]
