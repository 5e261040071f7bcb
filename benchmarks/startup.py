"""How long `beamdeploy --help` and `--version` take, as a ratio to a bare click program; both run in turns."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

BARE = """
import click
@click.group()
@click.version_option("1", prog_name="bare")
def main(): "A bare program."
@main.command()
def apply(): "Apply."
main()
"""
ROUNDS = 25


def seconds(words: Sequence[str]) -> float:
    """How long one run takes."""
    begin = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - begin


def compare(option: str) -> tuple[float, float]:
    """Median seconds of the bare program and of ours, of runs that take turns: noise meets both alike."""
    bare = (sys.executable, "-c", BARE, option)
    ours = (sys.executable, "-c", "from beamdeploy.cli import run; run()", option)
    pairs = [(seconds(bare), seconds(ours)) for _ in range(ROUNDS)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def measure() -> None:
    """Print a line an option."""
    print(f"{'':12}{'bare click':>12}{'beamdeploy':>12}{'ratio':>8}")
    for option in ("--help", "--version"):
        bare, ours = compare(option)
        print(f"{option:12}{bare * 1000:9.1f} ms{ours * 1000:9.1f} ms{ours / bare:8.2f}")


if __name__ == "__main__":
    measure()
