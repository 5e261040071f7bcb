"""Process groups that are ended only while a lock, which their processes inherit, proves that they live."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from beamdeploy.sandbox import locks

if TYPE_CHECKING:
    import subprocess


def start(words: Sequence[str], lock: str, *, env: Mapping[str, str], cwd: str, stdin: int) -> subprocess.Popen[bytes]:
    """Start words as a group of their own with pipes. OSError: the program cannot be started."""
    # here, since most docker commands start nothing and should be quick
    import subprocess

    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        process = subprocess.Popen(
            words,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            pass_fds=(descriptor,),
            start_new_session=True,
            bufsize=0,
        )
        os.write(descriptor, str(process.pid).encode())
    finally:
        # the processes of the group go on to hold it
        os.close(descriptor)
    return process


def kill(lock: str, number: int) -> None:
    """Signal the group that holds the lock, if one does."""
    if not locks.held(lock):
        return
    with open(lock, encoding="ascii") as file:
        leader = file.read()
    if leader.isdigit():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(leader), number)


def end(lock: str, grace: float) -> None:
    """TERM, and KILL when that does not help in time."""
    kill(lock, signal.SIGTERM)
    kill(lock, signal.SIGCONT)
    if not locks.free_within(lock, grace):
        kill(lock, signal.SIGKILL)
        locks.free_within(lock, 5)
