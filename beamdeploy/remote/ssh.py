"""A `Session` over a Fabric connection.

Commands go over channels of its transport directly: Fabric's own `run` polls, starts three threads a command, and its
timeout leaves the process running.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol

from beamdeploy.errors import FAILED, UNREACHABLE, HostError, Problem
from beamdeploy.inventory import Host
from beamdeploy.remote import Held, Result
from beamdeploy.remote.lines import Lines
from beamdeploy.remote.pump import as_socket, join
from beamdeploy.remote.standing import stands_still
from beamdeploy.remote.words import KILL_AFTER, after_mark, command_line, followed, framed, held, script_words

# the host keeps the time; these seconds more are for a host that does not
GRACE = KILL_AFTER + 15


class Closable(Protocol):
    """A link of the way to the host; the last one leads to it."""

    @property
    def connection(self) -> Any: ...

    @property
    def socket(self) -> Any: ...

    def close(self) -> None: ...


class SshSession:
    """See `Session`."""

    def __init__(self, host: Host, links: tuple[Closable, ...], notes: tuple[str, ...]) -> None:
        self.host = host
        self.notes = notes
        self.closed = False
        self._links = links
        self._transport = links[-1].connection.transport

    @property
    def stalled(self) -> bool:
        """See `Session.stalled`. Of a way over bastions the first link tells it: the others travel in it."""
        return stands_still(self._links[0].socket)

    def run(self, words: Sequence[str], *, timeout: int) -> Result:
        """See `Session.run`."""
        return self._run(words, timeout, b"")

    def _run(self, words: Sequence[str], timeout: int, stdin: bytes) -> Result:
        start = time.monotonic()
        channel = self._execute(words, framed(words, timeout))
        try:
            channel.sendall(stdin)
            channel.shutdown_write()
            out, err = self._collect(channel, words, start + timeout + GRACE)
            exit = self._exit(channel, words, start, timeout)
        finally:
            _close(channel)
        return Result(tuple(words), exit, self._own(out, err, words), _text(after_mark(err) or b""))

    def script(self, text: str, args: Sequence[str], *, timeout: int, stdin: bytes = b"") -> Result:
        """See `Session.script`."""
        return self._run(script_words(text, args), timeout, stdin)

    def follow(self, words: Sequence[str], line: Callable[[str], None], *, timeout: int) -> Result:
        """See `Session.follow`."""
        start = time.monotonic()
        lines = Lines(line)
        channel = self._execute(words, followed(words, timeout), combine=True)
        try:
            output = self._first(channel, words, start + timeout + GRACE)
            while output:
                lines.feed(output)
                output = self._receive(channel, words, start + timeout + GRACE)
            # what came before the connection was lost in the middle of a line is no line
            exit = self._exit(channel, words, start, timeout)
            lines.end()
        finally:
            # the end of stdin is what stops the words on the host
            _close(channel)
        return Result(tuple(words), exit, lines.last, "")

    def hold(self, text: str, args: Sequence[str], *, timeout: int) -> Held:
        """See `Session.hold`."""
        words = script_words(text, args)
        until = time.monotonic() + timeout
        channel = self._execute(words, held(words))
        try:
            said = self._first(channel, words, until)
            while b"\n" not in said and (more := self._receive(channel, words, until)):
                said += more
        except BaseException:
            _close(channel)
            raise
        return HeldChannel(channel, _text(said).partition("\n")[0])

    def channel(self, port: int, address: str = "127.0.0.1", *, timeout: float = 10.0) -> socket.socket:
        """See `Session.channel`."""
        from paramiko import ChannelException, SSHException

        place = f"{address}:{port}"
        try:
            channel = self._transport.open_channel("direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=timeout)
        except ChannelException as error:
            if error.code == 1:
                raise self._forbidden(place) from error
            raise ConnectionRefusedError(f"{self.host.name}: {place}: {error.text}") from error
        except (SSHException, OSError, EOFError) as error:
            if not self._transport.is_active():
                raise self._lost(f"a channel to {place}") from error
            raise TimeoutError(f"{self.host.name}: {place}: no channel within {timeout:.0f} s") from error
        return as_socket(channel)

    @contextmanager
    def listen(self, connect: Callable[[], socket.socket]) -> Iterator[int]:
        """See `Session.listen`."""
        from paramiko import SSHException

        def come(channel: Any, _origin: object, _server: object) -> None:
            # the transport's own thread asks: `connect` may wait for an answer that only that thread can bring
            threading.Thread(target=_joined, args=(channel, connect), daemon=True).start()

        try:
            port = int(self._transport.request_port_forward("127.0.0.1", 0, come))
        except (SSHException, OSError, EOFError) as error:
            if not self._alive():
                raise self._lost("a port to listen on") from error
            raise self._forbidden("this machine") from error
        try:
            yield port
        finally:
            with suppress(SSHException, OSError, EOFError):
                self._transport.cancel_port_forward("127.0.0.1", port)

    def close(self) -> None:
        """End the connection and those to its bastions; never waits for the other side."""
        self.closed = True
        for link in reversed(self._links):
            link.close()

    def __enter__(self) -> SshSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _execute(self, words: Sequence[str], sent: Sequence[str], *, combine: bool = False) -> Any:
        """A channel on which `sent` runs. HostError: the connection is lost, or the server opens no channel."""
        from paramiko import SSHException

        line = command_line(sent)
        try:
            channel = self._transport.open_session()
            channel.set_combine_stderr(combine)
            channel.exec_command(line)
        except (SSHException, OSError, EOFError) as error:
            if not self._alive():
                raise self._lost(words[0]) from error
            what = f"the server does not run {words[0]}: {error}"
            remedy = "sshd may allow no more sessions on a connection (MaxSessions), or force a command of its own"
            raise HostError(Problem(what, remedy, where=self.host.name), exit=UNREACHABLE) from error
        return channel

    def _collect(self, channel: Any, words: Sequence[str], until: float) -> tuple[bytes, bytes]:
        """All of stdout and stderr."""
        out, err = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(channel.fileno(), selectors.EVENT_READ)
            ended = False
            while not ended:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise self._silent(words)
                # asked before the buffers are emptied: what comes in between is not missed
                ended = channel.eof_received or channel.closed
                while channel.recv_ready():
                    out += channel.recv(1 << 20)
                while channel.recv_stderr_ready():
                    err += channel.recv_stderr(1 << 20)
        return bytes(out), bytes(err)

    def _receive(self, channel: Any, words: Sequence[str], until: float) -> bytes:
        """The next bytes; none at the end."""
        channel.settimeout(max(0.01, until - time.monotonic()))
        try:
            return bytes(channel.recv(1 << 16))
        except TimeoutError as error:
            raise self._silent(words) from error

    def _first(self, channel: Any, words: Sequence[str], until: float) -> bytes:
        """The first bytes after the mark; none at the end."""
        seen = b""
        while (own := after_mark(seen)) is None:
            more = self._receive(channel, words, until)
            if not more:
                self._own(seen, b"", words)
            seen += more
        return own or self._receive(channel, words, until)

    def _exit(self, channel: Any, words: Sequence[str], start: float, timeout: int) -> int | None:
        """The exit status; None: ended by a signal. HostError: lost with the connection."""
        if not channel.status_event.wait(max(0.1, start + timeout + GRACE - time.monotonic())):
            raise self._silent(words)
        status = int(channel.recv_exit_status())
        if status == -1 and not self._alive():
            raise self._lost(words[0])
        return _timed_exit(status, time.monotonic() - start >= timeout)

    def _own(self, out: bytes, err: bytes, words: Sequence[str]) -> str:
        """The words' own stdout. HostError: they did not run, or the connection went before they did."""
        own = after_mark(out)
        if own is not None:
            return _text(own)
        if not self._alive():
            raise self._lost(words[0])
        said = _text(out + err).strip()[-400:] or "nothing"
        what = f"the login shell of this account did not run {words[0]}; it said: {said}"
        remedy = "give the user a login shell that runs commands (not nologin or a forced command)"
        raise HostError(Problem(what, remedy, where=self.host.name), exit=UNREACHABLE)

    def _alive(self) -> bool:
        # the transport's thread ends its channels a moment before it says that it ended itself
        self._transport.join(0.2)
        return bool(self._transport.is_active())

    def _lost(self, doing: str) -> HostError:
        what = f"the connection was lost ({doing}); the state of this host is unknown"
        return HostError(
            Problem(what, "see that the host is up, then run the same again: it looks first", where=self.host.name),
            exit=UNREACHABLE,
        )

    def _silent(self, words: Sequence[str]) -> HostError:
        what = f"{words[0]} did not end in time, and the host does not say why; the state of this host is unknown"
        remedy = "look at the host's load, disk and docker daemon (a process in state D cannot be ended)"
        return HostError(Problem(what, remedy, where=self.host.name), exit=UNREACHABLE)

    def _forbidden(self, place: str) -> HostError:
        what = f"the server forbids forwarding to {place}"
        remedy = "set `AllowTcpForwarding yes` (or `local`) and a PermitOpen that includes it in the host's sshd_config"
        return HostError(Problem(what, remedy, where=self.host.name), exit=FAILED)


class HeldChannel:
    """See `Held`."""

    def __init__(self, channel: Any, said: str) -> None:
        self.said = said
        self._channel = channel

    def beat(self) -> None:
        """See `Held.beat`."""
        self._channel.sendall(b"beat\n")

    @property
    def ended(self) -> bool:
        """See `Held.ended`."""
        return bool(self._channel.closed or self._channel.exit_status_ready())

    def close(self) -> None:
        """See `Held.close`."""
        _close(self._channel)


def _joined(channel: Any, connect: Callable[[], socket.socket]) -> None:
    try:
        join(channel, connect())
    except (OSError, HostError):
        # whoever connected is told by the end of what they hear
        _close(channel)


def _close(channel: Any) -> None:
    # closing says so to the host, which may be gone
    with suppress(OSError, EOFError):
        channel.close()


def _timed_exit(status: int, late: bool) -> int | None:
    """`timeout -k` that had to kill ends as 137 or is itself killed: the time was up all the same."""
    if late and status in (-1, 137):
        return 124
    return None if status == -1 else status


def _text(output: bytes) -> str:
    return output.decode(errors="replace")
