"""Carry out the plans of hosts that serve one model together: in rounds, and as one when a rank fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from beamdeploy import joined
from beamdeploy.act import GOES_ON, told_too
from beamdeploy.errors import FAILED, LOCKED, UNREACHABLE, HostError, Problem
from beamdeploy.execute import Since, broken, finished, owner_of, unmoved, way_back
from beamdeploy.fleet import each
from beamdeploy.hostlock import HostLock, locked
from beamdeploy.lasting import lasting
from beamdeploy.plan import Plan, Step, plan_apply
from beamdeploy.ready import Say, Waiting, still_runs
from beamdeploy.remote.renewable import Renewable
from beamdeploy.reunion import reunited
from beamdeploy.run import Run, to_look
from beamdeploy.steps import USUALLY, Acted, Manner, carried
from beamdeploy.survey import Options, Planned, together
from beamdeploy.survey import facts_of as look_again

_BEAT = 1.0
"""Seconds between two looks at a follower while its head loads."""

Ended = Mapping[str, Acted | HostError]


@dataclass
class Group:
    """The hosts of one deployment by rank, and how far each has got."""

    members: Mapping[str, Planned]
    say: Callable[[str], Say]
    done: dict[str, Acted] = field(default_factory=dict)
    failed: dict[str, HostError] = field(default_factory=dict)


def execute_together(members: Mapping[str, Planned], options: Options, run: Run) -> Ended:
    """Host → how it ended. All are locked; what can fail is done on all; then all stop, all start, and one answers."""
    with ExitStack() as stack:
        try:
            members, locks = _locked(members, options, run, stack)
        except HostError as error:
            host = error.problems[0].where.partition(":")[0]
            return _with_others({host if host in members else next(iter(members)): error}, members)
        since = Since()
        whole = Group(members, run.sayer)
        whole.done |= {name: Acted(manner=_manner(whole, name, locks.get(name), options, run)) for name in members}
        for number in range(joined.ROUNDS):
            _round(whole, number)
            if whole.failed:
                return _broken(whole, options, since, loading=number == joined.SETTLE)
        return {name: _noted(each, whole.done[name], options, since) for name, each in members.items()}


def _manner(whole: Group, name: str, lock: HostLock | None, options: Options, run: Run) -> Manner:
    """How a rank is carried out. Its way back is given up when another one has failed and its host does not answer."""
    planned = whole.members[name]
    session = planned.session
    assert isinstance(session, Renewable)
    regain = way_back(session, lock, planned.spec, options, run, lambda: bool(whole.failed))
    check = partial(lock.check, session, run.sayer(name)) if lock is not None else USUALLY.check_lock
    return Manner(planned.secrets, options.keep_failed, waiting=Waiting(regain), check_lock=check)


def _locked(
    members: Mapping[str, Planned], options: Options, run: Run, stack: ExitStack
) -> tuple[Mapping[str, Planned], Mapping[str, HostLock]]:
    """The same over sessions that can be renewed, under the locks of all and looked at again, and these locks.

    HostError: a lock is not to be had, or a host has changed.
    """
    members = {name: replace(planned, session=Renewable(planned.session)) for name, planned in members.items()}
    locks: dict[str, HostLock] = {}
    if not any(planned.plan.writes for planned in members.values()):
        return members, locks
    for name, planned in members.items():
        owner, wait, say = owner_of(planned.spec, options), options.lock_wait, run.sayer(name)
        held = locked(planned.session, planned.spec.recipe.name, owner, wait=wait, say=say)
        locks[name] = stack.enter_context(held)
    again = each(members, lambda name: _seen_again(members[name], run.sayer(name)))
    plans = together(again, [planned.spec for planned in members.values()])
    return {name: replace(planned, plan=_unmoved(planned, plans[name])) for name, planned in members.items()}, locks


def _seen_again(planned: Planned, say: Say) -> Planned:
    say("look", "again, under the lock")
    facts = look_again(to_look(planned.session), planned.spec, planned.secrets)
    return replace(planned, plan=plan_apply(planned.spec, facts))


def _unmoved(shown: Planned, again: Planned | HostError) -> Plan:
    if isinstance(again, HostError):
        raise again
    return unmoved(shown.plan, again.plan)


def _round(whole: Group, number: int) -> None:
    """One round on all that have something to do in it."""
    todo = {name: joined.phases(each.plan, each.spec)[number] for name, each in whole.members.items()}
    over = threading.Event()

    def work(name: str) -> Acted:
        planned = whole.members[name]
        try:
            if number == joined.SETTLE and not planned.spec.answers:
                return _kept_running(planned, whole, over)
            return _steps(planned, todo[name], whole)
        except HostError as error:
            whole.failed[name] = error
            raise
        finally:
            if planned.spec.answers:
                over.set()

    busy = [name for name, steps in todo.items() if steps]
    if number == joined.SETTLE and not any(whole.members[name].spec.answers for name in busy):
        over.set()
    results = each(busy, work)
    whole.done |= {name: result for name, result in results.items() if isinstance(result, Acted)}


def _steps(planned: Planned, steps: Iterable[Step], whole: Group) -> Acted:
    """The steps of a round on one host; given up as soon as another rank has failed."""
    name = planned.spec.host.name
    own, done = whole.say(name), whole.done[name]

    def say(phase: str, detail: str) -> None:
        if whole.failed:
            host, error = next(iter(whole.failed.items()))
            raise _because_of(host, error, planned)
        own(phase, detail)

    for step in steps:
        done = carried(planned.session, planned.spec, step, done, say)
    return done


def _kept_running(planned: Planned, whole: Group, over: threading.Event) -> Acted:
    """A follower is asked nothing: it must run until its head has answered. HostError: it has ended.

    It goes on by itself, so a connection that is lost may be regained.
    """
    spec, done = planned.spec, whole.done[planned.spec.host.name]
    settle = next(step for step in planned.plan.steps if step.kind == "settle")
    container = done.container or settle.container or ""
    began = time.monotonic()
    say = whole.say(spec.host.name)
    say("loading", f"{spec.rank.said if spec.rank else ''}: until the head answers")
    while True:
        last = over.wait(_BEAT)
        lasting(planned.session, lambda: still_runs(planned.session, spec, container), done.manner.waiting.regain)
        if last:
            return replace(done, container=container, took={**done.took, "settle": round(time.monotonic() - began, 1)})
        if whole.failed:
            host, error = next(iter(whole.failed.items()))
            raise _because_of(host, error, planned)


def _because_of(host: str, error: HostError, planned: Planned) -> HostError:
    """What is said on a host whose own part went well."""
    first = error.problems[0]
    what = f"another rank failed: {host}: {first.what.splitlines()[0]}"
    exit = error.exit if error.exit != UNREACHABLE else FAILED
    return HostError(Problem(what, f"See {host}.", f"{planned.spec.host.name}: {planned.spec.recipe.name}"), exit=exit)


def _with_others(failed: Mapping[str, HostError], members: Mapping[str, Planned]) -> dict[str, HostError]:
    """The errors, and that of each host which another one kept from its part."""
    host, error = next(iter(failed.items()))
    return {name: failed.get(name) or _because_of(host, error, planned) for name, planned in members.items()}


def _broken(whole: Group, options: Options, since: Since, *, loading: bool) -> Ended:
    """What became of each host after a rank failed, and its record.

    `loading`: all ranks had started. Where no more is known than that a host is out of reach, they go on.
    """
    first = next(iter(whole.failed.values()))
    errors = _with_others(whole.failed | _overtaken(whole), whole.members)
    if any(error.exit == LOCKED for error in errors.values()):
        return {name: broken(planned, errors[name], options, since) for name, planned in whole.members.items()}
    if loading and first.exit == UNREACHABLE:
        told = {name: told_too(error, GOES_ON) for name, error in errors.items()}
    else:
        told = reunited(whole.members, whole.done, errors, whole.say)
    return {name: broken(planned, told[name], options, since) for name, planned in whole.members.items()}


def _overtaken(whole: Group) -> dict[str, HostError]:
    """The hosts on which another run works by now: nothing is put right there, nor on the others without them."""

    def work(name: str) -> None:
        whole.done[name].manner.check_lock()

    asked = each(whole.members, work)
    return {name: told for name, told in asked.items() if isinstance(told, HostError) and told.exit == LOCKED}


def _noted(planned: Planned, done: Acted, options: Options, since: Since) -> Acted | HostError:
    try:
        return finished(planned, done, options, since)
    except HostError as error:
        return broken(planned, error, options, since)
