"""A report that is made again and again, where there is no terminal."""

from __future__ import annotations

import io
import json

from beamdeploy.errors import Problem
from beamdeploy.outcome import HostReport, Report
from beamdeploy.report.live import LiveTable

REPORT = Report("Status", 6, (HostReport("a\x1b[2J", "not ready", 6, "load\ning", problems=(Problem("wrong\x07"),)),))


def test_each_look_is_plain_lines_with_its_time() -> None:
    out = io.StringIO()
    with LiveTable("text", out) as shown:
        shown.show(REPORT, "T1")
        shown.show(REPORT, "T2")
    lines = ["a  not ready (6)  load ing", "error: wrong"]
    assert out.getvalue().splitlines() == [f"{at}  {line}" for at in ("T1", "T2") for line in lines]


def test_json_is_an_object_a_line() -> None:
    out = io.StringIO()
    with LiveTable("json", out) as shown:
        shown.show(REPORT, "T1")
    (line,) = out.getvalue().splitlines()
    assert (json.loads(line)["at"], json.loads(line)["kind"]) == ("T1", "StatusReport")
