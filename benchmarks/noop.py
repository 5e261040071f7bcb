"""How long an apply takes that has nothing to do, beside a hand-written shell script and Ansible doing the same job.

    python -m benchmarks.noop [--runs N] [--quick] [--without-ansible | --ansible DIR]

As root, on a lab of emulated hosts (`tests.lab`). All tools take turns, so that noise meets them alike; every run must
find that nothing is to be done. docs/benchmarks.md says what is compared with what.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from tests import lab as labs
from tests.lab import Lab

HERE = Path(__file__).parent
RECIPE = HERE.parent / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml"
KEX = "curve25519-sha256"
BEAMDEPLOY, SHELL, SHELL_25519 = "beamdeploy", "shell", f"shell, {KEX}"
ANSIBLE, ANSIBLE_TUNED = "Ansible, defaults", "Ansible, tuned"
# numerator, denominator, what it should be
RATIOS = (
    (BEAMDEPLOY, SHELL, "≤ 1.5 for one host at RTT 0, else ≤ 1"),
    (BEAMDEPLOY, SHELL_25519, "told only"),
    (ANSIBLE, BEAMDEPLOY, "≥ 12"),
    (ANSIBLE_TUNED, BEAMDEPLOY, "≥ 6 at RTT 0, ≥ 4 at 100 ms"),
)


@dataclass(frozen=True)
class Tool:
    """A way to do the job. `after` is not timed."""

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    is_noop: Callable[[str], bool]
    after: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Place:
    """Where each host is reached in one scenario: name → (address, port). `folder` is its own."""

    folder: Path
    rtt: int
    hosts: Mapping[str, tuple[str, int]]


def environment(**more: str) -> dict[str, str]:
    """What the tools inherit: a Python that may keep its bytecode, as everywhere else."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("BEAMDEPLOY_", "ANSIBLE_"))}
    return {name: value for name, value in {**inherited, **more}.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure(runs: int, tools: Sequence[Tool]) -> dict[str, float]:
    """Median seconds of each tool; they take turns, after one turn that is not counted."""
    taken: dict[str, list[float]] = {tool.name: [] for tool in tools}
    for turn in range(runs + 1):
        for tool in tools:
            seconds = timed(tool)
            if turn:
                taken[tool.name].append(seconds)
    return {name: median(seconds) for name, seconds in taken.items()}


def timed(tool: Tool) -> float:
    """Seconds of one run. RuntimeError: it failed, or found something to do."""
    begin = time.perf_counter()
    done = subprocess.run(
        tool.words, env=tool.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    tool.after()
    if done.returncode or not tool.is_noop(done.stdout):
        raise RuntimeError(f"{tool.name}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return seconds


@contextmanager
def relayed(lab: Lab, names: Sequence[str], rtt: int) -> Iterator[Mapping[str, tuple[str, int]]]:
    """Where these hosts are reached with this round trip time in milliseconds."""
    chosen = [host for host in lab.hosts if host.name in names]
    if not rtt:
        yield {host.name: (host.address, host.port) for host in chosen}
        return
    words = (sys.executable, str(HERE / "relay.py"), str(rtt), *(f"{host.address}:{host.port}" for host in chosen))
    relay = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert relay.stdin is not None and relay.stdout is not None
    try:
        ports = map(int, relay.stdout.readline().split())
        yield {host.name: ("127.0.0.1", port) for host, port in zip(chosen, ports, strict=True)}
    finally:
        relay.stdin.close()
        relay.wait(10)
        relay.stdout.close()


def known_hosts(lab: Lab, place: Place) -> Path:
    """The lab's keys under the names of this place."""
    keys = {host.name: host.host_key for host in lab.hosts}
    lines = [
        f"{address if port == 22 else f'[{address}]:{port}'} {keys[name]}\n"
        for name, (address, port) in place.hosts.items()
    ]
    path = place.folder / "known_hosts"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def beamdeploy(lab: Lab, place: Place, recipe: Path) -> Tool:
    """`beamdeploy apply`, the whole process."""
    inventory = place.folder / "hosts.yaml"
    data = json.loads(lab.inventory(*place.hosts))
    for name, variables in data["all"]["children"]["lab"]["hosts"].items():
        address, port = place.hosts[name]
        variables |= {"address": address, "port": port, "known_hosts": str(known_hosts(lab, place))}
    inventory.write_text(json.dumps(data), encoding="utf-8")
    words = (*command(), "apply", str(recipe), "-i", str(inventory))
    return Tool(BEAMDEPLOY, words, environment(), lambda out: out.count("  unchanged  ") == len(place.hosts))


def command() -> tuple[str, ...]:
    """The installed command, else the module."""
    installed = Path(sys.executable).with_name("beamdeploy")
    return (str(installed),) if installed.exists() else (sys.executable, "-m", "beamdeploy")


def shell(lab: Lab, place: Place, spec: Spec, name: str, kex: str) -> Tool:
    """The hand-written script over a fresh `ssh` a host."""
    config = place.folder / "ssh_config"
    common = f"""Host *
  User root
  IdentityFile {lab.identity_file}
  IdentitiesOnly yes
  UserKnownHostsFile {known_hosts(lab, place)}
  StrictHostKeyChecking yes
"""
    hosts = [f"Host {name}\n  HostName {address}\n  Port {port}\n" for name, (address, port) in place.hosts.items()]
    config.write_text("".join((*hosts, common)), encoding="utf-8")
    questions = (spec.image, spec.digest, "8000", labs.MODEL_DIR, *spec.folders)
    words = ("sh", str(HERE / "noop" / "noop.sh"), str(config), kex, *place.hosts, "--", *questions)
    return Tool(name, words, environment(), lambda out: True)


@dataclass(frozen=True)
class Spec:
    """What the recipe renders to, as the others need it."""

    image: str
    digest: str
    folders: tuple[str, ...]
    variables: Mapping[str, Any]


def rendered(recipe: Path, inventory: Path, host: str, managed: Path) -> Spec:
    """The words of `docker run`, taken apart for Ansible's module."""
    words = (*command(), "render", str(recipe), "-i", str(inventory), "-o", "json", "-l", host)
    report = json.loads(subprocess.run(words, env=environment(), capture_output=True, check=True).stdout)["hosts"][host]
    run = list(report["words"])
    image = yaml.safe_load(recipe.read_text(encoding="utf-8"))["image"]["reference"]
    place = run.index(image)
    folders = ("nvfp4", "dflash2")
    variables = {
        "image": image,
        "entrypoint": [run[run.index("--entrypoint") + 1]],
        "command": run[place + 1 :],
        "env": dict(pair.split("=", 1) for option, pair in pairwise(run) if option == "-e"),
        "ports": [run[run.index("-p") + 1]],
        "model_dir": labs.MODEL_DIR,
        "folders": [f"{labs.MODEL_DIR}/{folder}" for folder in folders],
        "managed_packages": str(managed),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    return Spec(image, report["digest"], folders, variables)


def install_ansible(environ: Path) -> None:
    """Ansible in a virtual environment of its own, and what its module needs on the hosts; nothing if it is there."""
    if (environ / "managed").is_dir():
        return
    subprocess.run((sys.executable, "-m", "venv", str(environ)), check=True)
    pip = (str(environ / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check")
    subprocess.run((*pip, "ansible"), check=True)
    subprocess.run((*pip, "--target", str(environ / "managed"), "requests"), check=True)


def ansible(lab: Lab, place: Place, spec: Spec, installed: Path, *, tuned: bool) -> Tool:
    """Ansible's own way. Defaults: every run opens its connections; tuned: they stay open between the runs."""
    home = place.folder / ("tuned" if tuned else "defaults")
    home.mkdir()
    inventory = home / "inventory.json"
    hosts = {name: {"ansible_host": address, "ansible_port": port} for name, (address, port) in place.hosts.items()}
    login = {"ansible_user": "root", "ansible_ssh_private_key_file": str(lab.identity_file)}
    extra = {"ansible_ssh_common_args": f"-o UserKnownHostsFile={known_hosts(lab, place)} -o IdentitiesOnly=yes"}
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": {**spec.variables, **login, **extra}}}))
    settings = {"ANSIBLE_HOME": str(home), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(home / "cp"), "ANSIBLE_NOCOWS": "1"}
    if tuned:
        settings |= {
            "ANSIBLE_PIPELINING": "True",
            "ANSIBLE_GATHERING": "explicit",
            "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=30m",
            "ANSIBLE_FORKS": "25",
        }
    words = (str(installed / "bin" / "ansible-playbook"), "-i", str(inventory), str(HERE / "noop" / "playbook.yaml"))
    nothing = (lambda: None) if tuned else (lambda: hang_up(home / "cp"))
    name = ANSIBLE_TUNED if tuned else ANSIBLE
    return Tool(name, words, environment(**settings), lambda out: out.count("changed=0 ") == len(place.hosts), nothing)


def hang_up(sockets: Path) -> None:
    """End the ssh masters that Ansible leaves behind."""
    for socket in sockets.glob("*"):
        subprocess.run(("ssh", "-o", f"ControlPath={socket}", "-O", "exit", "-"), capture_output=True, check=False)


@contextmanager
def tools_for(lab: Lab, place: Place, recipe: Path, spec: Spec, installed: Path | None) -> Iterator[tuple[Tool, ...]]:
    """All tools for one scenario; what stays open is closed at its end."""
    own = (
        beamdeploy(lab, place, recipe),
        shell(lab, place, spec, SHELL, "default"),
        shell(lab, place, spec, SHELL_25519, KEX),
    )
    if installed is None:
        yield own
        return
    try:
        yield (*own, *(ansible(lab, place, spec, installed, tuned=tuned) for tuned in (False, True)))
    finally:
        hang_up(place.folder / "tuned" / "cp")


def rows(medians: Mapping[str, float], rtt: int, hosts: int) -> Iterator[str]:
    """The figures of one scenario."""
    yield f"\n{hosts} host{'s' if hosts > 1 else ''}, RTT {rtt} ms"
    yield from (f"  {name:32}{seconds:8.2f} s" for name, seconds in medians.items())
    for over, under, aim in RATIOS:
        if over in medians and under in medians:
            yield f"  {f'{over} / {under}':48}{medians[over] / medians[under]:8.2f}   {aim}"


def prepare(lab: Lab, folder: Path) -> tuple[Path, Path]:
    """A recipe for the lab's image and an inventory, applied on all hosts."""
    recipe, inventory = folder / "beam.yaml", lab.folder / "inventory.yaml"
    data = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    recipe.write_text(yaml.safe_dump({**data, "image": {"reference": lab.image()}}), encoding="utf-8")
    words = (*command(), "apply", str(recipe), "-i", str(inventory))
    subprocess.run(words, env=environment(), capture_output=True, check=True, timeout=600)
    return recipe, inventory


def scenarios(quick: bool) -> Iterable[tuple[int, int]]:
    """(hosts, RTT in ms)"""
    return ((1, 0), (1, 100)) if quick else ((1, 0), (1, 100), (8, 0), (8, 100))


def benchmark(runs: int, *, quick: bool, with_ansible: bool, kept: Path | None) -> None:
    """Print medians and ratios of every scenario. `kept`: where Ansible is installed and stays."""
    with ExitStack() as stack:
        # a short path, since the sockets of ssh masters lie there
        folder = Path(tempfile.mkdtemp(prefix="bdnoop-", dir="/tmp"))
        stack.callback(shutil.rmtree, folder)
        installed = (kept or folder / "ansible").absolute() if with_ansible else None
        if installed:
            install_ansible(installed)
        lab = labs.start(folder / "lab", hosts=max(hosts for hosts, _ in scenarios(quick)))
        stack.callback(labs.stop, lab)
        recipe, inventory = prepare(lab, folder)
        names = [host.name for host in lab.hosts]
        spec = rendered(recipe, inventory, names[0], (installed or folder) / "managed")
        for number, (hosts, rtt) in enumerate(scenarios(quick)):
            here = folder / str(number)
            here.mkdir()
            with (
                relayed(lab, names[:hosts], rtt) as reached,
                tools_for(lab, Place(here, rtt, reached), recipe, spec, installed) as tools,
            ):
                print("\n".join(rows(measure(runs, tools), rtt, hosts)), flush=True)


def main() -> None:
    """The words of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=10, help="runs of each tool in each scenario")
    parser.add_argument("--quick", action="store_true", help="one host only")
    parser.add_argument("--without-ansible", action="store_true", help="beside the shell script only")
    parser.add_argument("--ansible", type=Path, metavar="DIR", help="keep the installed Ansible here for the next time")
    asked = parser.parse_args()
    # a `timeout` or a closed terminal ends what was started as well
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    benchmark(asked.runs, quick=asked.quick, with_ansible=not asked.without_ansible, kept=asked.ansible)


if __name__ == "__main__":
    main()
