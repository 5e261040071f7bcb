"""A `Session` on this machine (`connection: local`): the same promises, with processes instead of channels."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO

from beamdeploy.errors import FAILED, HostError, Problem
from beamdeploy.inventory import Host
from beamdeploy.remote import Held, Result
from beamdeploy.remote.dialling import connected
from beamdeploy.remote.lines import Lines
from beamdeploy.remote.pump import join_sockets
from beamdeploy.remote.words import KILL_AFTER, script_words, timed

GRACE = KILL_AFTER + 5


class LocalSession:
    """See `Session`."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.notes: tuple[str, ...] = ()
        self.closed = False
        self.stalled = False

    def run(self, words: Sequence[str], *, timeout: int) -> Result:
        """See `Session.run`."""
        return self._run(words, timeout, b"")

    def _run(self, words: Sequence[str], timeout: int, stdin: bytes) -> Result:
        start = time.monotonic()
        process = self._start(timed(words, timeout), stderr=subprocess.PIPE, stdin=subprocess.PIPE)
        try:
            out, err = process.communicate(stdin, timeout=timeout + GRACE)
        except subprocess.TimeoutExpired as error:
            raise self._silent(words) from error
        finally:
            _end(process)
        exit = _timed_exit(process.returncode, time.monotonic() - start >= timeout)
        return Result(tuple(words), exit, out.decode(errors="replace"), err.decode(errors="replace"))

    def script(self, text: str, args: Sequence[str], *, timeout: int, stdin: bytes = b"") -> Result:
        """See `Session.script`."""
        return self._run(script_words(text, args), timeout, stdin)

    def follow(self, words: Sequence[str], line: Callable[[str], None], *, timeout: int) -> Result:
        """See `Session.follow`."""
        start = time.monotonic()
        lines = Lines(line)
        process = self._start(timed(words, timeout), stderr=subprocess.STDOUT)
        assert process.stdout is not None
        try:
            while output := self._read(process.stdout, words, start + timeout + GRACE):
                lines.feed(output)
            lines.end()
            process.wait(GRACE)
        except subprocess.TimeoutExpired as error:
            raise self._silent(words) from error
        finally:
            _end(process)
        exit = _timed_exit(process.returncode, time.monotonic() - start >= timeout)
        return Result(tuple(words), exit, lines.last, "")

    def hold(self, text: str, args: Sequence[str], *, timeout: int) -> Held:
        """See `Session.hold`."""
        words = script_words(text, args)
        process = self._start(words, stderr=subprocess.DEVNULL, stdin=subprocess.PIPE)
        assert process.stdout is not None
        said, until = b"", time.monotonic() + timeout
        while b"\n" not in said and (more := self._read(process.stdout, words, until)):
            said += more
        return HeldProcess(process, said.decode(errors="replace").partition("\n")[0])

    def channel(self, port: int, address: str = "127.0.0.1", *, timeout: float = 10.0) -> socket.socket:
        """See `Session.channel`."""
        return connected(address, port, timeout)

    @contextmanager
    def listen(self, connect: Callable[[], socket.socket]) -> Iterator[int]:
        """See `Session.listen`."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=_serve, args=(server, connect), daemon=True).start()
            try:
                yield int(server.getsockname()[1])
            finally:
                # closing alone does not wake the one that waits for a connection
                with suppress(OSError):
                    server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Nothing is open between two commands."""
        self.closed = True

    def __enter__(self) -> LocalSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, words: Sequence[str], *, stderr: int, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        try:
            # A session of its own, since Ctrl-C in the terminal must not reach docker. It starts at home, as over ssh.
            return subprocess.Popen(
                words,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                cwd=os.path.expanduser("~"),
            )
        except FileNotFoundError as error:
            what = f"this machine has no `{words[0]}`"
            raise HostError(Problem(what, "install coreutils", where=self.host.name), exit=FAILED) from error

    def _read(self, stream: IO[bytes], words: Sequence[str], until: float) -> bytes:
        """The next bytes; none at the end."""
        if not select.select([stream], [], [], max(0.0, until - time.monotonic()))[0]:
            raise self._silent(words)
        return os.read(stream.fileno(), 1 << 16)

    def _silent(self, words: Sequence[str]) -> HostError:
        what = f"{words[0]} did not end in time, and could not be ended"
        return HostError(Problem(what, "look at load, disk and docker daemon", where=self.host.name), exit=FAILED)


class HeldProcess:
    """See `Held`."""

    def __init__(self, process: subprocess.Popen[bytes], said: str) -> None:
        self.said = said
        self._process = process

    def beat(self) -> None:
        """See `Held.beat`."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"beat\n")
        self._process.stdin.flush()

    @property
    def ended(self) -> bool:
        """See `Held.ended`."""
        return self._process.poll() is not None

    def close(self) -> None:
        """See `Held.close`."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        _end(self._process)


def _serve(server: socket.socket, connect: Callable[[], socket.socket]) -> None:
    with suppress(OSError):
        while True:
            came, _ = server.accept()
            try:
                join_sockets(came, connect())
            except (OSError, HostError):
                came.close()


def _timed_exit(returncode: int, late: bool) -> int | None:
    if late and returncode in (-signal.SIGKILL, 137):
        return 124
    return None if returncode < 0 else returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what still runs; `timeout` hands the signal on to all its children."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    if process.stderr is not None:
        process.stderr.close()
