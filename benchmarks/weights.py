"""Weights side by side with what people use: `verify --deep` against xargs -P, `stage` against plain rsync, fan-out
to many hosts against one by one, the memory of beamdeploy, and a cached verify. Takes root: hosts are those of the lab.

    python -m benchmarks.weights [deep] [copy] [fanout] [cached] [--mib N]      (all by default)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import yaml

from beamdeploy.lock import Lock, LockedFolder, lock_file, write_lock
from tests import lab as labs
from tests.integration.command import BEAM
from tests.lab import Lab, LabHost
from tests.test_verify import files_of

MIB = 1 << 20
ROUNDS = 3
LINK = "200mbit"


def timed(words: Sequence[str]) -> float:
    """Seconds that a command takes. RuntimeError: it failed."""
    began = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stdout[-1500:]} {done.stderr[-800:]}")
    return time.perf_counter() - began


PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], capture_output=True, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""


def peak_mib(words: Sequence[str]) -> int:
    """The most memory that a command takes. Asked in a small process: a fork counts what its parent holds."""
    return int(subprocess.run((sys.executable, "-c", PEAK, *words), capture_output=True, text=True, check=True).stdout)


def fill(folder: Path, files: int, size: int) -> None:
    """Files of random bytes: none compresses."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        with (folder / f"bulk-{number:03}.bin").open("wb") as file:
            file.writelines(os.urandom(min(MIB, size)) for _ in range(-(-size // MIB)))


def job(lab: Lab, folder: Path, *hosts: LabHost) -> tuple[str, str]:
    """A recipe and an inventory of these hosts."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = yaml.safe_load(BEAM.read_text(encoding="utf-8"))
    recipe["image"] = {"reference": lab.image("beam")}
    (folder / "beam.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    (folder / "hosts.yaml").write_text(lab.inventory(*(host.name for host in hosts)), encoding="utf-8")
    return str(folder / "beam.yaml"), str(folder / "hosts.yaml")


def lock(recipe: str, models: Path) -> None:
    """The lock of what lies there."""
    sources = {"nvfp4": "Beam-1.0-501B-A23B-NVFP4", "dflash2": "Beam-1.0-501B-A23B-DFlash2"}
    weights = {p: LockedFolder(f"hf://reflection/{s}", None, files_of(models / p)) for p, s in sources.items()}
    write_lock(Lock(lock_file(recipe), weights=weights))


def ours(command: str, recipe: str, inventory: str, *more: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "beamdeploy", command, recipe, "-i", inventory, "-o", "json", *more)


def deep(lab: Lab, folder: Path) -> None:
    """Hashing on the host: our whole command, connect and look included, against xargs alone over the same ssh.

    What it takes where every sum is remembered is its fixed cost, which does not grow with the weights.
    """
    host = lab.hosts[0]
    fill(host.models / "nvfp4", 16, 256 * MIB)
    recipe, inventory = job(lab, folder, host)
    lock(recipe, host.models)
    ssh = ("ssh", "-i", str(lab.identity_file), "-o", f"UserKnownHostsFile={lab.known_hosts}", f"root@{host.address}")
    find = f"find {host.model_dir} -type f -print0"
    theirs = {
        tool: (*ssh, f"{find} | xargs -0 -n 1 -P $(nproc) {tool} >/dev/null")
        for tool in ("openssl dgst -sha256 -r", "sha256sum")
    }
    timed(theirs["sha256sum"])  # both find the files in memory
    rows = []
    for _ in range(ROUNDS):
        rows.append([timed(words) for words in theirs.values()])
        rows[-1].append(timed(ours("verify", recipe, inventory, "--deep=always")))
        rows[-1].append(timed(ours("verify", recipe, inventory, "--deep")))
    openssl, sums, own, fixed = (median(row[at] for row in rows) for at in range(4))
    best = min(openssl, sums)
    print(f"deep 4 GiB: xargs openssl {openssl:.2f} s, xargs sha256sum {sums:.2f} s, verify --deep {own:.2f} s", end="")
    print(f", {fixed:.2f} s of them where nothing is hashed")
    print(f"  speed {best / own:.2f} of the faster; the hashing alone {best / (own - fixed):.2f}{load()}")


def copy(lab: Lab, folder: Path) -> None:
    """One host to another: plain rsync -W --inplace with our cipher, then also hashed there; and ours, which does both.

    What stage takes where nothing lacks is its fixed cost: without it and without the hashing, its copy is left.
    """
    source, target = lab.hosts[:2]
    fill(source.models / "nvfp4", 8, 128 * MIB)
    recipe, inventory = job(lab, folder, source, target)
    lock(recipe, source.models)
    login = ("-i", str(lab.identity_file), "-o", f"UserKnownHostsFile={lab.known_hosts}")
    wire = " ".join(("ssh", *login, "-c", "aes128-gcm@openssh.com"))
    there = f"root@{target.address}"
    sums = f"find {target.model_dir} -type f -print0 | xargs -0 -n 1 -P $(nproc) openssl dgst -sha256 -r >/dev/null"
    rows = []
    for _ in range(ROUNDS):
        clear(target)
        rsync = ("rsync", "-a", "-W", "--inplace", "-e", wire, f"{source.models}/", f"{there}:{target.model_dir}/")
        plain, hashed = timed(rsync), timed(("ssh", *login, there, sums))
        clear(target)
        words = ours("stage", recipe, inventory, "--from", source.name)
        own, idle = timed(words), timed(words)
        rows.append((plain, hashed, own, idle))
    plain, hashed, own, idle = (median(row[at] for row in rows) for at in range(4))
    clear(target)
    peak = peak_mib(ours("stage", recipe, inventory, "--from", source.name))
    print(f"copy 1 GiB: plain rsync {plain:.2f} s, hashing it {hashed:.2f} s", end="")
    print(f"; stage {own:.2f} s, {idle:.2f} s of them fixed")
    print(f"  stage to rsync: verified {own / plain:.2f}, to rsync and hashing {own / (plain + hashed):.2f}", end="")
    print(f", copy alone {max(0.0, own - idle - hashed) / plain:.2f}; its memory {peak} MiB{load()}")


def clear(*hosts: LabHost) -> None:
    """No weights on these."""
    for host in hosts:
        shutil.rmtree(host.models)
        host.models.mkdir()


def load() -> str:
    """How busy the machine is: times are to be read beside it."""
    return f" (load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)"


def fanout(lab: Lab, folder: Path, size: int = 1024) -> None:
    """From one host to all others: at once, and one by one (three of them, the rest as long as these).

    `size` in MiB. Each host sends at most LINK, as servers do: the limit would be the cores, which all of a lab share.
    """
    source, *targets = lab.hosts
    fill(source.models / "nvfp4", 8, size // 8 * MIB)
    recipe, inventory = job(lab, folder, *lab.hosts)
    lock(recipe, source.models)
    for host in lab.hosts:
        host.run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", LINK, "burst", "1mb", "latency", "50ms")
    clear(*targets)
    tree = timed(ours("stage", recipe, inventory, "--from", source.name))
    clear(*targets)
    words = ours("stage", recipe, inventory, "--from", source.name)
    single = median(timed((*words, "-l", host.name)) for host in targets[:3])
    print(
        f"fan-out of {size} MiB to {len(targets)} hosts at {LINK}: tree {tree:.1f} s, one host {single:.1f} s", end=""
    )
    print(f"; that is {tree / single:.1f} rounds instead of {len(targets)}{load()}")


def cached(lab: Lab, folder: Path) -> None:
    """200 shards that have not changed."""
    host = lab.hosts[0]
    fill(host.models / "nvfp4", 200, 64 * 1024)
    recipe, inventory = job(lab, folder, host)
    lock(recipe, host.models)
    time.sleep(3)
    timed(ours("verify", recipe, inventory, "--deep"))
    words = ours("verify", recipe, inventory, "--deep")
    began = (host.folder / "sshd.log").read_text(errors="replace").count("Starting session: command")
    seconds = median(timed(words) for _ in range(5))
    ended = (host.folder / "sshd.log").read_text(errors="replace").count("Starting session: command")
    quick = median(timed(ours("verify", recipe, inventory)) for _ in range(5))
    said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    held = said["hosts"][host.name]["folders"]["nvfp4"]
    assert held["remembered_bytes"] == held["bytes"], held
    print(f"cached deep verify of 200 shards: {seconds:.2f} s, {(ended - began) / 5:.0f} command; quick {quick:.2f} s")


PARTS = {"deep": (deep, 1), "copy": (copy, 2), "fanout": (fanout, 9), "cached": (cached, 1)}


def main() -> None:
    """Run the parts that are named, each in a lab of its own."""
    parser = argparse.ArgumentParser(description="Weights side by side with what people use.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--mib", type=int, default=1024, help="what is fanned out to each host")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in asked.parts or PARTS:
        part, hosts = PARTS[name]
        folder = Path(tempfile.mkdtemp(prefix="bdbench-", dir="/tmp"))
        lab = labs.start(folder / "lab", hosts=hosts)
        try:
            part(lab, folder / "job", *([asked.mib] if name == "fanout" else []))
        finally:
            labs.stop(lab)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
