"""How long a look takes beside a hand-written script that runs the same tools, and how many bytes travel.

    python -m benchmarks.look [--runs N] [--shards N]

As root, on a host of the lab (`tests.lab`), through one SSH connection on loopback; both take turns.
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from beamdeploy.inventory import load_inventory
from beamdeploy.look import SECONDS, Question, script, words
from beamdeploy.remote import Session, open_session
from tests import checkpoint
from tests import lab as labs

LIMIT = 60_000
NONCE = "0123456789abcdef"


def measure(runs: int, shards: int) -> None:
    """Print medians, their ratio, and bytes each way."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        lab = labs.start(Path(folder) / "lab")
        try:
            [host] = lab.hosts
            checkpoint.large(host.models / "nvfp4", shards=shards, tensors_a_shard=512, tensor_bytes=2_000_000)
            checkpoint.drafter(host.models / "dflash2")
            host.docker("pull", lab.image())
            inventory = Path(folder) / "hosts.yaml"
            inventory.write_text(lab.inventory(), encoding="utf-8")
            [known] = load_inventory(str(inventory), environ=os.environ).hosts
            with open_session(known) as session:
                _compare(session, lab.image(), runs)
        finally:
            labs.stop(lab)


def _compare(session: Session, image: str, runs: int) -> None:
    question = Question(
        name="beam", images=(image,), model_dir=labs.MODEL_DIR, folders=("nvfp4", "dflash2"), ports=(8000,)
    )
    by_hand = (Path(__file__).parent / "look" / "by_hand.sh").read_text(encoding="utf-8")
    ways = {
        "look": (script(), tuple(words(question, NONCE))),
        "by hand": (by_hand, (image, labs.MODEL_DIR, "nvfp4", "dflash2")),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(runs + 1):
        for name, (text, args) in ways.items():
            begin = time.perf_counter()
            result = session.script(text, args, timeout=SECONDS)
            if turn and result.ok:
                taken[name].append(time.perf_counter() - begin)
            if name == "look":
                received = len(result.out.encode())
    medians = {name: median(seconds) for name, seconds in taken.items()}
    sent = len(base64.b64encode(script().encode())) + sum(len(word) + 1 for word in ways["look"][1])
    sys.stdout.write(f"{'':10}{'median':>10}\n")
    sys.stdout.writelines(f"{name:10}{seconds * 1000:>8.0f} ms\n" for name, seconds in medians.items())
    sys.stdout.write(f"ratio {medians['look'] / medians['by hand']:.2f} (bar 1.3)\n")
    sys.stdout.write(f"sent {sent} bytes, received {received} bytes (bar {LIMIT} each)\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--shards", type=int, default=30)
    given = parser.parse_args()
    measure(given.runs, given.shards)
