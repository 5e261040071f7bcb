"""On a laptop what is missing is named and skipped; in CI nothing may be skipped."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator

import pytest

from tests.lab.fixtures import clean_host, clean_hosts, job, lab, name

__all__ = ["clean_host", "clean_hosts", "job", "lab", "name"]


@pytest.fixture(scope="session", autouse=True)
def fresh_cache() -> Iterator[None]:
    """What earlier runs kept, which other code wrote, is not believed. A short path: sockets lie there."""
    with tempfile.TemporaryDirectory(prefix="bd-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        yield


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
