"""What a look at each host shows before anything is done there: every check, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict

from beamdeploy import errors, recap
from beamdeploy.errors import HostError, Problem
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.look import look
from beamdeploy.look.facts import Facts
from beamdeploy.outcome import HostReport, PlanLine, Report
from beamdeploy.preflight import Check, checks, preflight
from beamdeploy.render import Spec
from beamdeploy.run import Run, SayHost, told
from beamdeploy.survey import question

_MARKS = {"ok": " ", "warn": "~", "block": "!"}


def precheck(
    specs: Iterable[Spec],
    say: SayHost,
    lacking: tuple[Problem, ...],
    *,
    accept_new: bool,
    forks: Forks = AS_USUAL,
) -> Report:
    """Look once at each host of these specs. `lacking`: what an apply of them needs that is missing here."""
    by_name = {spec.host.name: spec for spec in specs}
    with ExitStack() as stack:
        run = Run(stack, say, forks)

        def work(name: str) -> HostReport:
            session = run.opened_to_look(by_name[name].host, accept_new=accept_new)
            run.say(name, "look", "")
            report = judged(by_name[name], look(session, question(by_name[name])))
            return HostReport(**{**vars(report), "problems": (*told(session), *report.problems)})

        results = each(by_name, work, at_once=forks.hosts)
    reports = tuple(_reported(name, results[name]) for name in by_name)
    here = errors.BAD_INPUT if lacking else errors.DONE
    return Report("Preflight", errors.worst((here, *(report.exit for report in reports))), reports, lacking)


def judged(spec: Spec, facts: Facts) -> HostReport:
    """The report on one look. Pure."""
    found = checks(spec, facts)
    numbers = {verdict: sum(each.verdict == verdict for each in found) for verdict in _MARKS}
    summary = f"{len(found)} checks: " + ", ".join(f"{number} {verdict}" for verdict, number in numbers.items())
    details = {
        "checks": [{**asdict(each), "rule": each.page} for each in found],
        "driver": facts.gpus.driver if facts.gpus else None,
    }
    exit = errors.BLOCKED if numbers["block"] else errors.DONE
    outcome = "blocked" if exit else "ok"
    return HostReport(spec.host.name, outcome, exit, summary, details, preflight(spec, facts), _table(found))


def _table(found: Iterable[Check]) -> tuple[PlanLine, ...]:
    return tuple(PlanLine(_MARKS[each.verdict], each.subject, each.saw, _said(each)) for each in found)


def _said(check: Check) -> str:
    return "" if check.verdict == "ok" else check.verdict


def _reported(name: str, result: HostReport | HostError) -> HostReport:
    return recap.failed(name, result) if isinstance(result, HostError) else result
