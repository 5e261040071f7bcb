"""A report as one line a problem, `file:line:col: error BD031: what`, as editors and grep want it."""

from __future__ import annotations

from beamdeploy.errors import Problem
from beamdeploy.outcome import Report
from beamdeploy.report.text import clean_line


def dumps(report: Report) -> str:
    """The lines of all problems; empty when there is none."""
    return "".join(_line(problem) for problem in report.all_problems)


def _line(problem: Problem) -> str:
    place = problem.where or "-"
    if problem.file is not None:
        # a place of three parts always: editors read no other
        place = f"{problem.file}:{problem.line or 1}:{problem.col or 1}"
    label = f"{problem.level} {problem.rule}".strip()
    return f"{clean_line(place)}: {label}: {clean_line(problem.what)}\n"
