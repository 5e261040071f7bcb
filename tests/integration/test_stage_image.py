"""`beamdeploy stage --image` between real docker daemons: what was loaded is proven, planned with and run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamdeploy.lock import load_lock
from tests.integration.command import Job, container_id
from tests.lab import Lab, LabHost

OTHER = "beam-late"
HALF = """#!/bin/sh
case $1 in
  save) docker "$@" | head -c 3000000 ;;
  *) exec docker "$@" ;;
esac
"""


@pytest.fixture
def job(lab: Lab, clean_hosts: tuple[LabHost, ...], tmp_path: Path) -> Iterator[Job]:
    """The Beam recipe, locked, on two hosts; the first has the image, and the second does not reach the registry."""
    good, bare = clean_hosts
    made = Job(lab, clean_hosts, tmp_path)
    made.write()
    made.write_inventory()
    locked = made.run("lock", "--from", good.name)
    assert locked.exit == 0, locked.problems
    rule = ("OUTPUT", "-p", "tcp", "-d", lab.network.registry, "--dport", "5000", "-j", "REJECT")
    bare.run("iptables", "-I", *rule)
    yield made
    bare.run("iptables", "-D", *rule)


def locked_id(job: Job) -> str:
    held = load_lock(job.recipe)
    assert held is not None
    (platform,) = held.platforms.values()
    return platform[1]


def ids(host: LabHost) -> str:
    return host.docker("images", "--no-trunc", "--quiet")


def outcome(job: Job, *words: str) -> tuple[int, str]:
    done = job.run("stage", "--image", *words)
    assert done.exit == 0, done.problems
    return done.exit, done.host(job.hosts[1].name)["outcome"]


def test_an_image_that_was_loaded_is_planned_with_run_and_found_again(job: Job) -> None:
    good, bare = job.hosts
    blocked = job.run("stage", "--image", "-l", bare.name)
    assert (blocked.exit, "could not be pulled" in blocked.problems, ids(bare)) == (1, True, "")
    assert outcome(job, "--from", good.name) == (0, "changed")
    assert outcome(job, "--from", good.name) == (0, "unchanged")
    assert ids(bare) == locked_id(job)
    assert bare.docker("image", "inspect", "--format", "{{json .RepoDigests}}", locked_id(job)) == "[]"
    bare.docker("image", "prune", "--force")
    planned = job.run("plan", "-l", bare.name)
    assert "pull" not in [step["kind"] for step in planned.host(bare.name)["plan"]["steps"]], planned.out
    checked = job.run("preflight", "-l", bare.name, output="text")
    assert "loaded there: its id" in checked.out
    applied = job.run("apply", "-l", bare.name)
    assert applied.exit == 0, applied.problems
    assert bare.docker("inspect", "--format", "{{.Image}}", container_id(bare)) == locked_id(job)
    assert job.run("apply", "-l", bare.name).host(bare.name)["outcome"] == "unchanged"
    job.write({"engine.max_num_seqs": 4})
    replaced = job.run("apply", "-l", bare.name)
    assert (replaced.exit, replaced.host(bare.name)["outcome"]) == (0, "changed"), replaced.problems
    back = job.run("rollback", "-l", bare.name, "-y")
    assert back.exit == 0, back.problems


def tags(host: LabHost) -> set[str]:
    return set(host.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split())


def removed(job: Job) -> list[str]:
    bare = job.hosts[1].name
    done = job.run("prune", "-y", "-l", bare)
    assert done.exit == 0, done.out
    return [step["words"][-1] for step in done.host(bare)["plan"]["steps"]]


def test_a_loaded_image_goes_when_nothing_needs_it_and_what_others_named_stays(job: Job, lab: Lab) -> None:
    good, bare = job.hosts
    assert outcome(job, "--from", good.name) == (0, "changed")
    (old,) = tags(bare)
    assert job.run("apply", "-l", bare.name).exit == 0
    # a stranger's name for what we loaded, and an image of the same form of tag that we have not brought
    bare.docker("tag", locked_id(job), "somebodys:own")
    foreign = f"{old.rpartition(':')[0]}:sha256-{'0' * 64}"
    bare.docker("tag", locked_id(job), foreign)
    for seqs in (7, 6, 5):
        assert removed(job) == []
        job.write({"image": {"reference": lab.image("beam-next")}, "engine.max_num_seqs": seqs})
        assert job.run("lock", "--from", good.name).exit == 0
        assert outcome(job, "--from", good.name) == (0, "changed" if seqs == 7 else "unchanged")
        if seqs != 7:
            assert removed(job) == []
        assert job.run("apply", "-l", bare.name).exit == 0
    before = container_id(bare)
    assert removed(job) == [old]
    (new,) = tags(bare) - {"somebodys:own", foreign}
    assert removed(job) == [] and container_id(bare) == before
    assert locked_id(job) in ids(bare) and new.endswith(lab.images["beam-next"].replace(":", "-"))
    assert job.run("rollback", "-l", bare.name, "-y").exit == 0

    # one that was staged waits for its apply; when another came instead, it is ours by what the stage wrote down
    for seqs in (4, 3):
        job.write({"image": {"reference": lab.image(OTHER)}})
        assert job.run("lock", "--from", good.name).exit == 0
        assert outcome(job, "--from", good.name) == (0, "changed")
        (staged,) = tags(bare) - {"somebodys:own", foreign, new}
        assert removed(job) == []
        job.write({"image": {"reference": lab.image("beam-next")}, "engine.max_num_seqs": seqs})
        assert job.run("lock", "--from", good.name).exit == 0
        assert job.run("apply", "-l", bare.name).exit == 0
        assert removed(job) == [staged]
        assert tags(bare) == {"somebodys:own", foreign, new}


def test_an_image_that_arrives_in_part_is_not_there(job: Job) -> None:
    good, bare = job.hosts
    half = good.folder / "bin" / "halfdocker"
    half.write_text(HALF, encoding="utf-8")
    half.chmod(0o755)
    job.write_inventory(docker="halfdocker")
    (bare.folder / "bin" / "halfdocker").symlink_to(shutil.which("docker") or "docker")
    done = job.run("stage", "--image", "--from", good.name)
    assert (done.exit, "did not arrive" in done.problems, ids(bare)) == (1, True, ""), done.problems
    half.unlink()
    (bare.folder / "bin" / "halfdocker").unlink()
    job.write_inventory()
    assert outcome(job, "--from", good.name) == (0, "changed")


def test_from_this_machines_docker(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bare = job.hosts
    monkeypatch.setenv("DOCKER_HOST", f"unix://{good.docker_socket}")
    assert outcome(job, "--from", "here") == (0, "changed")
    assert ids(bare) == locked_id(job)
    assert outcome(job, "--from", "here") == (0, "unchanged")


def test_through_this_machine_where_hosts_do_not_reach_each_other(job: Job) -> None:
    good, bare = job.hosts
    rule = ("INPUT", "-p", "tcp", "-s", bare.address, "-j", "REJECT", "--reject-with", "tcp-reset")
    good.run("iptables", "-A", *rule)
    try:
        done = job.run("stage", "--image", "--from", good.name)
    finally:
        good.run("iptables", "-D", *rule)
    assert (done.exit, "went through this machine" in done.problems) == (0, True), done.problems
    assert ids(bare) == locked_id(job)


def test_without_a_proof_nothing_is_loaded(job: Job) -> None:
    good, bare = job.hosts
    (job.folder / "beam.lock.yaml").unlink()
    done = job.run("stage", "--image", "--from", good.name)
    assert (done.exit, "beamdeploy lock" in done.problems, ids(bare)) == (2, True, "")
    job.write({"image": {"id": good.docker("images", "--no-trunc", "--quiet").split()[0]}})
    assert outcome(job, "--from", good.name) == (0, "changed")
    good.docker("rmi", "--force", *ids(good).split())
    bare.docker("rmi", "--force", *ids(bare).split())
    lacking = job.run("stage", "--image", "--from", good.name)
    assert (lacking.exit, "does not have" in lacking.problems) == (1, True), lacking.problems
