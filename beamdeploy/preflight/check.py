"""One thing that was looked at before a deployment: what was seen, whether it stands in the way, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from beamdeploy.errors import Problem

LEVELS = {"block": "error", "warn": "warning", "ok": "info"}


@dataclass(frozen=True)
class Check:
    """`subject`: what was looked at; `verdict`: ok, warn or block. An ok with a remedy is worth a word all the same."""

    subject: str
    saw: str
    verdict: str = "ok"
    remedy: str = ""
    rule: str = ""

    @property
    def problem(self) -> Problem:
        """The same as a problem; of an ok it is a note."""
        return Problem(self.saw, self.remedy, self.subject, rule=self.rule, level=LEVELS[self.verdict])


def told(problem: Problem, subject: str) -> Check:
    """A problem that was found elsewhere, as a check."""
    verdict = next(verdict for verdict, level in LEVELS.items() if level == problem.level)
    return Check(problem.where or subject, problem.what, verdict, problem.remedy, problem.rule)
