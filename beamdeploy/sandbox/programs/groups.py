"""`grep -H . /proc/PID/cgroup …` in a sandbox, which has no control groups of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from beamdeploy.sandbox.docker import store


def main(folder: str, words: Sequence[str]) -> int:
    """The exit code."""
    sys.stdout.writelines(_groups(folder, words[2:]))
    return 0


def _groups(folder: str, files: Sequence[str]) -> Iterator[str]:
    """The control groups of containers' processes, as a host without systemd's cgroup driver has them."""
    pids = {str(record["State"]["Pid"]): record["Id"] for record in store.all_of(folder)}
    for file in files:
        container = pids.get(file.split("/")[2])
        if container is not None:
            yield f"{file}:0::/docker/{container}\n"
