"""`beamdeploy stage` over real SSH, rsync and the real `hf`: what lacks is moved once, nothing half-done is shown."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from beamdeploy.lock import Lock, LockedFolder, lock_file, write_lock
from beamdeploy.sandbox import checkpoint
from tests.hub import Hub, serve
from tests.integration.command import Job, environment
from tests.lab import Lab, LabHost
from tests.test_verify import files_of

TARGET, DRAFTER = "reflection/Beam-1.0-501B-A23B-NVFP4", "reflection/Beam-1.0-501B-A23B-DFlash2"
SHARD = "model-00002-of-00003.safetensors"
# a lab host has its own /root, which may hide the interpreter of this one
PYTHON = "/usr/bin/python3" if Path(sys.executable).resolve().is_relative_to("/root") else sys.executable
HF = f"""#!/bin/sh
PYTHONPATH={sysconfig.get_path("purelib")} exec {PYTHON} -m huggingface_hub.cli.hf "$@"
"""


@pytest.fixture
def job(lab: Lab, clean_hosts: tuple[LabHost, ...], tmp_path: Path) -> Job:
    """The Beam recipe on both hosts."""
    made = Job(lab, clean_hosts, tmp_path)
    made.write()
    made.write_inventory()
    return made


@pytest.fixture
def hub(lab: Lab, clean_hosts: tuple[LabHost, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with both repositories, and `hf` on every host."""
    checkpoint.write_target(tmp_path / "hub" / TARGET)
    checkpoint.write_drafter(tmp_path / "hub" / DRAFTER)
    for host in clean_hosts:
        (host.folder / "bin" / "hf").write_text(HF, encoding="utf-8")
        (host.folder / "bin" / "hf").chmod(0o755)
    with serve(tmp_path / "hub", lab.network.registry) as held:
        monkeypatch.setenv("HF_ENDPOINT", held.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield held
    for host in clean_hosts:
        (host.folder / "bin" / "hf").unlink()


def empty(*hosts: LabHost) -> None:
    for host in hosts:
        shutil.rmtree(host.models)
        host.models.mkdir()


def shown(host: LabHost) -> list[str]:
    return sorted(path.name for path in host.models.iterdir())


def outcomes(job: Job, *words: str, timeout: float = 120) -> tuple[int, dict[str, str], int]:
    """(exit, outcome of each host, bytes that had to move)"""
    done = job.run("stage", *words, timeout=timeout)
    hosts = done.report["hosts"]
    moved = sum(one["moved_bytes"] for host in hosts.values() for one in host.get("folders", {}).values())
    return done.exit, {name: host["outcome"] for name, host in hosts.items()}, moved


def lock_weights(job: Job, folder: Path) -> int:
    """Lock what lies in `folder`; its bytes."""
    sources = {"nvfp4": f"hf://{TARGET}", "dflash2": f"hf://{DRAFTER}"}
    weights = {path: LockedFolder(source, None, files_of(folder / path)) for path, source in sources.items()}
    write_lock(Lock(lock_file(job.recipe), weights=weights))
    return sum(one.size for held in weights.values() for one in held.files.values())


def test_from_a_host_what_lacks_is_moved_and_a_second_run_moves_nothing(job: Job) -> None:
    good, bare = job.hosts
    total = lock_weights(job, good.models)
    empty(bare)
    assert outcomes(job, "--from", good.name) == (0, {bare.name: "changed"}, total)
    assert (shown(bare), files_of(bare.models)) == (["dflash2", "nvfp4"], files_of(good.models))
    assert outcomes(job, "--from", good.name) == (0, {bare.name: "unchanged"}, 0)
    assert job.run("verify", "--deep").exit == 0
    assert list((bare.folder / "root" / ".local/state/beamdeploy/stage").iterdir()) == []
    assert not list(bare.models.glob(".*"))


def test_without_a_lock_the_source_says_what_is_right(job: Job) -> None:
    good, bare = job.hosts
    empty(bare)
    assert outcomes(job, "--from", good.name)[:2] == (0, {bare.name: "changed"})
    assert files_of(bare.models) == files_of(good.models)


def test_one_wrong_file_is_replaced_and_the_others_are_linked(job: Job) -> None:
    good, other = job.hosts
    lock_weights(job, good.models)
    path = other.models / "nvfp4" / SHARD
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    inode = (other.models / "nvfp4" / "config.json").stat().st_ino
    assert outcomes(job, "--from", good.name) == (0, {other.name: "changed"}, len(content))
    assert files_of(other.models / "nvfp4") == files_of(good.models / "nvfp4")
    assert (other.models / "nvfp4" / "config.json").stat().st_ino == inode
    assert any(name.startswith(".nvfp4.replaced-") for name in shown(other))


def test_from_a_folder_of_this_machine_to_all_hosts(job: Job, tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "we ird" / "models")
    total = lock_weights(job, tmp_path / "we ird" / "models")
    empty(*job.hosts)
    done = outcomes(job, "--from", str(tmp_path / "we ird" / "models"))
    assert done == (0, {host.name: "changed" for host in job.hosts}, 2 * total)
    for host in job.hosts:
        assert files_of(host.models) == files_of(tmp_path / "we ird" / "models")


def test_a_source_that_is_not_what_is_locked_gets_no_name(job: Job) -> None:
    good, bare = job.hosts
    lock_weights(job, good.models)
    (good.models / "nvfp4" / SHARD).write_bytes(b"x" * (good.models / "nvfp4" / SHARD).stat().st_size)
    empty(bare)
    done = job.run("stage", "--from", good.name)
    assert (done.exit, "came twice with another content" in done.problems) == (1, True)
    assert "nvfp4" not in shown(bare)


def test_from_the_hub_every_host_downloads_what_is_locked(job: Job, hub: Hub) -> None:
    assert job.run("lock", "--from", job.hosts[0].name).exit == 0
    Path(lock_file(job.recipe)).unlink()
    empty(*job.hosts)
    exit, hosts, _ = outcomes(job)
    assert (exit, hosts) == (0, {host.name: "changed" for host in job.hosts})
    for host in job.hosts:
        assert files_of(host.models / "nvfp4") == files_of(hub.folder / TARGET)
    assert outcomes(job) == (0, {host.name: "unchanged" for host in job.hosts}, 0)


def test_a_download_that_was_cut_goes_on(job: Job, hub: Hub) -> None:
    for number in range(4):
        (hub.folder / TARGET / f"extra-{number}.safetensors").write_bytes(random.Random(number).randbytes(4 << 20))
    job = Job(job.lab, job.hosts[:1], job.folder)
    job.write_inventory()
    empty(*job.hosts)
    hub.drop_after = 9 << 20
    assert outcomes(job)[0] == 1
    assert "nvfp4" not in shown(job.hosts[0])
    hub.drop_after = None
    assert outcomes(job)[0] == 0
    assert files_of(job.hosts[0].models / "nvfp4") == files_of(hub.folder / TARGET)
    assert hub.sent < 26 << 20


def test_the_token_reaches_the_hub_and_is_left_nowhere(job: Job, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_" + "s3cret" * 5
    job = Job(job.lab, job.hosts[:1], job.folder)
    job.write_inventory()
    empty(*job.hosts)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    done = job.run("stage")
    assert done.exit == 0, done.problems
    assert hub.token not in done.out + done.err
    home = job.hosts[0].folder / "root"
    assert not any(hub.token.encode() in path.read_bytes() for path in home.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((403, "GatedRepo"), "gated"),
        ((429, ""), "gives no more for now"),
        ((404, "RevisionNotFound"), "no such revision"),
    ],
    ids=str,
)
def test_a_hub_that_refuses_the_host_is_explained(job: Job, hub: Hub, refusal: tuple[int, str], said: str) -> None:
    lock_weights(job, job.hosts[0].models)
    job = Job(job.lab, job.hosts[:1], job.folder)
    job.write_inventory()
    empty(*job.hosts)
    hub.refusal = refusal
    done = job.run("stage")
    assert (done.exit, said in done.problems) == (1, True), done.problems
    assert "nvfp4" not in shown(job.hosts[0])


def test_a_host_and_an_image_without_hf_say_so(job: Job) -> None:
    lock_weights(job, job.hosts[0].models)
    empty(*job.hosts)
    done = job.run("stage", "-l", job.hosts[0].name)
    assert (done.exit, "neither the host nor the image has hf" in done.problems) == (1, True), done.problems


# the image of the lab, with this machine's Python and the real hf in it
LIBRARY = sysconfig.get_path("purelib")
DOCKER = f"""#!/bin/sh
[ "$1" != run ] || {{
  shift
  set -- run -v /usr:/usr:ro -v /lib:/lib:ro -v /lib64:/lib64:ro -v {LIBRARY}:{LIBRARY}:ro \\
    -v /srv/tools:/opt/tools:ro -e PATH=/opt/tools:/usr/bin:/bin "$@"
}}
exec docker "$@"
"""


def test_without_hf_on_the_host_it_runs_in_a_container(job: Job, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    (host, _) = job.hosts
    hub.token = "hf_" + "s3cret" * 5
    monkeypatch.setenv("HF_TOKEN", hub.token)
    tools = host.folder / "srv" / "tools"
    tools.mkdir()
    (host.folder / "bin" / "hf").rename(tools / "hf")
    (tools / "docker").write_text(DOCKER, encoding="utf-8")
    (tools / "docker").chmod(0o755)
    job.write_inventory(docker="/srv/tools/docker")
    empty(host)
    done = job.run("stage", "-l", host.name)
    shutil.move(tools / "hf", host.folder / "bin" / "hf")
    shutil.rmtree(tools)
    assert (done.exit, done.host(host.name)["outcome"]) == (0, "changed"), done.problems
    assert files_of(host.models / "nvfp4") == files_of(hub.folder / TARGET)
    assert {header for _, header in hub.seen if header} == {f"Bearer {hub.token}"}
    assert hub.token not in done.out + done.err
    assert not [path for path in (host.folder / "root").rglob("token")]
    assert host.docker("ps", "--all", "--quiet") == ""


def test_a_source_that_is_none_is_bad_input(job: Job) -> None:
    assert job.run("stage", "--from", "nosuch").exit == 2


def words_of(job: Job, *more: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "beamdeploy", "stage", job.recipe, "-i", job.inventory, *more)


@contextmanager
def stopped_while_it_stages(job: Job, host: LabHost, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run that holds the lock of nvfp4 on `host` and does nothing, until it is told to go on."""
    run = subprocess.Popen(
        words_of(job, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    try:
        lock, until = host.models / ".nvfp4.lock", time.monotonic() + 30
        while not (lock.exists() and lock.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        run.send_signal(signal.SIGSTOP)
        yield run
    finally:
        run.kill()
        run.wait(60)


def test_a_second_run_on_the_same_folder_is_told_who_works_there(job: Job) -> None:
    good, bare = job.hosts
    lock_weights(job, good.models)
    empty(bare)
    with stopped_while_it_stages(job, bare, "--from", good.name) as first:
        second = job.run("stage", "--from", good.name)
        assert (second.exit, f"(pid {first.pid})" in second.problems) == (5, True), second.problems
        third = subprocess.Popen(words_of(job, "--from", good.name, "--lock-wait", "60"), env=environment())
        first.send_signal(signal.SIGCONT)
        assert (first.wait(60), third.wait(60)) == (0, 0)
    assert files_of(bare.models) == files_of(good.models)
    assert not list(bare.models.glob(".*"))


def test_two_hosts_that_share_a_folder_fill_it_once(job: Job) -> None:
    good, bare = job.hosts
    total = lock_weights(job, good.models)
    empty(bare)
    held = yaml.safe_load(Path(job.inventory).read_text(encoding="utf-8"))["all"]["children"]["lab"]["hosts"]
    job.write_inventory({**held[bare.name], "name": "twin"})
    done = outcomes(job, "--from", good.name)
    assert (done[0], done[2]) == (0, total), done
    assert files_of(bare.models) == files_of(good.models)


def test_hosts_that_cannot_reach_each_other_copy_through_this_machine(job: Job) -> None:
    good, bare = job.hosts
    total = lock_weights(job, good.models)
    empty(bare)
    rule = ("INPUT", "-p", "tcp", "-s", bare.address, "-j", "REJECT", "--reject-with", "tcp-reset")
    good.run("iptables", "-A", *rule)
    try:
        done = job.run("stage", "--from", good.name)
        again = outcomes(job, "--from", good.name)
    finally:
        good.run("iptables", "-D", *rule)
    folders = done.host(bare.name)["folders"].values()
    assert (done.exit, sum(one["moved_bytes"] for one in folders)) == (0, total), done.problems
    assert f"went through this machine, since {bare.name} does not reach {good.name}" in done.problems
    assert again == (0, {bare.name: "unchanged"}, 0)
    assert files_of(bare.models) == files_of(good.models)


def test_more_files_than_a_command_takes_words(job: Job) -> None:
    good, bare = job.hosts
    for number in range(700):
        (good.models / "nvfp4" / f"{number:03}-{'x' * 196}.txt").write_text(str(number), encoding="utf-8")
    total = lock_weights(job, good.models)
    empty(bare)
    assert outcomes(job, "--from", good.name, "--streams", "4") == (0, {bare.name: "changed"}, total)
    wrong = bare.models / "nvfp4" / f"007-{'x' * 196}.txt"
    wrong.write_text("?", encoding="utf-8")
    assert outcomes(job, "--from", good.name) == (0, {bare.name: "changed"}, 1)
    assert files_of(bare.models / "nvfp4") == files_of(good.models / "nvfp4")


def test_killed_at_any_moment_nothing_half_done_is_shown_and_the_next_run_completes(job: Job) -> None:
    good, bare = job.hosts
    for number in range(8):
        (good.models / "nvfp4" / f"extra-{number}.safetensors").write_bytes(random.Random(number).randbytes(6 << 20))
    wanted = files_of(good.models / "nvfp4")
    lock_weights(job, good.models)
    empty(bare)
    began = time.monotonic()
    # as those that will be killed are started
    assert subprocess.run(words_of(job, "--from", good.name), capture_output=True, env=environment()).returncode == 0
    whole = time.monotonic() - began
    dice = random.Random(6)
    # one in each tenth of a run, from when it is about to connect to its end; each of the three at least three times
    moments = [whole * (0.15 + 0.85 * (tenth + dice.random()) / 10) for tenth in range(10)]
    victims = [*("beamdeploy", "rsync", "sshd") * 3, "beamdeploy"]
    dice.shuffle(victims)
    for moment, victim in zip(moments, victims, strict=True):
        empty(bare)
        run = subprocess.Popen(
            words_of(job, "--from", good.name),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
        )  # fmt: skip
        time.sleep(moment)
        if victim == "beamdeploy":
            os.kill(run.pid, signal.SIGKILL)
        else:
            for pid in pids(bare, victim):
                kill(bare, pid)
        run.wait(60)
        if "nvfp4" in shown(bare):
            assert files_of(bare.models / "nvfp4") == wanted
        done = job.run("stage", "--from", good.name, "--lock-wait", "60")
        assert done.exit == 0, done.problems
        assert files_of(bare.models / "nvfp4") == wanted
        assert ".nvfp4.unfinished" not in shown(bare)


def pids(host: LabHost, name: str) -> list[str]:
    """Processes of that name on the host, but never its own sshd that listens."""
    listed = [line.split(None, 2) for line in host.run("ps", "-e", "-o", "pid=,comm=,args=").splitlines()]
    return [pid for pid, comm, args in listed if comm == name and "-D" not in args]


def kill(host: LabHost, pid: str) -> None:
    # it may have ended by itself
    subprocess.run(
        ("nsenter", "--target", str(host.init), "--mount", "--pid", "--", "kill", "-9", pid),
        check=False, capture_output=True, cwd="/",
    )  # fmt: skip
