"""A short piece of the fault campaign; `python -m tests.chaos` runs all of it."""

from __future__ import annotations

import pytest

from beamdeploy import steps
from tests import lab as labs
from tests.chaos.__main__ import line, summary
from tests.chaos.campaign import BAD, DEEDS, GOOD, PAIRS, Seen, campaign, trials
from tests.chaos.faults import FAULTS

SECONDS = 25


def test_every_step_meets_every_fault_once_in_a_campaign() -> None:
    planned = trials(1, len(PAIRS))
    assert {(trial.step, trial.fault, trial.good) for trial in planned} == set(PAIRS)
    assert len(PAIRS) == (len(GOOD) + len(BAD)) * len(FAULTS)
    assert trials(1, 20) == trials(1, 20) != trials(2, 20)


def test_the_campaign_knows_every_kind_of_step() -> None:
    assert sorted(DEEDS) == sorted(steps.DEEDS)


def test_faults_in_the_middle_of_a_change_leave_a_host_that_serves() -> None:
    if missing := labs.missing():
        pytest.skip(f"the lab needs {', '.join(missing)} (scripts/install-test-tools, as root)")
    lines: list[str] = []

    def told(seen: Seen) -> None:
        lines.append(line(seen))

    seen = campaign(trials(2611, len(PAIRS)), told, SECONDS)
    assert seen and not any(each.violations for each in seen), "\n".join([*lines, summary(seen)])
