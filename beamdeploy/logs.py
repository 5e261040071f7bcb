"""The log of a deployment, line by line, from one host or many."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from beamdeploy import errors
from beamdeploy.errors import FAILED, HostError, Problem
from beamdeploy.fleet import each
from beamdeploy.inventory import Host
from beamdeploy.label import NAME
from beamdeploy.outcome import HostReport, Report
from beamdeploy.remote import Session, open_session
from beamdeploy.run import told
from beamdeploy.steps import is_there

_LONGEST = 30 * 24 * 3600
"""Seconds that a log may be followed."""


def logs(
    hosts: Iterable[Host],
    name: str,
    line: Callable[[str, str], None],
    *,
    tail: int | None,
    follow: bool,
    accept_new: bool,
) -> Report:
    """Hand over every line as (host, text). The report says on which hosts there was no log."""
    by_name = {host.name: host for host in hosts}

    def work(host: str) -> tuple[Problem, ...]:
        with open_session(by_name[host], accept_new=accept_new) as session:
            _show(session, by_name[host], name, lambda text: line(host, text), tail=tail, follow=follow)
            return told(session)

    results = each(by_name, work)
    reports = tuple(_report(host, result) for host, result in results.items())
    return Report("Logs", errors.worst(report.exit for report in reports), reports)


def _show(
    session: Session, host: Host, name: str, line: Callable[[str], None], *, tail: int | None, follow: bool
) -> None:
    container = is_there(session, host, f"name=^/{name}$", f"label={NAME}={name}")
    if container is None:
        raise HostError(
            Problem(f"there is no deployment named {name}", "beamdeploy status shows what runs.", host.name)
        )
    wanted = (*(("--tail", str(tail)) if tail is not None else ()), *(("--follow",) if follow else ()))
    session.follow((*host.docker_words, "logs", *wanted, container), line, timeout=_LONGEST if follow else 600)


def _report(host: str, result: HostError | tuple[Problem, ...]) -> HostReport:
    if isinstance(result, tuple):
        return HostReport(host, "shown", errors.DONE, problems=result)
    return HostReport(host, "failed", result.exit or FAILED, result.problems[0].what, problems=result.problems)
