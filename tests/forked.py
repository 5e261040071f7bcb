"""`beamdeploy …` as a process of its own that imports nothing any more: it is forked from one that has.

Half of what a short command costs are its imports, and the tests run thousands. What a command does, its words,
environment, streams, signals and exit code are those of `python -m beamdeploy`; how it is started is proven elsewhere.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEFOREHAND = ("fabric", "jinja2", "jsonschema", "rich.console", "rich.live", "rich.markup", "rich.table", "rich.text")
LONGEST = 1 << 20


@dataclass(frozen=True)
class Asked:
    """A command and the world that it is to find."""

    words: Sequence[str]
    env: Mapping[str, str]
    cwd: str


def beamdeploy(
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    text: str = "",
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run it without a terminal; `text`: what it reads. TimeoutExpired: it took longer, and was killed."""
    asked = Asked(words, dict(os.environ if env is None else env), str(cwd or Path.cwd()))
    ours, theirs = socket.socketpair()
    with (
        ours,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(text.encode())
        given.seek(0)
        with theirs:
            streams = [given.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
            socket.send_fds(_parent(os.getpid()), [json.dumps(asdict(asked)).encode()], streams)
        code = _ended(ours, words, timeout)
        said = [_read(stream.fileno()) for stream in (out, err)]
    return subprocess.CompletedProcess(words, code, *said)


def _ended(process: socket.socket, words: Sequence[str], timeout: float) -> int:
    """The exit code as subprocess has it."""
    process.settimeout(60)
    pid = int(process.recv(16))
    process.settimeout(timeout)
    try:
        status = os.waitstatus_to_exitcode(int(process.recv(16)))
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(words, timeout) from None
    return status


def _read(descriptor: int) -> str:
    # the offset is shared with the process that wrote
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode() if size else ""


@cache
def _parent(pid: int) -> socket.socket:
    """The process that commands are forked from, as this process (of that pid) speaks to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
    with theirs:
        words = (sys.executable, "-m", "tests.forked", str(theirs.fileno()))
        nothing = subprocess.DEVNULL
        process = subprocess.Popen(words, cwd=ROOT, stdin=nothing, stdout=nothing, pass_fds=(theirs.fileno(),))
    # it ends when this process does; Popen would warn about it
    process.returncode = 0
    atexit.register(ours.close)
    return ours


def main(descriptor: int) -> None:
    """Import all there is; then a process for every request, until nobody can ask any more."""
    imported()
    # what is shared stays shared: no collection writes to it
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as asking:
        while True:
            asked, streams, _, _ = socket.recv_fds(asking, LONGEST, 4)
            if not asked:
                return
            if os.fork() == 0:
                asking.close()
                _watch(Asked(**json.loads(asked)), streams)
            for stream in streams:
                os.close(stream)


def imported() -> None:
    """Every module of beamdeploy, and what its functions import themselves."""
    for name in BEFOREHAND:
        importlib.import_module(name)
    package = importlib.import_module("beamdeploy")
    for module in pkgutil.walk_packages(package.__path__, "beamdeploy."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _watch(asked: Asked, streams: Sequence[int]) -> None:
    """Fork the command, tell its pid and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        _become(asked, streams)
    teller = streams[3]
    try:
        os.write(teller, f"{pid:>16}".encode())
        _, status = os.waitpid(pid, 0)
        os.write(teller, f"{status:>16}".encode())
    finally:
        os._exit(0)


def _become(asked: Asked, streams: Sequence[int]) -> None:
    """The command itself; it does not return."""
    try:
        for number, stream in enumerate(streams[:3]):
            os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        os.environ.clear()
        os.environ.update(asked.env)
        os.chdir(asked.cwd)
        sys.argv = ["beamdeploy", *asked.words]
        # what a fresh process would ask of its environment, and draw by itself
        tempfile.tempdir = None
        time.tzset()
        random.seed()
        from beamdeploy.cli import run

        run()
    finally:
        os._exit(125)


if __name__ == "__main__":
    main(int(sys.argv[1]))
