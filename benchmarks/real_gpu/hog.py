"""A stranger on the GPU: takes all of its memory but so much, at once or when a container of a name starts.

    python hog.py --leave-mib 1024                        until it is ended
    python hog.py --leave-mib 1024 --at-start-of NAME     from the container's next start until that container has ended

It prints `ready` when its CUDA context is there, `holds N MiB` and `gone`. The machine's own torch is used.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time


def say(words: str) -> None:
    """One line, now."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def running(name: str) -> set[str]:
    """The ids of the running containers of that name."""
    words = ("docker", "ps", "--quiet", "--no-trunc", "--filter", f"name=^/{name}$", "--filter", "status=running")
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


def next_start(name: str) -> str:
    """The id of the next container of that name that runs and does not now."""
    before = running(name)
    while not (new := running(name) - before):
        time.sleep(0.05)
    return new.pop()


def main() -> None:
    """Take it, hold it, give it back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leave-mib", type=int, default=1024)
    parser.add_argument("--at-start-of", default="")
    asked = parser.parse_args()

    import torch  # type: ignore[import-not-found]

    held = torch.empty(1, device="cuda")
    say("ready")
    container = next_start(asked.at_start_of) if asked.at_start_of else ""
    free, _ = torch.cuda.mem_get_info()
    size = free - asked.leave_mib * 2**20
    held = torch.empty(size, dtype=torch.uint8, device="cuda")
    say(f"holds {held.nbytes >> 20} MiB")
    while not container or container in running(asked.at_start_of):
        time.sleep(0.05)
    say("gone")


if __name__ == "__main__":
    main()
