"""`timeout [-k AFTER] SECONDS WORDS…`, for a machine without coreutils."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

LATE = 124


def main(words: Sequence[str]) -> int:
    """The exit code: that of the words, or 124 when the time was up."""
    left = list(words)
    after = 5.0
    if left[0] == "-k":
        after, left = float(left[1]), left[2:]
    seconds, *command = left
    try:
        process = subprocess.Popen(command, process_group=0)
    except FileNotFoundError:
        return 127
    except PermissionError:
        return 126
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(process.pid, signal.SIGTERM))
    try:
        code = process.wait(float(seconds))
    except subprocess.TimeoutExpired:
        return _late(process, after)
    return 128 - code if code < 0 else code


def _late(process: subprocess.Popen[bytes], after: float) -> int:
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return 137
    return LATE
