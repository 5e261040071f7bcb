"""Secrets reach the process and are seen nowhere else; a rotated one is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forked import beamdeploy
from tests.integration.command import Job, Ran, container_id, environment
from tests.lab import Lab, LabHost

FIRST, SECOND, THERE = "tok-first-5f1c", "tok-second-77aa", "key-on-host-9e2d"


@pytest.fixture
def job(lab: Lab, clean_host: LabHost, tmp_path: Path) -> Job:
    made = Job(lab, (clean_host,), tmp_path)
    made.write({"container.secrets": {"HF_TOKEN": {"env": "LAB_TOKEN"}, "API_KEY": {"host_file": "/root/api-key"}}})
    made.write_inventory()
    (clean_host.folder / "root" / "api-key").write_text(THERE + "\n")
    return made


def run(job: Job, command: str, token: str | None, *words: str) -> Ran:
    env = {**environment(), **({"LAB_TOKEN": token} if token else {})}
    done = beamdeploy(command, job.recipe, "-i", job.inventory, "-o", "json", *words, env=env)
    for secret in (FIRST, SECOND, THERE):
        assert secret not in done.stdout + done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def test_a_secret_reaches_the_process_and_a_rotated_one_replaces_it(job: Job, clean_host: LabHost) -> None:
    name = clean_host.name
    first = run(job, "apply", FIRST)
    assert first.exit == 0, first.out
    inside = clean_host.docker("exec", "beam", "env")
    assert f"HF_TOKEN={FIRST}" in inside and f"API_KEY={THERE}" in inside
    assert run(job, "apply", FIRST).host(name)["outcome"] == "unchanged"

    for token, drifted in ((FIRST, False), (SECOND, True)):
        assert run(job, "status", token).host(name)["deployments"][0]["drifted"] is drifted
    # what needs no secret goes on without it, and says what it could not tell
    untold = run(job, "status", None)
    assert (untold.exit, untold.host(name)["deployments"][0]["drifted"]) == (0, False)
    assert "whether the secrets of beam have changed cannot be told" in untold.problems
    assert [run(job, command, None).exit for command in ("render", "doctor", "verify")] == [0, 0, 0]
    looked = run(job, "preflight", None)
    assert (looked.exit, looked.host(name)["outcome"], "LAB_TOKEN" in looked.problems) == (2, "ok", True)

    before = container_id(clean_host)
    plan = run(job, "plan", SECOND, "--exit-code")
    assert plan.exit == 10
    assert [change["path"] for change in plan.host(name)["plan"]["changes"]] == ["container.secrets"]
    assert run(job, "apply", SECOND).host(name)["outcome"] == "changed"
    assert container_id(clean_host) != before
    assert f"HF_TOKEN={SECOND}" in clean_host.docker("exec", "beam", "env")
    assert run(job, "apply", SECOND).host(name)["outcome"] == "unchanged"

    (clean_host.folder / "root" / "api-key").write_text("another\n")
    assert run(job, "plan", SECOND, "--exit-code").exit == 10


def test_no_secret_is_in_a_label_the_history_or_a_file_that_others_read(job: Job, clean_host: LabHost) -> None:
    assert run(job, "apply", FIRST).exit == 0
    labels = clean_host.docker("inspect", "--format", "{{json .Config.Labels}} {{json .Args}}", "beam")
    state = "/root/.local/state/beamdeploy/beam"
    history = clean_host.run("cat", f"{state}/history.jsonl")
    for secret in (FIRST, THERE):
        assert secret not in labels + history
    assert clean_host.run("stat", "-c", "%a", f"{state}/secrets.env").strip() == "600"
    job.write()
    assert run(job, "apply", None).exit == 0
    assert "secrets" not in clean_host.run("ls", state)
    assert run(job, "rollback", FIRST, "1").exit == 0
    assert "secrets.env" in clean_host.run("ls", state)
    assert run(job, "destroy", None, "-y").exit == 0
    assert "secrets" not in clean_host.run("ls", state)


def test_a_missing_secret_is_said_before_any_host_is_asked(job: Job, clean_host: LabHost) -> None:
    missing = run(job, "apply", None)
    assert missing.exit == 2
    assert "LAB_TOKEN" in missing.problems
    (clean_host.folder / "root" / "api-key").unlink()
    refused = run(job, "apply", FIRST)
    assert refused.exit == 1 and "/root/api-key cannot be read" in refused.problems
    assert container_id(clean_host) == ""
