"""One model on two hosts of the lab, whose ranks really meet over TCP: each engine, each effect twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chaos.faults import until
from tests.integration.command import Job, Ran, container_id
from tests.integration.test_reconnect import read_on
from tests.integration.test_safe_change import started, wait_for_phase
from tests.lab import Lab, LabHost

RECIPES = Path(__file__).parents[2] / "recipes"
BEAM: Mapping[str, Any] = yaml.safe_load((RECIPES / "beam-nvfp4-tokenspeed-4xb300.yaml").read_text("utf-8"))
ENGINES = {
    "tokenspeed": "beam-nvfp4-tokenspeed-4xb300",
    "vllm": "beam-nvfp4-vllm-4xb200",
    "sglang": "beam-nvfp4-sglang-4xb300",
}


@pytest.fixture
def hosts(clean_hosts: tuple[LabHost, ...]) -> tuple[LabHost, ...]:
    return clean_hosts[:2]


def job_of(engine: str, lab: Lab, hosts: tuple[LabHost, ...], folder: Path) -> Job:
    job = Job(lab, hosts, folder)
    job.write_inventory(rank_interface="eth0")
    write(job, engine)
    return job


def write(job: Job, engine: str, **engine_settings: Any) -> None:
    """The engine's shipped recipe, on two nodes of four GPUs."""
    recipe = yaml.safe_load((RECIPES / f"{ENGINES[engine]}.yaml").read_text(encoding="utf-8"))
    env = engine_settings.pop("env", {})
    recipe["hardware"] = dict(BEAM["hardware"])
    recipe["image"] = {"reference": job.lab.image("beam")}
    recipe["engine"] |= {"nodes": 2, "tensor_parallel": 8, **engine_settings}
    recipe["container"] |= {"shm_size": "1g", "network": "host", "env": {**recipe["container"]["env"], **env}}
    recipe.pop("variants", None)
    Path(job.recipe).write_text(yaml.safe_dump(recipe), encoding="utf-8")


def shorten(job: Job, section: str, **limits: str) -> None:
    recipe = yaml.safe_load(Path(job.recipe).read_text(encoding="utf-8"))
    Path(job.recipe).write_text(yaml.safe_dump({**recipe, section: limits}), encoding="utf-8")


def outcomes(ran: Ran) -> list[str]:
    return [host["outcome"] for host in ran.report["hosts"].values()]


def ids(hosts: tuple[LabHost, ...], name: str = "beam") -> list[str]:
    return [container_id(host, name) for host in hosts]


@pytest.mark.parametrize("engine", ENGINES)
def test_two_nodes_are_one_server(engine: str, lab: Lab, hosts: tuple[LabHost, ...], tmp_path: Path) -> None:
    job = job_of(engine, lab, hosts, tmp_path)
    first = job.run("apply")
    assert (first.exit, outcomes(first)) == (0, ["changed", "changed"]), first.out
    assert first.host(hosts[0].name)["completion"]["text"] and first.host(hosts[1].name)["completion"] is None
    made = ids(hosts)
    for _ in range(2):
        assert outcomes(job.run("apply")) == ["unchanged", "unchanged"]
        status = job.run("status")
        assert (status.exit, outcomes(status)) == (0, ["ready", "follows"]), status.out

    for seqs in (4, 2):  # a change replaces both
        write(job, engine, max_num_seqs=seqs)
        assert job.run("plan", "--exit-code").exit == 10
        changed = job.run("apply")
        assert (changed.exit, outcomes(changed)) == (0, ["changed", "changed"]), changed.out
        assert not set(ids(hosts)) & {"", *made} and ids(hosts, "beam.previous") == ["", ""]
        made = ids(hosts)

    for _ in range(2):  # one rank that fails stops and restores all
        write(job, engine, max_num_seqs=8, env={"STANDIN_FAULT": "cuda-oom", "STANDIN_FAULT_RANK": "1"})
        broken = job.run("apply")
        assert (broken.exit, outcomes(broken)) == (1, ["failed", "failed"]), broken.out
        assert "CUDA out of memory" in broken.problems or "out of GPU memory" in broken.problems
        assert "was started again and answers" in broken.problems
        assert (ids(hosts), ids(hosts, "beam.previous")) == (made, ["", ""])
        write(job, engine, max_num_seqs=2)
        assert outcomes(job.run("apply")) == ["unchanged", "unchanged"]

    gone = [job.run("destroy", "-y") for _ in range(2)]
    assert [outcomes(each) for each in gone] == [["changed"] * 2, ["unchanged"] * 2], gone[0].out
    assert ids(hosts) == ["", ""]


def test_ranks_are_rolled_back_together_and_destroyed_whole(
    lab: Lab, hosts: tuple[LabHost, ...], tmp_path: Path
) -> None:
    job = job_of("tokenspeed", lab, hosts, tmp_path)
    for seqs in (8, 4):
        write(job, "tokenspeed", max_num_seqs=seqs)
        assert job.run("apply").exit == 0
    assert job.run("drift").exit == 0
    for _ in range(2):
        back = job.run("rollback", "-y")
        assert (back.exit, outcomes(back)) == (0, ["changed", "changed"]), back.out
    hosts[1].docker("kill", "beam")  # the head dies of it; both are started again
    done = job.run("apply")
    assert (done.exit, outcomes(done)) == (0, ["changed", "changed"]), done.out
    for _ in range(2):
        part = job.run("destroy", "-y", "-l", hosts[1].name)
        assert (part.exit, outcomes(part)) == (3, ["blocked"]), part.out
    assert job.run("status").exit == 0


def test_links_that_are_cut_while_the_ranks_load_are_taken_up_again(
    lab: Lab, hosts: tuple[LabHost, ...], tmp_path: Path
) -> None:
    job = job_of("tokenspeed", lab, hosts, tmp_path)
    write(job, "tokenspeed", env={"STANDIN_LOAD_SECONDS": "25"})
    run = started(job, "apply")
    wait_for_phase(run, "loading")
    until(lambda: "" not in ids(hosts))
    made = ids(hosts)
    for host in hosts:
        host.drop()
    said = read_on(run, "connected: again") + read_on(run, "connected: again")
    assert all(f"{host.name}: connected" in said for host in hosts), said
    busy = job.run("destroy", "-y")
    assert (busy.exit, "another run works on beam" in busy.problems) == (5, True), busy.out
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert ids(hosts) == made
    assert outcomes(job.run("apply")) == ["unchanged", "unchanged"]


@pytest.mark.parametrize("lost", [0, 1])
def test_ranks_go_on_when_one_of_their_hosts_does_not_come_back(
    lost: int, lab: Lab, hosts: tuple[LabHost, ...], tmp_path: Path
) -> None:
    job = job_of("tokenspeed", lab, hosts, tmp_path)
    write(job, "tokenspeed", env={"STANDIN_LOAD_SECONDS": "15"})
    shorten(job, "ready", timeout="20s", stall="19s")
    run = started(job, "apply")
    wait_for_phase(run, "loading")
    until(lambda: "" not in ids(hosts))
    made = ids(hosts)
    hosts[lost].shut()
    try:
        out, err = run.communicate(timeout=120)
    finally:
        hosts[lost].reopen()
    assert run.returncode == 1, out + err
    assert "it does not come back" in out and "the state of this host is unknown" in out
    assert ids(hosts) == made
    done = job.run("apply", "--lock-wait", "60")
    assert (done.exit, ids(hosts)) == (0, made), done.out
