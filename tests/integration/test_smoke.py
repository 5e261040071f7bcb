"""The smoke contract against the stand-in engine: by itself, and at the end of an apply."""

from __future__ import annotations

from typing import Any

import pytest

from beamdeploy.smoke import CHECKS
from tests.integration.command import Job, Ran, beamdeploy, container_id
from tests.lab import LabHost


def verdicts(ran: Ran, host: str, key: str = "checks") -> dict[str, str]:
    checks: list[dict[str, Any]] = ran.host(host)[key]
    return {check["check"]: check["verdict"] for check in checks}


def env(fault: str) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "STANDIN_FAULT": fault}


def test_a_right_server_passes_by_recipe_and_by_name_and_is_left_as_it_was(
    job: Job, clean_host: LabHost, name: str
) -> None:
    assert job.run("apply").exit == 0
    made = container_id(clean_host)
    for target in (job.recipe, "beam"):
        ran = beamdeploy("smoke", target, "-i", job.inventory, "-o", "json")
        assert (ran.exit, ran.host(name)["outcome"]) == (0, "ok"), ran.out
        assert verdicts(ran, name) == {**dict.fromkeys(CHECKS, "pass"), "acceptance": "skip"}
    assert container_id(clean_host) == made
    assert job.run("apply").host(name)["outcome"] == "unchanged"


def test_only_what_is_named_is_checked_and_a_wrong_name_is_bad_input(job: Job, name: str) -> None:
    assert job.run("apply").exit == 0
    assert verdicts(job.run("smoke", "--only", "stream,models"), name) == {"models": "pass", "stream": "pass"}
    wrong = job.run("smoke", "--only", "strem")
    assert (wrong.exit, "strem" in wrong.problems) == (2, True)


@pytest.mark.parametrize(
    ("fault", "failing"),
    [("no-tool-calls", {"tools"}), ("no-reasoning", {"reasoning", "turns"})],
)
def test_a_fault_is_found_by_its_check(job: Job, name: str, fault: str, failing: set[str]) -> None:
    job.write({"container.env": env(fault)})
    assert job.run("apply").exit == 0
    ran = job.run("smoke")
    assert ran.exit == 6
    assert {check for check, verdict in verdicts(ran, name).items() if verdict == "fail"} <= failing
    assert "fail" in verdicts(ran, name).values()


def test_an_apply_makes_the_checks_of_the_recipe(job: Job, name: str) -> None:
    job.write({"smoke": {"checks": ["stream", "tools"]}})
    done = job.run("apply")
    assert (done.exit, verdicts(done, name, "smoke")) == (0, {"stream": "pass", "tools": "pass"}), done.err
    job.write({"smoke": {"checks": ["all"]}})
    again = job.run("plan", "--exit-code")
    assert (again.exit, again.host(name)["plan"]["changes"]) == (0, [])


def test_a_failing_check_after_a_replacement_brings_the_old_server_back(
    job: Job, clean_host: LabHost, name: str
) -> None:
    assert job.run("apply").exit == 0
    before = container_id(clean_host)
    job.write({"smoke": {"checks": ["all"]}, "container.env": env("no-tool-calls")})
    done = job.run("apply")
    assert (done.exit, done.host(name)["outcome"]) == (6, "not ready")
    assert "the call came as text" in done.problems and "was started again and answers" in done.problems
    assert container_id(clean_host) == before
    assert beamdeploy("smoke", "beam", "-i", job.inventory, "-o", "json").exit == 0


def test_the_drafters_acceptance_is_read_where_the_engine_shows_it(job: Job, name: str) -> None:
    job.write({"engine.args": {"enable-metrics": True}})
    assert job.run("apply").exit == 0
    ran = job.run("smoke", "--only", "acceptance")
    assert verdicts(ran, name) == {"acceptance": "pass"}
    assert "(67%)" in ran.host(name)["checks"][0]["why"]
