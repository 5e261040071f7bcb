"""What following a start costs, and how soon its end is noticed.

    python -m benchmarks.ready [--runs N] [--seconds S]

As root, on a host of the lab (`tests.lab`), through an SSH connection on loopback. Printed are medians and the worst of

* engine ready → first check done: from the server's own "ready" line to the model list that `apply` was told, and to
  its end with the completion after that;
* dead → noticed: from `docker kill` while it loads to the end of the apply that says so;
* CPU: of a whole `apply` while a server loads, and of the following alone with a log of 10 and 100 lines a second,
  each as a share of one core.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median

from beamdeploy.inventory import load_inventory
from beamdeploy.remote import open_session
from beamdeploy.startup import State
from beamdeploy.watch import Watch
from tests import lab as labs
from tests.integration.command import Job, environment

READY = "ts serve ready"
TICKS = os.sysconf("SC_CLK_TCK")


def main(runs: int, seconds: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        lab = labs.start(Path(folder) / "lab")
        try:
            job = Job(lab, lab.hosts, Path(folder))
            job.write_inventory()
            lab.hosts[0].docker("pull", lab.image())
            listed, completed = zip(*(_ready(job) for _ in range(runs)), strict=True)
            _print("engine ready → model list", listed, "s")
            _print("engine ready → completion", completed, "s")
            _print("dead → noticed", [_dead(job) for _ in range(runs)], "s")
            _print(f"CPU of an apply that waits, over {seconds} s", [_waiting(job, seconds)], "% of a core")
            for rate in (10, 100):
                _print(f"CPU of following {rate} lines a second", [_following(job, rate, seconds)], "% of a core")
            print(f"load average {os.getloadavg()[0]:.1f}")
        finally:
            labs.stop(lab)


def _print(what: str, values: Sequence[float], unit: str) -> None:
    print(f"{what:45}{median(values):8.2f} {unit} (worst {max(values):.2f}, {len(values)} runs)", flush=True)


@contextmanager
def _applying(job: Job, load_seconds: int) -> Iterator[subprocess.Popen[str]]:
    """An apply on a host without a server; ended, and the server gone, at the end."""
    labs_host = job.lab.hosts[0]
    job.write({"container.env": {"STANDIN_LOAD_SECONDS": str(load_seconds)}, "smoke": {"checks": []}})
    run = subprocess.Popen(
        (sys.executable, "-m", "beamdeploy", "apply", job.recipe, "-i", job.inventory),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        yield run
    finally:
        run.kill()
        _ended(run)
        labs_host.docker("rm", "--force", "beam")


def _until(run: subprocess.Popen[str], phase: str) -> float:
    """When the run said this phase first."""
    assert run.stderr is not None
    for line in run.stderr:
        if f": {phase}" in line:
            return time.time()
    raise RuntimeError(f"it ended before {phase}")


def _ended(run: subprocess.Popen[str]) -> float:
    """When it has ended."""
    assert run.stderr is not None
    for _ in run.stderr:
        pass
    run.wait()
    return time.time()


def _ready(job: Job) -> tuple[float, float]:
    """Seconds from the server's own word to the model list, and to the end with its completion."""
    with _applying(job, 4) as run:
        listed = _until(run, "completion")
        ended = _ended(run)
        if run.returncode:
            raise RuntimeError(f"the apply ended with {run.returncode}")
        told = job.lab.hosts[0].docker("logs", "--timestamps", "beam")
    stamp = next(line.split()[0] for line in told.splitlines() if READY in line)
    ready = datetime.fromisoformat(stamp).timestamp()
    return listed - ready, ended - ready


def _dead(job: Job) -> float:
    """Seconds from the death of a server that loads to the end of the run that says so."""
    with _applying(job, 60) as run:
        _until(run, "loading: target weights")
        job.lab.hosts[0].docker("kill", "beam")
        begin = time.time()
        ended = _ended(run)
        if run.returncode != 1:
            raise RuntimeError(f"the apply ended with {run.returncode}")
        return ended - begin


def _waiting(job: Job, seconds: int) -> float:
    """Per cent of a core that the whole process takes while it waits."""
    with _applying(job, 10 * seconds) as run:
        _until(run, "loading: target weights")
        before = _cpu(run.pid)
        time.sleep(seconds)
        return 100 * (_cpu(run.pid) - before) / seconds


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _following(job: Job, rate: int, seconds: int) -> float:
    """Per cent of a core that this process takes to follow a log of so many lines a second."""
    host = job.lab.hosts[0]
    step = "print('step', i, 'of a chatty engine', flush=True)"
    count = f"import time\nfor i in range({rate * seconds}): {step}; time.sleep(1 / {rate})"
    host.docker("run", "--detach", "--name", "beam", "--entrypoint", "python3", job.lab.image(), "-c", count)
    [known] = load_inventory(job.inventory, environ=os.environ).hosts
    with open_session(known) as session:
        wall, used = time.monotonic(), time.process_time()
        Watch("tokenspeed", "0", wall).follow(session, ("docker",), "beam", (0,), _nothing, timeout=20 * seconds)
        share = 100 * (time.process_time() - used) / (time.monotonic() - wall)
    host.docker("rm", "--force", "beam")
    return share


def _nothing(state: State, tick: bool) -> None:
    """A moment that needs no word."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=30)
    asked = parser.parse_args()
    main(asked.runs, asked.seconds)
