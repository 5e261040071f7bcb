"""`df -P` in a sandbox: one large disk, full where the fault says so."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from beamdeploy.sandbox import place

KIB = 8 * 1024**3
INODES = 2**29


def main(folder: str, words: Sequence[str]) -> int:
    """The exit code."""
    whole, name = (
        (INODES, "Inodes") if any("i" in word for word in words if word.startswith("-")) else (KIB, "1024-blocks")
    )
    used = whole if place.settings(folder)["disk_full"] else whole // 4
    percent = 100 * used // whole
    sys.stdout.write(f"Filesystem {name} Used Available Capacity Mounted on\n")
    sys.stdout.writelines(
        f"/dev/nvme0n1 {whole} {used} {whole - used} {percent}% /\n" for _ in words if not _.startswith("-")
    )
    return 0
