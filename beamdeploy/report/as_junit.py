"""A report as JUnit XML: a suite a file, in it a failed case an error, and one passed case when there is none.

GitLab, Jenkins and others read this form; they show the message of a failed case. Warnings and infos pass, with their
words as the case's output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any
from xml.etree import ElementTree

from beamdeploy.errors import Problem
from beamdeploy.outcome import HostReport, Report
from beamdeploy.report.text import clean, clean_line

_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def dumps(report: Report) -> str:
    """The document as text that ends in a newline; ASCII only."""
    checked = [suite for host in report.hosts if "checks" in host.details for suite in [_checked(host)]]
    suites = [*checked, *(_suite(name, problems) for name, problems in _by_file(report).items())]
    root = ElementTree.Element("testsuites", {"name": f"beamdeploy {report.kind.lower()}", **_sums(suites)})
    root.extend(suites)
    ElementTree.indent(root)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    body: bytes = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=False)
    return head + body.decode("ascii") + "\n"


def _checked(host: HostReport) -> ElementTree.Element:
    """The checks that a host was put to: a case each, a failed one a failure, one that does not fit skipped."""
    checks: Any = host.details["checks"]
    verdicts = [check["verdict"] for check in checks]
    counts = {"tests": len(checks), "failures": verdicts.count("fail"), "errors": 0, "skipped": verdicts.count("skip")}
    attributes = {"name": _line(host.name), **{name: str(count) for name, count in counts.items()}}
    suite = ElementTree.Element("testsuite", attributes)
    for check in checks:
        names = {"classname": _line(host.name), "name": _line(check["check"]), "time": str(check["seconds"])}
        case = ElementTree.SubElement(suite, "testcase", names)
        if check["verdict"] != "pass":
            tag = "failure" if check["verdict"] == "fail" else "skipped"
            ElementTree.SubElement(case, tag, {"message": _line(check["why"])})
        shown = [f"> {each['request']}\n< {each['answer']}" for each in check["evidence"]]
        ElementTree.SubElement(case, "system-out").text = _text("\n".join((check["why"], *shown)))
    return suite


def _by_file(report: Report) -> dict[str, list[Problem]]:
    """The problems of every file that was looked at, also of those without any; those of checks are cases already."""
    files = report.details.get("files")
    grouped: dict[str, list[Problem]] = {str(file): [] for file in files} if isinstance(files, Iterable) else {}
    unchecked = [host.problems for host in report.hosts if "checks" not in host.details]
    for problem in (*report.problems, *chain.from_iterable(unchecked)):
        grouped.setdefault(problem.file or problem.where or report.kind, []).append(problem)
    return grouped


def _suite(name: str, problems: Sequence[Problem]) -> ElementTree.Element:
    failed = sum(problem.level == "error" for problem in problems)
    counts = {"tests": str(len(problems) or 1), "failures": str(failed), "errors": "0", "skipped": "0"}
    suite = ElementTree.Element("testsuite", {"name": _line(name), **counts})
    if not problems:
        ElementTree.SubElement(suite, "testcase", {"classname": _line(name), "name": "is valid"})
    suite.extend(_case(name, problem) for problem in problems)
    return suite


def _case(name: str, problem: Problem) -> ElementTree.Element:
    place = "".join(f":{part}" for part in (problem.line, problem.col) if part is not None)
    said = f"{problem.rule or problem.level} at {place[1:]}" if place else problem.rule or problem.level
    attributes = {"classname": _line(name), "name": said, "file": _line(problem.file or ""), "line": str(problem.line)}
    case = ElementTree.Element(
        "testcase", {key: value for key, value in attributes.items() if value not in ("", "None")}
    )
    text = _text(f"{problem.place}: {problem.what}" + (f"\nremedy: {problem.remedy}" if problem.remedy else ""))
    if problem.level == "error":
        failure = ElementTree.SubElement(case, "failure", {"type": problem.rule, "message": _line(problem.what)})
        failure.text = text
    else:
        ElementTree.SubElement(case, "system-out").text = f"{problem.level}: {text}"
    return case


def _sums(suites: Sequence[ElementTree.Element]) -> dict[str, str]:
    return {name: str(sum(int(suite.attrib[name]) for suite in suites)) for name in ("tests", "failures", "errors")}


def _line(text: str) -> str:
    return _NOT_XML.sub("", clean_line(text))


def _text(text: str) -> str:
    return _NOT_XML.sub("", clean(text))
