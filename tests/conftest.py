"""On a laptop what is missing is named and skipped; in CI nothing may be skipped."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.lab.fixtures import clean_host, clean_hosts, job, lab, name

__all__ = ["clean_host", "clean_hosts", "job", "lab", "name"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skipped test fails when CI is set. An expected failure (xfail) is no skip."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: not run, and in CI that is a failure. {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself as a whole fails too."""
    report = yield
    if os.environ.get("CI") and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid}: not collected, and in CI that is a failure. {report.longrepr}"
    return report
