"""The forms of a report for machines: SARIF, JUnit, GitHub's annotations, and a line a problem."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamdeploy import __version__
from beamdeploy.errors import Problem
from beamdeploy.outcome import HostReport, Report
from beamdeploy.report import as_github, as_junit, as_line, as_sarif

SARIF = json.loads((Path(__file__).parent / "data" / "sarif" / "sarif-2.1.0-rtm.5.json").read_bytes())
PORT = Problem("port 70000 is too large", "Give one below 65536.", "", "r/a b.yaml", 7, 14, "BD036", "error")
OLD = Problem("the driver is old", where="gpu-a: look", level="warning")
DIGEST = Problem("no digest", "Lock it.", "", "r/a b.yaml", 3, 2, "BD420", "info")
GONE = Problem("there is no such file", file="/x/ü.yaml", rule="BD001")
REPORT = Report("Validate", 2, (), (PORT, OLD, DIGEST, GONE), {"files": ["r/a b.yaml", "/x/ü.yaml", "good.yaml"]})

problems = st.builds(
    Problem,
    st.text(min_size=1),
    st.text(),
    st.text(),
    st.none() | st.text(),
    st.none() | st.integers(1, 10**9),
    st.none() | st.integers(1, 10**9),
    st.sampled_from(["", "BD001", "BD301"]),
    st.sampled_from(["error", "warning", "info"]),
)
reports = st.builds(lambda found: Report("Validate", 2, problems=tuple(found)), st.lists(problems, max_size=4))


def test_a_line_a_problem_has_a_place_of_three_parts() -> None:
    assert as_line.dumps(REPORT) == (
        "r/a b.yaml:7:14: error BD036: port 70000 is too large\n"
        "gpu-a: look: warning: the driver is old\n"
        "r/a b.yaml:3:2: info BD420: no digest\n"
        "/x/ü.yaml:1:1: error BD001: there is no such file\n"
    )


@given(reports)
def test_lines_are_as_many_as_problems(report: Report) -> None:
    assert len(as_line.dumps(report).splitlines()) == len(report.problems)


def test_github_gets_an_annotation_a_problem() -> None:
    assert as_github.dumps(REPORT) == (
        "::error file=r/a b.yaml,line=7,col=14,title=BD036::port 70000 is too large%0AGive one below 65536.\n"
        "::warning title=gpu-a%3A look::the driver is old\n"
        "::notice file=r/a b.yaml,line=3,col=2,title=BD420::no digest%0ALock it.\n"
        "::error file=/x/ü.yaml,title=BD001::there is no such file\n"
    )


def test_github_reads_no_command_out_of_a_message() -> None:
    problem = Problem("50%\r\n::add-mask::x", file="a,b:c%.yaml", line=1, col=1, rule="BD301")
    assert as_github.dumps(Report("Validate", 2, problems=(problem,))) == (
        "::error file=a%2Cb%3Ac%25.yaml,line=1,col=1,title=BD301::50%25%0A::add-mask::x\n"
    )


def test_github_gets_no_file_of_standard_input() -> None:
    problem = Problem("no", file="-", line=1, col=1, rule="BD301")
    assert as_github.dumps(Report("Validate", 2, problems=(problem,))) == "::error title=BD301::no\n"


@given(reports)
def test_every_github_line_is_one_command(report: Report) -> None:
    lines = as_github.dumps(report).splitlines()
    assert [line.startswith(("::error ", "::warning ", "::notice ")) for line in lines] == [True] * len(report.problems)


def test_junit_has_a_suite_a_file_and_a_failure_an_error() -> None:
    root = ElementTree.fromstring(as_junit.dumps(REPORT))
    assert root.attrib == {"name": "beamdeploy validate", "tests": "5", "failures": "2", "errors": "0"}
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in root] == [
        ("r/a b.yaml", "2", "1"),
        ("/x/ü.yaml", "1", "1"),
        ("good.yaml", "1", "0"),
        ("gpu-a: look", "1", "0"),
    ]
    failure = root[0][0][0]
    assert (root[0][0].attrib, failure.attrib, failure.text) == (
        {"classname": "r/a b.yaml", "name": "BD036 at 7:14", "file": "r/a b.yaml", "line": "7"},
        {"type": "BD036", "message": "port 70000 is too large"},
        "r/a b.yaml:7:14: port 70000 is too large\nremedy: Give one below 65536.",
    )
    assert (root[0][1][0].tag, root[0][1][0].text) == (
        "system-out",
        "info: r/a b.yaml:3:2: no digest\nremedy: Lock it.",
    )
    assert root[2][0].attrib == {"classname": "good.yaml", "name": "is valid"}


@given(reports)
def test_junit_is_xml_whatever_a_problem_says(report: Report) -> None:
    assert ElementTree.fromstring(as_junit.dumps(report)).tag == "testsuites"


def test_sarif_names_tool_rules_and_places() -> None:
    assert as_sarif.document(REPORT, {"BD036": "Too large"}) == {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "beamdeploy",
                        "version": __version__,
                        "rules": [
                            {
                                "id": "BD036",
                                "shortDescription": {"text": "Too large"},
                                "help": {"text": "beamdeploy explain BD036"},
                            },
                            {"id": "BD420", "help": {"text": "beamdeploy explain BD420"}},
                            {"id": "BD001", "help": {"text": "beamdeploy explain BD001"}},
                        ],
                    }
                },
                "invocations": [{"executionSuccessful": True, "exitCode": 2}],
                "columnKind": "unicodeCodePoints",
                "results": [
                    {
                        "ruleId": "BD036",
                        "ruleIndex": 0,
                        "level": "error",
                        "message": {"text": "port 70000 is too large\nGive one below 65536."},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": "r/a%20b.yaml"},
                                    "region": {"startLine": 7, "startColumn": 14},
                                }
                            }
                        ],
                    },
                    {
                        "level": "warning",
                        "message": {"text": "the driver is old"},
                        "locations": [{"logicalLocations": [{"fullyQualifiedName": "gpu-a: look"}]}],
                    },
                    {
                        "ruleId": "BD420",
                        "ruleIndex": 1,
                        "level": "note",
                        "message": {"text": "no digest\nLock it."},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": "r/a%20b.yaml"},
                                    "region": {"startLine": 3, "startColumn": 2},
                                }
                            }
                        ],
                    },
                    {
                        "ruleId": "BD001",
                        "ruleIndex": 2,
                        "level": "error",
                        "message": {"text": "there is no such file"},
                        "locations": [
                            {"physicalLocation": {"artifactLocation": {"uri": "file:///x/%C3%BC.yaml"}}},
                        ],
                    },
                ],
            }
        ],
    }


@settings(deadline=None)
@given(reports)
def test_sarif_is_valid_whatever_a_problem_says(report: Report) -> None:
    # the schema itself is checked once, below
    jsonschema.Draft4Validator(SARIF).validate(json.loads(as_sarif.dumps(report)))


@pytest.mark.parametrize(
    "report", [REPORT, Report("Validate", 0), Report("Apply", 3, (HostReport("a", "blocked", 3),))]
)
def test_sarif_is_valid_under_the_published_schema(report: Report) -> None:
    jsonschema.Draft4Validator.check_schema(SARIF)
    jsonschema.validate(json.loads(as_sarif.dumps(report)), SARIF, cls=jsonschema.Draft4Validator)


@given(reports)
def test_no_form_has_a_control_character(report: Report) -> None:
    texts = [form.dumps(report) for form in (as_line, as_github, as_junit, as_sarif)]
    assert [{c for c in text if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160} for text in texts] == [
        set()
    ] * 4
