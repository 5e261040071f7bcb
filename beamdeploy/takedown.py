"""Destroy: stop with grace, remove, and look whether it is really gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from beamdeploy import errors
from beamdeploy.act import is_there, remove, stop
from beamdeploy.engines import engine_facts, names
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.gpu_memory import wait_for_gpus
from beamdeploy.hostlock import locked
from beamdeploy.inventory import Host
from beamdeploy.label import NAME, Deployed, read_labels
from beamdeploy.look import Question, look
from beamdeploy.look.facts import Facts
from beamdeploy.outcome import HostReport, Report
from beamdeploy.plan import Plan, plan_destroy
from beamdeploy.preflight.memory import serving, strangers
from beamdeploy.recap import failed, plan_data, plan_lines, shared
from beamdeploy.record import Entry, append
from beamdeploy.remote import Session
from beamdeploy.run import Run, SayHost, now, started_by, told
from beamdeploy.secrets import forget

_GRACE = 70
"""Seconds for a container whose label does not say: the longest worst case of the known engines."""


@dataclass(frozen=True)
class Looked:
    """A host and what runs there."""

    session: Session
    host: Host
    facts: Facts


def destroy(
    hosts: Iterable[Host],
    name: str | None,
    say: SayHost,
    confirm: Callable[[str, tuple[HostReport, ...]], bool],
    *,
    accept_new: bool,
    lock_wait: float = 0,
    forks: Forks = AS_USUAL,
) -> Report:
    """Take the deployment `name` off the hosts; None: the only one that runs there. InputError: there are several."""
    by_name = {host.name: host for host in hosts}
    with ExitStack() as stack:
        run = Run(stack, say, forks)
        looked = each(by_name, lambda host: _look(by_name[host], name, run, accept_new=accept_new), at_once=forks.hosts)
        wanted = name or _only(looked.values())
        if wanted is None:
            return _report(looked, _nothing(looked))
        plans = {host: _plan(found, wanted) for host, found in looked.items()}
        reports = {host: _planned(host, plan) for host, plan in plans.items()}
        if any(report.outcome == "blocked" for report in reports.values()):
            return _report(looked, reports)
        if _changing(plans) and not confirm(wanted, tuple(reports.values())):
            return _report(looked, {host: _refused(report) for host, report in reports.items()})
        return _report(looked, reports | _take_down(looked, plans, wanted, run, lock_wait))


def _look(host: Host, name: str | None, run: Run, *, accept_new: bool) -> Looked:
    session = run.opened(host, accept_new=accept_new)
    run.say(host.name, "look", "")
    return Looked(session, host, _facts(session, host, name))


def _facts(session: Session, host: Host, name: str | None) -> Facts:
    return look(session, Question(name=name, docker=host.docker_words, need_gpus=False))


def _only(looked: Iterable[Looked | HostError]) -> str | None:
    found = sorted({deployed.name for each in looked if isinstance(each, Looked) for deployed in _ours(each.facts)})
    if len(found) > 1:
        what = f"several deployments run there: {', '.join(found)}"
        raise InputError([Problem(what, "Name the one to destroy: beamdeploy destroy NAME")])
    return found[0] if found else None


def _ours(facts: Facts) -> tuple[Deployed, ...]:
    read = (read_labels(container.labels) for container in facts.containers)
    return tuple(deployed for deployed in read if deployed is not None)


def _plan(found: Looked | HostError, name: str) -> Plan | HostError:
    if isinstance(found, HostError):
        return found
    return plan_destroy(found.host, name, found.facts, _grace(found.facts, name))


def _grace(facts: Facts, name: str) -> int:
    deployed = next((each for each in _ours(facts) if each.name == name), None)
    recipe = deployed.recipe if deployed else {}
    given = recipe.get("container", {}).get("stop_timeout")
    engine = recipe.get("engine", {}).get("name")
    return int(given or (engine_facts(engine).stop_timeout if engine in names() else _GRACE))


def _changing(plans: dict[str, Plan | HostError]) -> bool:
    return any(isinstance(plan, Plan) and plan.steps for plan in plans.values())


def _take_down(
    looked: dict[str, Looked | HostError],
    plans: dict[str, Plan | HostError],
    name: str,
    run: Run,
    lock_wait: float,
) -> dict[str, HostReport]:
    todo = {
        host: (found, plan)
        for host, found in looked.items()
        if isinstance(found, Looked) and isinstance(plan := plans[host], Plan)
    }
    results = each(
        todo, lambda host: _under_lock(*todo[host], name, run.sayer(host), lock_wait), at_once=run.forks.hosts
    )
    return {host: _done(host, result, todo[host][1]) for host, result in results.items()}


def _under_lock(
    found: Looked, plan: Plan, name: str, say: Callable[[str, str], None], lock_wait: float
) -> tuple[Problem, ...]:
    """Carry the plan out while no other run works on the deployment, and write it down."""
    if not plan.steps:
        return ()
    began, started = now(), time.monotonic()
    owner = f"{started_by()} since {began}: destroy {name}"
    with locked(found.session, name, owner, wait=lock_wait, say=say):
        again = _plan(replace(found, facts=_facts(found.session, found.host, name)), name)
        if again != plan:
            what = "the host has changed since the plan was made"
            problem = Problem(what, "Nothing was done here: destroy again.", f"{found.host.name}: plan")
            raise HostError(problem, exit=errors.BLOCKED)
        warnings = _carry_out(found, plan, name, say)
        forget(found.session, name)
        seconds = round(time.monotonic() - started, 1)
        entry = Entry(began, started_by(), "destroy", name, "removed", seconds, plan=plan_data(plan))
        return (*warnings, *append(found.session, entry))


def _carry_out(found: Looked, plan: Plan, name: str, say: Callable[[str, str], None]) -> tuple[Problem, ...]:
    warnings: tuple[Problem, ...] = ()
    for step in plan.steps:
        say(step.kind, step.reason)
        if step.kind == "stop":
            warnings = (*warnings, *stop(found.session, found.host, step))
        else:
            remove(found.session, found.host, step)
    left = is_there(found.session, found.host, f"label={NAME}={name}")
    if left is not None:
        what = f"a container of {name} is still there: {left[:12]}"
        raise HostError(Problem(what, "Another run may have made it: destroy again.", f"{found.host.name}: destroy"))
    if plan.steps:
        others = strangers(found.facts, serving(name, found.facts))
        wait_for_gpus(found.session, found.host, _gpus(found.facts, name), say, others=others)
    return warnings


def _gpus(facts: Facts, name: str) -> tuple[int, ...]:
    deployed = next((each for each in _ours(facts) if each.name == name), None)
    return tuple(deployed.settings.get("inventory.gpus", ())) if deployed else ()


def _planned(host: str, plan: Plan | HostError) -> HostReport:
    if isinstance(plan, HostError):
        return failed(host, plan)
    details = {"plan": plan_data(plan)}
    if plan.outcome == "blocked":
        return HostReport(
            host, "blocked", errors.BLOCKED, "nothing was changed", details, plan.problems, plan_lines(plan)
        )
    return HostReport(host, plan.outcome, errors.DONE, "nothing to do", details, plan=plan_lines(plan))


def _done(host: str, result: tuple[Problem, ...] | HostError, plan: Plan) -> HostReport:
    if isinstance(result, HostError):
        return failed(host, result, plan)
    if not plan.steps:
        return HostReport(host, "unchanged", errors.DONE, "nothing to do", {"plan": plan_data(plan)})
    summary = "stopped, removed, and looked for: it is gone, its GPUs are free"
    return HostReport(host, "changed", errors.DONE, summary, {"plan": plan_data(plan)}, result)


def _nothing(looked: dict[str, Looked | HostError]) -> dict[str, HostReport]:
    return {
        host: failed(host, found)
        if isinstance(found, HostError)
        else HostReport(host, "unchanged", errors.DONE, "nothing of beamdeploy runs here")
        for host, found in looked.items()
    }


def _refused(report: HostReport) -> HostReport:
    return HostReport(report.name, "not attempted", report.exit, "not confirmed", report.details, report.problems)


def _report(looked: dict[str, Looked | HostError], reports: dict[str, HostReport]) -> Report:
    notes = {host: told(found.session) for host, found in looked.items() if isinstance(found, Looked)}
    whole = tuple(replace(each, problems=(*notes.get(host, ()), *each.problems)) for host, each in reports.items())
    return shared(Report("Destroy", errors.worst(report.exit for report in whole), whole))
