"""`stat -L -c '%s %n' -- FILES`, for a machine whose stat is not GNU's."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(words: Sequence[str]) -> int:
    """The exit code: 1 when a file is not there."""
    names = list(words[words.index("--") + 1 :]) if "--" in words else list(words[3:])
    code = 0
    for name in names:
        try:
            sys.stdout.write(f"{os.stat(name).st_size} {name}\n")
        except OSError as error:
            sys.stderr.write(f"stat: cannot statx '{name}': {error.strerror}\n")
            code = 1
    return code
