"""`beamdeploy verify` over real SSH, and what a plan says of weights that are not those of the lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from beamdeploy.lock import Lock, LockedFolder, lock_file, write_lock
from beamdeploy.sandbox import checkpoint
from tests.integration.command import Job, beamdeploy, environment
from tests.lab import Lab, LabHost
from tests.test_verify import files_of

SHARD = "model-00002-of-00003.safetensors"
SOURCES = {
    "nvfp4": "hf://reflection/Beam-1.0-501B-A23B-NVFP4",
    "dflash2": "hf://reflection/Beam-1.0-501B-A23B-DFlash2",
}


@pytest.fixture
def job(lab: Lab, clean_host: LabHost, tmp_path: Path) -> Job:
    """The Beam recipe with a lock of the weights that its host has."""
    made = Job(lab, (clean_host,), tmp_path)
    made.write()
    made.write_inventory()
    lock_weights(made, clean_host)
    return made


def lock_weights(job: Job, host: LabHost) -> None:
    weights = {path: LockedFolder(source, None, files_of(host.models / path)) for path, source in SOURCES.items()}
    write_lock(Lock(lock_file(job.recipe), weights=weights))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_healthy_weights_are_verified_twice_and_nothing_is_changed(job: Job, clean_host: LabHost) -> None:
    before = files_of(clean_host.models)
    for _ in range(2):
        for words in ((), ("--deep",), ("--deep=always",)):
            done = job.run("verify", *words)
            assert (done.exit, done.host(clean_host.name)["outcome"]) == (0, "verified"), done.out
            assert done.host(clean_host.name)["folders"]["nvfp4"]["compared_with"] == "the lock"
    assert files_of(clean_host.models) == before


def test_a_flipped_bit_is_found_by_deep_only_and_blocks(job: Job, clean_host: LabHost) -> None:
    flip(clean_host.models / "nvfp4" / SHARD)
    assert job.run("verify").exit == 0
    for _ in range(2):
        done = job.run("verify", "--deep")
        assert (done.exit, done.host(clean_host.name)["outcome"]) == (3, "blocked")
        assert f"{SHARD} has the right size and other content than the lock says" in done.problems


def test_a_plan_compares_with_the_lock_and_blocks(job: Job, clean_host: LabHost) -> None:
    assert job.run("plan").exit == 0
    with (clean_host.models / "nvfp4" / "tokenizer.json").open("a", encoding="utf-8") as file:
        file.write(" ")
    done = job.run("plan")
    assert (done.exit, "tokenizer.json has" in done.problems, "the lock says" in done.problems) == (3, True, True)


def test_deep_is_one_connection_and_one_command(job: Job, clean_host: LabHost) -> None:
    assert job.run("verify", "--deep").exit == 0
    log = clean_host.folder / "sshd.log"
    before = len(log.read_text(encoding="utf-8", errors="replace"))
    assert job.run("verify", "--deep").exit == 0
    said = log.read_text(encoding="utf-8", errors="replace")[before:]
    assert (said.count("Accepted publickey"), said.count("Starting session: command")) == (1, 1), said


def test_a_shard_that_the_user_may_not_read_is_found(job: Job, clean_host: LabHost) -> None:
    (clean_host.models / "nvfp4" / SHARD).chmod(0o000)
    job.write_inventory(user="nodocker")
    for words in ((), ("--deep",)):
        done = job.run("verify", *words)
        assert (done.exit, f"{SHARD} cannot be read by this user" in done.problems) == (3, True), done.problems
        assert done.problems.count(SHARD + " c") == 1


def test_what_root_may_read_and_the_containers_user_not_is_found(job: Job, clean_host: LabHost) -> None:
    folder = clean_host.models / "nvfp4"
    folder.chmod(0o700)
    assert job.run("verify").exit == 0  # the image runs as root
    job.write_inventory(docker="nosuch")
    assert job.run("verify").exit == 0  # and weights are whole without docker
    job.write_inventory()
    built = clean_host.docker("create", job.lab.image("beam"), "x")
    image = clean_host.docker("commit", "--change", "USER 1000:1000", built)
    clean_host.docker("rm", built)
    job.write({"image": {"id": image}})
    for command, words in (("verify", ()), ("verify", ("--deep",)), ("plan", ())):
        done = job.run(command, *words)
        assert "cannot be read by the container's user 1000:1000 (mode drwx------, owner 0:0)" in done.problems
        assert done.host(clean_host.name)["outcome"] == "blocked"
    folder.chmod(0o755)
    assert job.run("verify").exit == 0
    (folder / "config.json").chmod(0o640)
    job.write()
    job.write_inventory(docker_args=["--user", "1000:1000"])
    assert "nvfp4/config.json cannot be read by the container's user" in job.run("verify").problems


def test_a_download_that_runs_blocks_and_one_that_was_left_does_not(job: Job, clean_host: LabHost) -> None:
    rest = clean_host.models / "nvfp4" / ".cache" / "huggingface" / "download" / f"{SHARD}.8f3c.incomplete"
    rest.parent.mkdir(parents=True)
    rest.write_bytes(b"x" * 77)
    done = job.run("verify")
    assert (done.exit, "is left over from an unfinished download" in done.problems) == (0, True)
    ended = threading.Event()

    def download() -> None:
        while not ended.wait(0.2):
            with rest.open("ab") as file:
                file.write(b"x")

    writer = threading.Thread(target=download)
    writer.start()
    done = job.run("verify")
    ended.set()
    writer.join()
    assert (done.exit, "is growing: a download into this folder is running now" in done.problems) == (3, True)


def test_what_lacks_and_does_not_fit_is_said_with_both_numbers(job: Job, clean_host: LabHost) -> None:
    index = clean_host.models / "nvfp4" / "model.safetensors.index.json"
    text = index.read_text(encoding="utf-8")
    total = text.split('"total_size": ')[1].split("\n")[0]
    index.write_text(text.replace(f'"total_size": {total}', f'"total_size": {1 << 60}'), encoding="utf-8")
    (clean_host.models / "nvfp4" / SHARD).unlink()
    Path(lock_file(job.recipe)).unlink()
    done = job.run("verify")
    assert done.exit == 3
    assert "lacks 1048576.0 TiB" in done.problems and "free: the rest does not fit" in done.problems


def test_an_interrupted_run_goes_on_where_it_was(job: Job, clean_host: LabHost) -> None:
    folder = clean_host.models / "nvfp4"
    for number in range(12):
        with (folder / f"part-{number:02}.json").open("wb") as file:
            file.truncate(300 << 20)
    lock_weights(job, clean_host)
    time.sleep(3)
    words = (sys.executable, "-m", "beamdeploy", "verify", job.recipe, "-i", job.inventory, "--deep")
    run = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment())
    assert run.stderr is not None
    for line in run.stderr:
        if "GiB of" in line or "MiB of" in line:
            break
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    run.stderr.close()
    time.sleep(1)
    assert "openssl" not in clean_host.run("ps", "-e", "-o", "comm")
    done = job.run("verify", "--deep")
    held = done.host(clean_host.name)["folders"]["nvfp4"]
    assert done.exit == 0, done.problems
    assert 0 < held["remembered_bytes"] < held["bytes"]


def test_all_hosts_are_verified_at_once_and_each_says_its_own(
    lab: Lab, clean_hosts: tuple[LabHost, ...], tmp_path: Path
) -> None:
    job = Job(lab, clean_hosts, tmp_path)
    job.write()
    job.write_inventory({"name": "gone", "address": "127.0.0.1", "port": 9, "model_dir": "/srv/models/beam"})
    lock_weights(job, clean_hosts[0])
    flip(clean_hosts[1].models / "nvfp4" / SHARD)
    done = job.run("verify", "--deep")
    assert {name: host["exit"] for name, host in done.report["hosts"].items()} == {"gpu-a": 0, "gpu-b": 3, "gone": 4}
    assert done.exit == 3


def test_the_words_of_the_help_are_those_of_the_command() -> None:
    assert "--deep" in beamdeploy("verify", "--help").out
    assert beamdeploy("verify", "--deep=sometimes", "x.yaml").exit == 2


def test_writing_the_checkpoint_of_the_lab_is_what_the_lock_holds(clean_host: LabHost, tmp_path: Path) -> None:
    assert files_of(checkpoint.write(tmp_path / "again") / "nvfp4") == files_of(clean_host.models / "nvfp4")
