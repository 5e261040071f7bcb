"""The trials, one after the other on one lab host, and what is checked after each."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from beamdeploy.errors import BUG
from beamdeploy.label import NAME
from tests import lab as labs
from tests.chaos.faults import FAULTS, Scene, small_disks
from tests.integration.command import Job, environment
from tests.lab import LabHost

BEFORE = ("connect", "look", "lock")
DEEDS = (
    "pull", "write secrets", "probe", "try GPUs", "stop", "set aside", "wait for GPUs", "run", "start", "settle",
    "remove",
)  # fmt: skip
GOOD = (*BEFORE, *DEEDS)
BAD = ("stop", "run", "settle", "restore")
PAIRS = tuple((step, fault, good) for good, steps in ((True, GOOD), (False, BAD)) for step in steps for fault in FAULTS)
"""Every step with every fault: of a change that can succeed, and of one whose new server crashes at its start."""
SAID: Mapping[str, str] = {"lock": "look: again, under the lock"}
"""How a run says that it is at a step, where that is not its name: a lock that is free is not worth a word."""
LONGEST = 200
ASK = ("curl", "--silent", "--max-time", "5", "--write-out", "%{http_code}", "--output", "/dev/null")
MODELS = "http://127.0.0.1:8000/v1/models"
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "eight": {"engine.max_num_seqs": 8},
    "four": {"engine.max_num_seqs": 4},
    "bad": {"container.env": {"STANDIN_FAULT": "crash-at-start"}},
}
TAGS = {"eight": "beam", "four": "beam-next", "bad": "beam-next"}


@dataclass(frozen=True)
class Trial:
    """One fault at one step. `good`: the wanted deployment can serve; `delay`: seconds into the step."""

    step: str
    fault: str
    good: bool
    delay: float
    dice: int


@dataclass(frozen=True)
class Seen:
    """What came of a trial. `exits`: of the run that was hit, and of the one after; `reached`: the step was."""

    trial: Trial
    exits: tuple[int, ...]
    serves: str
    reached: bool
    violations: tuple[str, ...]
    seconds: float
    said: str = field(default="", repr=False)


def trials(seed: int, count: int) -> tuple[Trial, ...]:
    """The campaign of a seed: every pair once before any comes again, in an order that the seed decides."""
    dice, pairs = random.Random(seed), list(PAIRS)
    dice.shuffle(pairs)
    made = (
        Trial(step, fault, good, round(dice.choice((0.0, 0.05, dice.uniform(0, 1.5))), 2), dice.randrange(1 << 30))
        for step, fault, good in itertools.cycle(pairs)
    )
    return tuple(itertools.islice(made, count))


@contextmanager
def arena() -> Iterator[Job]:
    """A lab host with small disks, a stranger's container, and a deployment that serves."""
    folder = Path(tempfile.mkdtemp(prefix="bdchaos-", dir="/tmp"))
    started = labs.start(folder / "lab", hosts=1)
    try:
        small_disks(started.hosts[0], started.network.network)
        (folder / "files").mkdir()
        job = Job(started, started.hosts, folder / "files")
        job.write_inventory()
        host = started.hosts[0]
        words = ("--detach", "--name", "grafana", "--restart", "unless-stopped", "--entrypoint", "sleep")
        host.docker("run", *words, started.image("drained" if "drained" in started.images else "beam"), "100000")
        yield job
    finally:
        labs.stop(started)
        shutil.rmtree(folder, ignore_errors=True)


def campaign(
    planned: Sequence[Trial], told: Callable[[Seen], None], seconds: float = float("inf"), jobs: int = 1
) -> tuple[Seen, ...]:
    """Run these trials, as many as begin within `seconds`; each of the jobs has every so manieth, and its own lab."""
    until, one_at_a_time = time.monotonic() + seconds, threading.Lock()
    seen: list[Seen] = []

    def part(number: int) -> None:
        with arena() as job:
            for trial in planned[number::jobs]:
                if time.monotonic() > until:
                    break
                found = tried(job, trial)
                with one_at_a_time:
                    seen.append(found)
                    told(found)

    with ThreadPoolExecutor(jobs) as pool:
        for ended in [pool.submit(part, number) for number in range(jobs)]:
            ended.result()
    return tuple(seen)


def tried(job: Job, trial: Trial) -> Seen:
    """One trial: from a host that serves, through the fault and one more apply, to what is there then."""
    began = time.monotonic()
    host = job.hosts[0]
    before = prepared(job, trial)
    stranger = of_stranger(host, whole=trial.fault != "kill -9 of dockerd")
    other = "four" if before == "eight" else "eight"
    wanted = (before if trial.step == "start" else other) if trial.good else "bad"
    dice = random.Random(trial.dice)
    if trial.good and (trial.step in ("pull", "connect", "look", "lock") or trial.fault == "image pruned"):
        without(host, job.lab.image(TAGS[wanted]))
    secret = str(trial.dice) if trial.step == "write secrets" else ""
    if trial.step != "start":
        write(job, wanted, secret=secret)
    else:
        host.docker("kill", "beam")
    run = started(job)
    lines: list[str] = []
    reached = threading.Event()
    reader = threading.Thread(
        target=read, args=(run, f"{host.name}: {SAID.get(trial.step, trial.step)}", lines, reached), daemon=True
    )
    reader.start()
    while not reached.wait(0.02) and run.poll() is None:
        pass
    time.sleep(trial.delay)
    scene = Scene(
        host, job.lab.network.network, run, dice, lambda: second(job, dice.choice((before, wanted)), secret),
        job.lab.image(TAGS[wanted]),
    )  # fmt: skip
    undo = FAULTS[trial.fault](scene)
    hung = ended(run)
    undo()
    again = job.run("apply", "--lock-wait", "60", timeout=LONGEST)
    violations = tuple(checked(job, before, wanted, stranger, whole=trial.fault != "kill -9 of dockerd"))
    violations += ("the run that was hit did not end",) if hung else ()
    violations += (f"apply afterwards ended with {again.exit}",) if trial.good and again.exit else ()
    violations += ("a bug: exit code 70",) if BUG in (run.returncode, again.exit) else ()
    said = "".join(lines) + f"--- {again.exit}\n" + again.err + again.problems if violations else ""
    exits = (run.returncode, again.exit)
    return Seen(trial, exits, serving(job), reached.is_set(), violations, round(time.monotonic() - began, 1), said)


def prepared(job: Job, trial: Trial) -> str:
    """A deployment that serves, the one that is there if one is; its name."""
    now = serving(job)
    if now in ("eight", "four") and trial.step != "start":
        return now
    # of one that is to be started again the recipe must be the very one that it was made from
    now = "eight"
    write(job, now)
    done = job.run("apply", "--lock-wait", "60", timeout=LONGEST)
    assert done.exit == 0, done.out
    return now


def write(job: Job, which: str, file: str | None = None, *, secret: str = "") -> None:
    """The recipe of that name. `secret`: the value of one that it has, "": it has none."""
    change: dict[str, Any] = {
        "image": {"reference": job.lab.image(TAGS[which])},
        "ready.timeout": "60s",
        "ready.stall": "30s",
    }
    place = job if file is None else replace(job, folder=job.folder / file)
    place.folder.mkdir(exist_ok=True)
    if secret:
        (place.folder / "token").write_text(secret, encoding="utf-8")
        change["container.secrets"] = {"CHAOS_TOKEN": {"file": "token"}}
    env = {"STANDIN_LOAD_SECONDS": "1", **RECIPES[which].get("container.env", {})}
    place.write({**change, **RECIPES[which], "container.env": env})


def second(job: Job, which: str, secret: str) -> subprocess.Popen[str]:
    write(job, which, "second", secret=secret)
    return started(job, str(job.folder / "second" / "beam.yaml"))


def started(job: Job, recipe: str | None = None) -> subprocess.Popen[str]:
    # of the second one at the same time nothing is read
    stderr = subprocess.PIPE if recipe is None else subprocess.DEVNULL
    return subprocess.Popen(
        (sys.executable, "-m", "beamdeploy", "apply", recipe or job.recipe, "-i", job.inventory),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, text=True, env=environment(),
    )  # fmt: skip


def read(run: subprocess.Popen[str], step: str, lines: list[str], reached: threading.Event) -> None:
    assert run.stderr is not None
    with run.stderr:
        for line in run.stderr:
            lines.append(line)
            if line.startswith(step):
                reached.set()


def ended(run: subprocess.Popen[str]) -> bool:
    """Wait for the run; whether it had to be killed."""
    try:
        run.wait(timeout=LONGEST)
        return False
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()
        return True


def without(host: LabHost, image: str) -> None:
    # an error: it is not there
    with suppress(RuntimeError):
        host.docker("rmi", "--force", image)


def checked(job: Job, before: str, wanted: str, stranger: str, *, whole: bool) -> Iterator[str]:
    """Each rule that the host breaks now."""
    host = job.hosts[0]
    now = serving(job)
    if now not in (before, wanted) or now == "bad":
        yield f"it serves {now}; {before} served before, {wanted} was wanted"
    running = host.docker("ps", "--quiet", "--filter", f"label={NAME}=beam").split()
    if len(running) > 1:
        yield f"{len(running)} of our containers run"
    if of_stranger(host, whole=whole) != stranger:
        yield "the stranger's container is not as it was"
    if now == wanted and host.docker("ps", "--all", "--quiet", "--filter", "name=^/beam[.]previous$").strip():
        yield "the old container was left"
    try:
        host.run("flock", "--nonblock", "/run/lock/beamdeploy-beam.lock", "true")
    except subprocess.CalledProcessError:
        yield "the lock is held"


def serving(job: Job) -> str:
    """Which of the recipes answers: by the words of the running container, and by asking it. "none": none does."""
    host = job.hosts[0]
    try:
        words = host.docker(
            "inspect", "--format", "{{.State.Running}} {{json .Config.Cmd}} {{json .Config.Env}}", "beam"
        )
        answered = host.run(*ASK, MODELS).strip()
    except (RuntimeError, subprocess.CalledProcessError):
        return "none"
    if not words.startswith("true") or answered != "200":
        return "none"
    return (
        "bad" if "STANDIN_FAULT" in words else "four" if '"4"' in words.partition("max-num-seqs")[2][:12] else "eight"
    )


def of_stranger(host: LabHost, *, whole: bool) -> str:
    """The container that is none of ours; `whole`: with its start, which a dead daemon changes."""
    form = "{{.Id}} {{.Name}}" + (" {{.State.StartedAt}} {{.State.Status}}" if whole else "")
    return host.docker("inspect", "--format", form, "grafana")
