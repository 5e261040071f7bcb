"""`flock -n FD`, for a machine without util-linux."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence


def main(words: Sequence[str]) -> int:
    """The exit code: 1 when another holds it."""
    at_once = fcntl.LOCK_NB if {"-n", "--nonblock"} & set(words) else 0
    try:
        fcntl.flock(int(words[-1]), fcntl.LOCK_EX | at_once)
    except BlockingIOError:
        return 1
    return 0
