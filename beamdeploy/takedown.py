"""Destroy: stop with grace, remove, and look whether it is really gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from beamdeploy import errors
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
from beamdeploy.ranks import Rank, rank_of
from beamdeploy.recap import failed, plan_data, plan_lines, shared
from beamdeploy.record import Entry, append
from beamdeploy.remote import Session
from beamdeploy.run import Run, SayHost, now, started_by, told
from beamdeploy.secrets import forget
from beamdeploy.steps import is_there, remove, stop

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
        plans = {host: _whole(_plan(found, wanted), found, wanted, by_name) for host, found in looked.items()}
        reports = {host: _planned(host, wanted, plan) for host, plan in plans.items()}
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


def _whole(plan: Plan | HostError, found: Looked | HostError, name: str, chosen: Iterable[str]) -> Plan | HostError:
    """Blocked where other ranks of it would be left over, which serve nothing."""
    rank = _rank(found, name) if isinstance(found, Looked) else None
    others = [host for host in rank.hosts if host not in chosen] if rank else []
    if not others or isinstance(plan, HostError) or not plan.steps:
        return plan
    what = f"{name} here is {rank.said if rank else ''}; {', '.join(others)} is not among the chosen hosts"
    problem = Problem(what, "Choose them as well with -i and -l.", plan.host)
    return replace(plan, outcome="blocked", steps=(), problems=(problem,))


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
    sets = {hosts[0]: hosts for hosts in _sets(todo, name)}

    def work(first: str) -> dict[str, tuple[Problem, ...] | HostError]:
        return _under_locks({host: todo[host] for host in sets[first]}, name, run, lock_wait)

    results = each(sets, work, at_once=run.forks.hosts)
    ended: dict[str, tuple[Problem, ...] | HostError] = {}
    for first, result in results.items():
        ended |= dict.fromkeys(sets[first], result) if isinstance(result, HostError) else result
    return {host: _done(host, name, ended[host], todo[host][1]) for host in todo}


def _sets(todo: Mapping[str, tuple[Looked, Plan]], name: str) -> Iterable[tuple[str, ...]]:
    """The hosts of each deployment, by rank."""
    found = {host: _rank(looked, name) for host, (looked, _) in todo.items()}
    sets = (tuple(each for each in (rank.hosts if rank else (host,)) if each in todo) for host, rank in found.items())
    return tuple(dict.fromkeys(sets))


def _rank(found: Looked, name: str) -> Rank | None:
    deployed = next((each for each in _ours(found.facts) if each.name == name), None)
    return rank_of(deployed.settings) if deployed else None


def _under_locks(
    found: Mapping[str, tuple[Looked, Plan]], name: str, run: Run, lock_wait: float
) -> dict[str, tuple[Problem, ...] | HostError]:
    """Take down one deployment while no other run works on it, its head first: followers may wait for its word.

    HostError: a lock is not to be had, or a host has changed; nothing was done.
    """
    busy = {host: pair for host, pair in found.items() if pair[1].steps}
    began, started = now(), time.monotonic()
    owner = f"{started_by()} since {began}: destroy {name}"
    checks: dict[str, Callable[[], None]] = {}

    def work(host: str) -> tuple[Problem, ...]:
        looked, plan = busy[host]
        warnings = _carry_out(looked, plan, name, run.sayer(host), checks[host])
        checks[host]()
        warnings = (*warnings, *forget(looked.session, name))
        seconds = round(time.monotonic() - started, 1)
        entry = Entry(began, started_by(), "destroy", name, "removed", seconds, plan=plan_data(plan))
        return (*warnings, *append(looked.session, entry))

    with ExitStack() as stack:
        for host, (looked, _) in busy.items():
            say = run.sayer(host)
            lock = stack.enter_context(locked(looked.session, name, owner, wait=lock_wait, say=say))
            checks[host] = partial(lock.check, looked.session, say)
        for looked, plan in busy.values():
            _must_be_as_before(looked, plan, name)
        head = [host for host in busy if host == next(iter(found))]
        results = each(head, work)
        rest = [host for host in busy if host not in head]
        results |= _left_to_another(rest, results.values()) or each(rest, work)
    return {host: results.get(host, ()) for host in found}


def _left_to_another(
    rest: Iterable[str], results: Iterable[tuple[Problem, ...] | HostError]
) -> dict[str, tuple[Problem, ...] | HostError]:
    """The followers of a head that another run works on by now: it works on them as well."""
    overtaken = next((each for each in results if isinstance(each, HostError) and each.exit == errors.LOCKED), None)
    return dict.fromkeys(rest, overtaken) if overtaken else {}


def _must_be_as_before(found: Looked, plan: Plan, name: str) -> None:
    again = _plan(replace(found, facts=_facts(found.session, found.host, name)), name)
    if again != plan:
        what = "the host has changed since the plan was made"
        problem = Problem(what, "Nothing was done here: destroy again.", f"{found.host.name}: plan")
        raise HostError(problem, exit=errors.BLOCKED)


def _carry_out(
    found: Looked, plan: Plan, name: str, say: Callable[[str, str], None], check_lock: Callable[[], None]
) -> tuple[Problem, ...]:
    """`check_lock`: called before each deed; HostError: it is no longer ours to do."""
    warnings: tuple[Problem, ...] = ()
    for step in plan.steps:
        say(step.kind, step.reason)
        check_lock()
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


def _planned(host: str, name: str, plan: Plan | HostError) -> HostReport:
    if isinstance(plan, HostError):
        return failed(host, plan)
    details = {"plan": plan_data(plan)}
    if plan.outcome == "blocked":
        return HostReport(
            host, "blocked", errors.BLOCKED, "nothing was changed", details, plan.problems, plan_lines(plan)
        )
    said = "nothing to do" if plan.steps else _absent(name)
    return HostReport(host, plan.outcome, errors.DONE, said, details, plan=plan_lines(plan))


def _absent(name: str) -> str:
    return f"there is no deployment named {name}: nothing to do"


def _done(host: str, name: str, result: tuple[Problem, ...] | HostError, plan: Plan) -> HostReport:
    if isinstance(result, HostError):
        return failed(host, result, plan)
    if not plan.steps:
        return HostReport(host, "unchanged", errors.DONE, _absent(name), {"plan": plan_data(plan)})
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
