"""A report as SARIF 2.1.0 (OASIS, errata 01), which code scanning of GitHub and others reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from urllib.parse import quote

from beamdeploy import __version__
from beamdeploy.errors import Problem
from beamdeploy.outcome import Report
from beamdeploy.report.text import clean

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def document(report: Report, titles: Mapping[str, str] | None = None) -> dict[str, object]:
    """The log. `titles`: what the rules say, by their id; rules without a title are named only."""
    problems = report.all_problems
    rules = list(dict.fromkeys(problem.rule for problem in problems if problem.rule))
    driver = {"name": "beamdeploy", "version": __version__, "rules": [_rule(rule, titles or {}) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": report.exit in (0, 2), "exitCode": report.exit}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, rules) for problem in problems],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def dumps(report: Report) -> str:
    """The log as text that ends in a newline; ASCII only."""
    titles = report.details.get("titles")
    return json.dumps(document(report, titles if isinstance(titles, Mapping) else None), indent=2) + "\n"


def _rule(rule: str, titles: Mapping[str, str]) -> dict[str, object]:
    help = {"text": f"beamdeploy explain {rule}"}
    title = {"shortDescription": {"text": titles[rule]}} if titles.get(rule) else {}
    return {"id": rule, **title, "help": help}


def _result(problem: Problem, rules: Sequence[str]) -> dict[str, object]:
    rule = {"ruleId": problem.rule, "ruleIndex": rules.index(problem.rule)} if problem.rule else {}
    text = clean(problem.what) + (f"\n{clean(problem.remedy)}" if problem.remedy else "")
    return {
        **rule,
        "level": _LEVELS.get(problem.level, "none"),
        "message": {"text": text},
        "locations": [_location(problem)] if problem.file or problem.where else [],
    }


def _location(problem: Problem) -> dict[str, object]:
    if problem.file is None:
        return {"logicalLocations": [{"fullyQualifiedName": clean(problem.where)}]}
    place: dict[str, object] = {"artifactLocation": {"uri": _uri(problem.file)}}
    if problem.line:
        place["region"] = {"startLine": problem.line, "startColumn": problem.col or 1}
    return {"physicalLocation": place}


def _uri(file: str) -> str:
    """A relative path stays relative, which code scanning takes as below the repository's root."""
    path = PurePath(os.path.normpath(file)).as_posix() if file != "-" else "stdin"
    escaped = quote(os.fsencode(path), safe="/")
    return f"file://{escaped}" if path.startswith("/") else escaped
