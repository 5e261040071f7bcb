"""The smoke contract asked of the servers on many hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from beamdeploy import errors
from beamdeploy.errors import HostError, Problem
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.inventory import Host
from beamdeploy.outcome import HostReport, Report
from beamdeploy.recipe import Recipe
from beamdeploy.remote import open_session
from beamdeploy.remote.gates import Gates
from beamdeploy.run import SayHost, told
from beamdeploy.served import served
from beamdeploy.smoke import Outcome, failures, smoke, summary

Asked = tuple[tuple[Outcome, ...], tuple[Problem, ...]]
"""What came of the checks on a host, and what its session had to tell."""


def ask_all(
    hosts: Iterable[Host],
    target: Recipe | str,
    names: Iterable[str],
    say: SayHost,
    *,
    accept_new: bool,
    forks: Forks = AS_USUAL,
) -> Report:
    """The checks of these names on every host, of what a recipe says or of the deployment of a name."""
    by_name, names = {host.name: host for host in hosts}, tuple(names)
    gates = Gates(forks.through_a_bastion)

    def work(host: str) -> Asked:
        say(host, "connect", by_name[host].address or "")
        with open_session(by_name[host], accept_new=accept_new, gates=gates) as session:
            asked = served(session, target)
            outcomes = smoke(asked.way(session), asked, names, lambda phase, detail: say(host, phase, detail))
            return outcomes, told(session)

    results = each(by_name, work, at_once=forks.hosts)
    reports = tuple(_report(host, results[host]) for host in by_name)
    return Report("Smoke", errors.worst(report.exit for report in reports), reports)


def _report(host: str, result: Asked | HostError) -> HostReport:
    if isinstance(result, HostError):
        outcome = "unreachable" if result.exit == errors.UNREACHABLE else "failed"
        return HostReport(host, outcome, result.exit, result.problems[0].what.splitlines()[0], problems=result.problems)
    outcomes, notes = result
    wrong = failures(outcomes, host)
    details = {"checks": [asdict(each) for each in outcomes]}
    outcome, exit_code = ("not right", errors.NOT_READY) if wrong else ("ok", errors.DONE)
    return HostReport(host, outcome, exit_code, summary(outcomes), details, (*notes, *wrong))
