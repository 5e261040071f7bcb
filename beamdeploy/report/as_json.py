"""A report as the one JSON object of `-o json`; `schemas/report.schema.json` describes it."""

from __future__ import annotations

import json

from beamdeploy.errors import Problem
from beamdeploy.outcome import HostReport, Report


def document(report: Report) -> dict[str, object]:
    """The object: what every report has, and beside it what this command adds."""
    return {
        **report.details,
        "apiVersion": "beamdeploy/v1",
        "kind": f"{report.kind}Report",
        "exit": report.exit,
        "hosts": {host.name: _host(host) for host in report.hosts},
        "problems": [
            *(_problem(problem) for problem in report.problems),
            *(_problem(_placed(problem, host)) for host in report.hosts for problem in host.problems),
        ],
    }


def dumps(report: Report) -> str:
    """The object as text that ends in a newline. ASCII only: it survives every terminal and pipe as it is."""
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"


def _host(host: HostReport) -> dict[str, object]:
    return {**host.details, "outcome": host.outcome, "exit": host.exit, "summary": host.summary}


def _placed(problem: Problem, host: HostReport) -> Problem:
    return problem if problem.where else problem.at(host.name)


def _problem(problem: Problem) -> dict[str, object]:
    return {
        "file": problem.file,
        "line": problem.line,
        "col": problem.col,
        "where": problem.where,
        "rule": problem.rule,
        "level": problem.level,
        "what": problem.what,
        "remedy": problem.remedy,
    }
