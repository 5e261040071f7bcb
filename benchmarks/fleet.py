"""Time and memory of a run over many hosts: nothing to do, and a change, beside Ansible with as many forks.

    python -m benchmarks.fleet [--runs N] [--lab 1,8] [--emulated 200] [--forks 32] [--without-ansible | --ansible DIR]

As root. 1 and 8 hosts are those of `tests.lab`, each with its own OpenSSH server and Docker engine. 200 hosts are names
for a few sandboxes of `beamdeploy sandbox` (every name is connected to and looked at for itself); there Ansible runs no
module of Docker, but only the word `true`, which is the least that it can do. Memory is the largest sum of the
proportional set sizes of a tool's processes. docs/benchmarks.md says what came out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median

import yaml

from beamdeploy.sandbox import lifetime
from benchmarks import noop
from tests import lab as labs
from tests.lab import Lab

SANDBOXES = 4
NOTHING = "nothing to do"


@dataclass(frozen=True)
class Measured:
    """One run: wall time, processor time, and the most memory of all its processes at once."""

    seconds: float
    cpu: float
    mib: float


@dataclass(frozen=True)
class Job:
    """What a tool does. `before` each run is not timed; `is_right`: of its output."""

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    is_right: Callable[[str], bool]
    before: Callable[[int], None] = lambda run: None


def measure(runs: int, jobs: Sequence[Job]) -> dict[str, Measured]:
    """Medians; the tools take turns, after one turn that is not counted."""
    taken: dict[str, list[Measured]] = {job.name: [] for job in jobs}
    for turn in range(runs + 1):
        for job in jobs:
            job.before(turn)
            found = measured(job)
            if turn:
                taken[job.name].append(found)
    return {
        name: Measured(*(median(getattr(each, field.name) for each in found) for field in fields(Measured)))
        for name, found in taken.items()
    }


def apart(runs: int, jobs: Sequence[Job], lab: Lab) -> dict[str, Measured]:
    """The same, one tool after the other: neither touches a container that the other made."""
    found: dict[str, Measured] = {}
    for job in jobs:
        clear(lab)
        found |= measure(runs, [job])
    clear(lab)
    return found


def clear(lab: Lab) -> None:
    for host in lab.hosts:
        if containers := host.docker("ps", "--all", "--quiet").split():
            host.docker("rm", "--force", *containers)


def measured(job: Job) -> Measured:
    """One run. RuntimeError: it failed, or did something else."""
    begin, used, peak, over = time.perf_counter(), cpu_of_children(), [0.0], threading.Event()
    run = subprocess.Popen(
        job.words,
        env=job.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def watch() -> None:
        while not over.wait(0.1):
            peak[0] = max(peak[0], memory(run.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = run.communicate()
    seconds = time.perf_counter() - begin
    over.set()
    watcher.join()
    if run.returncode or not job.is_right(out):
        raise RuntimeError(f"{job.name}: exit {run.returncode}\n{out[-3000:]}\n{err[-3000:]}")
    return Measured(seconds, cpu_of_children() - used, peak[0])


def cpu_of_children() -> float:
    """Seconds of all children that have ended, and of theirs."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def memory(pid: int) -> float:
    """MiB of a process and all that descend from it."""
    return sum(map(own_memory, family(pid)))


def own_memory(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def family(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text(encoding="utf-8").split():
                yield from family(int(child))


def of_lab(lab: Lab, folder: Path, hosts: int, forks: int, installed: Path | None) -> Iterator[tuple[str, list[Job]]]:
    """The kinds of run over so many lab hosts, each with its tools."""
    recipe, inventory = noop.prepare(lab, folder)
    names = [host.name for host in lab.hosts][:hosts]
    place = noop.Place(folder, 0, {host.name: (host.address, host.port) for host in lab.hosts[:hosts]})
    ours = noop.beamdeploy(lab, place, recipe)
    limited = (*ours.words, "--forks", str(forks))
    nothing = [Job("beamdeploy", limited, ours.environment, ours.is_noop)]
    change = [
        Job("beamdeploy", limited, ours.environment, lambda out: out.count("  changed  ") == hosts, other_batch(recipe))
    ]
    if installed is not None:
        spec = noop.rendered(recipe, inventory, names[0], installed / "managed")
        with_ansible = noop.ansible(lab, place, spec, installed, tuned=True)
        environment = {**with_ansible.environment, "ANSIBLE_FORKS": str(forks)}
        nothing.append(Job("Ansible", with_ansible.words, environment, with_ansible.is_noop))
        change.append(changing(folder, with_ansible, environment, hosts))
    yield NOTHING, nothing
    yield "a change", change


def other_batch(recipe: Path) -> Callable[[int], None]:
    """Before each run, the recipe asks for another batch size."""

    def write(run: int) -> None:
        data = yaml.safe_load(recipe.read_text(encoding="utf-8"))
        data["engine"]["max_num_seqs"] = 4 + run % 3
        recipe.write_text(yaml.safe_dump(data), encoding="utf-8")

    return write


def changing(folder: Path, tool: noop.Tool, environment: Mapping[str, str], hosts: int) -> Job:
    """Ansible's playbook with another argument in each run, and with patience until the server answers."""
    [play] = yaml.safe_load((noop.HERE / "noop" / "playbook.yaml").read_text(encoding="utf-8"))
    for task in play["tasks"]:
        if "ansible.builtin.uri" in task:
            task |= {"register": "answer", "until": "answer.status == 200", "retries": 300, "delay": 0.2}
    playbook = folder / "change.yaml"
    playbook.write_text(yaml.safe_dump([play]), encoding="utf-8")
    inventory = Path(tool.words[2])

    def write(run: int) -> None:
        data = json.loads(inventory.read_text(encoding="utf-8"))
        words = data["all"]["vars"]["command"]
        words[words.index("--max-num-seqs") + 1] = str(7 + run % 3)
        inventory.write_text(json.dumps(data), encoding="utf-8")

    words = (*tool.words[:3], str(playbook))
    return Job("Ansible", words, environment, lambda out: out.count("changed=1 ") == hosts, write)


def of_sandboxes(stack: ExitStack, folder: Path, hosts: int, forks: int, installed: Path | None) -> list[Job]:
    """Nothing to do, on so many names for a few sandboxes."""
    variables = []
    for number in range(SANDBOXES):
        box = lifetime.up(None, folder / f"box{number}")
        stack.callback(lifetime.down, box.folder)
        text = box.inventory.read_text(encoding="utf-8").partition("\n")[2]
        variables += json.loads(text)["all"]["hosts"].values()
    inventory = folder / "hosts.yaml"
    named = {f"gpu-{number:03}": variables[number % SANDBOXES] for number in range(hosts)}
    inventory.write_text(json.dumps({"all": {"hosts": named}}), encoding="utf-8")
    words = (*noop.command(), "status", "-i", str(inventory), "--forks", str(forks))
    jobs = [Job("beamdeploy status", words, noop.environment(), lambda out: out.count("gpu-") >= hosts)]
    if installed is not None:
        jobs.append(least_of_ansible(folder, named, forks, installed))
    return jobs


def least_of_ansible(folder: Path, named: Mapping[str, Mapping[str, object]], forks: int, installed: Path) -> Job:
    """`ansible all -m raw -a true`: a connection and a word on each host."""
    login = {
        name: {
            "ansible_host": of["address"], "ansible_port": of["port"], "ansible_user": of["user"],
            "ansible_ssh_private_key_file": of["identity_file"],
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={of['known_hosts']} -o IdentitiesOnly=yes",
        }
        for name, of in named.items()
    }  # fmt: skip
    file = folder / "ansible.json"
    file.write_text(json.dumps({"all": {"hosts": login}}), encoding="utf-8")
    settings = {
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=no",
        "ANSIBLE_SSH_USETTY": "False",
    }
    words = (str(installed / "bin" / "ansible"), "all", "-i", str(file), "-m", "raw", "-a", "true", "-f", str(forks))
    return Job(
        "Ansible, the word true", words, noop.environment(**settings), lambda out: out.count("rc=0") == len(named)
    )


def rows(what: str, found: Mapping[str, Measured]) -> Iterator[str]:
    """The figures of one kind of run."""
    yield f"\n{what}"
    first = next(iter(found.values()))
    for name, each in found.items():
        ratio = f"   {each.seconds / first.seconds:.1f} × the time, {each.mib / first.mib:.1f} × the memory"
        figures = f"{each.seconds:8.2f} s{each.cpu:8.2f} s CPU{each.mib:8.0f} MiB"
        yield f"  {name:28}{figures}{ratio if each is not first else ''}"


def benchmark(asked: argparse.Namespace) -> None:
    """Print every kind of run."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="bdfleet-", dir="/tmp"))
        stack.callback(shutil.rmtree, folder)
        installed = None if asked.without_ansible else (asked.ansible or folder / "ansible").absolute()
        if installed:
            noop.install_ansible(installed)
        sizes = tuple(map(int, asked.lab.split(","))) if asked.lab else ()
        if sizes:
            lab = labs.start(folder / "lab", hosts=max(sizes))
            stack.callback(labs.stop, lab)
            for size in sizes:
                here = folder / str(size)
                here.mkdir()
                few = replace(lab, hosts=lab.hosts[:size])
                for what, jobs in of_lab(few, here, size, asked.forks, installed):
                    found = measure(asked.runs, jobs) if what == NOTHING else apart(asked.runs, jobs, few)
                    print("\n".join(rows(f"{size} lab hosts, {what}", found)), flush=True)
        if asked.emulated:
            jobs = of_sandboxes(stack, folder, asked.emulated, asked.forks, installed)
            print("\n".join(rows(f"{asked.emulated} emulated hosts, a look", measure(asked.runs, jobs))), flush=True)


def main() -> None:
    """The words of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3, help="runs of each tool")
    parser.add_argument("--lab", default="1,8", metavar="N,N", help="numbers of lab hosts; empty: none")
    parser.add_argument("--emulated", type=int, default=200, metavar="N", help="number of emulated hosts; 0: none")
    parser.add_argument("--forks", type=int, default=32)
    parser.add_argument("--without-ansible", action="store_true")
    parser.add_argument("--ansible", type=Path, metavar="DIR", help="keep the installed Ansible here for the next time")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.pop("BEAMDEPLOY_INVENTORY", None)
    benchmark(parser.parse_args())


if __name__ == "__main__":
    main()
