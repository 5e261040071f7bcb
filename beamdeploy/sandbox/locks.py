"""Files that a living process holds. The kernel lets go when it ends, however it ends: no pid can lie about that."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager


def take(path: str, seconds: float = 0.5) -> int | None:
    """Hold the file until the descriptor is closed; None: another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            # perhaps somebody only asks, which takes a moment
            if time.monotonic() > until:
                os.close(descriptor)
                return None
            time.sleep(0.005)


def held(path: str) -> bool:
    """Whether a living process holds the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # shared, so that two who ask do not take each other for a holder
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def free_within(path: str, seconds: float) -> bool:
    """Wait until nobody holds the file; False: somebody still does."""
    until = time.monotonic() + seconds
    while held(path):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def locked(path: str) -> Iterator[None]:
    """One process at a time. Works on a folder, too."""
    flags = os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
