"""`grep` in a sandbox: the machine's own, except for who looks for a dockerd: there is the sandbox's, and no other."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from beamdeploy.sandbox import place


def main(folder: str, words: Sequence[str]) -> int:
    """The exit code; most often it does not return."""
    if list(words[:2]) == ["-lx", "dockerd"]:
        sys.stdout.write(os.path.join(folder, place.PROC, "1", "comm") + "\n")
        return 0
    own = os.path.join(folder, place.BIN)
    path = os.pathsep.join(part for part in os.environ.get("PATH", "").split(os.pathsep) if part != own)
    real = shutil.which("grep", path=path) or "/bin/grep"
    os.execv(real, ("grep", *words))
