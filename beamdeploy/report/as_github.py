"""A report as GitHub Actions' workflow commands: each problem becomes an annotation at its line.

Source of form and escapes: docs.github.com, "Workflow commands for GitHub Actions", and actions/toolkit's command.ts.
"""

from __future__ import annotations

from beamdeploy.errors import Problem
from beamdeploy.outcome import Report
from beamdeploy.report.text import clean, clean_line

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def dumps(report: Report) -> str:
    """The commands of all problems; empty when there is none."""
    return "".join(_command(problem) for problem in report.all_problems)


def _command(problem: Problem) -> str:
    title = problem.rule or problem.where or "beamdeploy"
    place = {"file": problem.file, "line": problem.line, "col": problem.col} if problem.file not in (None, "-") else {}
    properties = {**place, "title": title}
    said = ",".join(f"{name}={_property(clean_line(str(value)))}" for name, value in properties.items() if value)
    text = clean(problem.what) + (f"\n{clean(problem.remedy)}" if problem.remedy else "")
    return f"::{_COMMANDS.get(problem.level, 'notice')} {said}::{_data(text)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
