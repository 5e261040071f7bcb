"""Drift: what is not as the recipe says, and what another hand changed since the server was ready."""

from __future__ import annotations

import pytest

from tests.integration.command import Job, Ran, container_id
from tests.lab import LabHost


@pytest.fixture
def job(job: Job) -> Job:
    """The Beam recipe, served."""
    assert job.run("apply").exit == 0
    return job


def edits(ran: Ran, host: LabHost) -> list[str]:
    assert ran.host(host.name)["plan"]["steps"] == []
    return [edit["path"] for edit in ran.host(host.name)["plan"].get("edits", [])]


def test_hand_edits_are_drift_until_they_are_undone(job: Job, clean_host: LabHost) -> None:
    assert (job.run("drift").exit, job.run("plan", "--exit-code").exit) == (0, 0)
    clean_host.docker("update", "--cpu-shares", "512", "beam")
    for _ in range(2):
        done = job.run("drift")
        assert (done.exit, edits(done, clean_host)) == (10, ["docker.CpuShares"])
        assert done.host(clean_host.name)["outcome"] == "drifted"
    # apply cannot mend it and does not say that it would
    assert job.run("plan", "--exit-code").exit == 0
    assert "by another hand" in job.run("drift", output="text").out
    for pattern in ("docker.CpuShares", "docker.*"):
        assert job.run("drift", "--ignore", pattern).exit == 0
    assert job.run("drift", "--ignore", "docker.Memory").exit == 10
    clean_host.docker("update", "--cpu-shares", "0", "beam")


def test_a_restart_by_hand_and_other_weights_are_drift(job: Job, clean_host: LabHost) -> None:
    clean_host.docker("restart", "beam")
    assert job.run("apply").exit == 0
    done = job.run("drift")
    assert (done.exit, edits(done, clean_host)) == (10, ["docker.started_at"])
    (clean_host.models / "nvfp4" / "generation_config.json").write_text('{"temperature": 0.1}\n', encoding="utf-8")
    done = job.run("drift", "--ignore", "docker.started_at")
    [path] = edits(done, clean_host)
    assert done.exit == 10 and path.startswith("weights.")
    warnings = [each["what"] for each in job.run("status").report["problems"]]
    assert any("by another hand" in what and "weights." in what for what in warnings)


def test_settings_that_may_differ_are_ignored_with_the_steps_that_they_ask_for(job: Job, clean_host: LabHost) -> None:
    job.write({"engine.max_num_seqs": 4})
    assert job.run("drift").exit == 10
    assert job.run("drift", "--ignore", "engine.max_num_seqs").exit == 0
    clean_host.docker("rm", "--force", "beam")
    assert job.run("drift", "--ignore", "*").exit == 10


def test_a_plan_says_what_each_change_costs_by_this_hosts_own_history(job: Job, clean_host: LabHost) -> None:
    job.write({"engine.max_num_seqs": 4})
    plan = job.run("plan").host(clean_host.name)["plan"]
    assert list(plan["costs"]) == ["engine.max_num_seqs"]
    assert plan["costs"]["engine.max_num_seqs"].startswith("restart, about ")
    assert any("by this host's history" in step["cost"] for step in plan["steps"])


def test_the_words_of_the_command_are_shown_as_a_diff(job: Job, clean_host: LabHost) -> None:
    assert "diff" not in job.run("plan", "--diff").host(clean_host.name)
    job.write({"engine.max_num_seqs": 4})
    assert "diff" not in job.run("plan").host(clean_host.name)
    lines = job.run("plan", "--diff").host(clean_host.name)["diff"]
    assert lines[:2] == ["--- deployed", "+++ wanted"]
    changed = [line for line in lines[2:] if line[0] in "+-"]
    assert [line[0] for line in changed] == ["-", "+"] and changed[1].endswith("max-num-seqs 4")
    assert all(word not in "".join(lines) for word in ("beamdeploy.", "--label"))
    shown = job.run("apply", "--check", "-D", output="text").out
    assert "+ --max-num-seqs 4" in shown and "@@" not in shown and "wanted" not in shown


def test_a_failed_server_is_kept_when_that_is_asked_for_and_goes_with_destroy(job: Job, clean_host: LabHost) -> None:
    before = container_id(clean_host)
    for _ in range(2):
        job.write({"container.env": {"STANDIN_FAULT": "crash-at-start"}})
        assert job.run("apply", "--keep-failed").exit == 1
        assert container_id(clean_host) == before
        assert container_id(clean_host, "beam.failed") != ""
        assert clean_host.docker("inspect", "--format", "{{.State.Running}}", "beam.failed").strip() == "false"
        job.write()
        assert job.run("apply").host(clean_host.name)["outcome"] == "unchanged"
        assert job.run("status").exit == 0
    assert job.run("destroy", "-y").exit == 0
    assert container_id(clean_host, "beam.failed") == ""
