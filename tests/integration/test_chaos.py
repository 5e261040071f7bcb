"""A short piece of the fault campaign; `python -m tests.chaos` runs all of it."""

from __future__ import annotations

import pytest

from tests import lab as labs
from tests.chaos.__main__ import line, summary
from tests.chaos.campaign import BAD, GOOD, Seen, campaign, trials
from tests.chaos.faults import FAULTS

SECONDS = 25


def test_every_step_meets_every_fault_once_in_a_campaign() -> None:
    planned = trials(1, (len(GOOD) + len(BAD)) * len(FAULTS))
    assert len({(trial.step, trial.fault, trial.good) for trial in planned}) == len(planned)
    assert trials(1, 20) == trials(1, 20) != trials(2, 20)


def test_faults_in_the_middle_of_a_change_leave_a_host_that_serves() -> None:
    if missing := labs.missing():
        pytest.skip(f"the lab needs {', '.join(missing)} (scripts/install-test-tools, as root)")
    lines: list[str] = []

    def told(seen: Seen) -> None:
        lines.append(line(seen))

    seen = campaign(2611, 105, told, SECONDS)
    assert seen and not any(each.violations for each in seen), "\n".join([*lines, summary(seen)])
