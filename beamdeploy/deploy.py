"""Plan and apply specs on their hosts: look at all, plan all, then act in waves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from beamdeploy import errors, recap, secrets
from beamdeploy.act import Acted, act, facts_of
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.fleet import each, waves
from beamdeploy.hooks import run_hook
from beamdeploy.hostlock import locked
from beamdeploy.inventory import Host
from beamdeploy.lock import Lock
from beamdeploy.look import Question, look
from beamdeploy.look.facts import Facts
from beamdeploy.outcome import HostReport, Report
from beamdeploy.plan import Plan, plan_apply
from beamdeploy.recipe import Recipe
from beamdeploy.record import Entry, append
from beamdeploy.remote import Session
from beamdeploy.render import Spec, render
from beamdeploy.run import Run, SayHost, now, started_by, told

Confirm = Callable[[tuple[HostReport, ...]], bool]

_PAUSES = (2.0, 5.0, 15.0)
"""Seconds between attempts to reach a host again that went away during a pull."""
_LOCK_OUTLIVES = 40.0
"""Seconds: a lock ends 30 s after the last heartbeat of a connection that just vanished."""


@dataclass(frozen=True)
class Options:
    """How a run is made, beside its specs. `lock_wait` in seconds; `serial`: hosts a wave ("2", "25%"), None: all.

    `canary`: the first host is a wave of its own. `max_fail`: so many hosts may fail before the next wave is left out.
    """

    accept_new: bool = False
    skip_blocked: bool = False
    lock_wait: float = 0
    serial: str | None = None
    canary: bool = False
    max_fail: int = 0
    action: str = "apply"


@dataclass(frozen=True)
class Planned:
    """One host, looked at and planned."""

    session: Session
    spec: Spec
    plan: Plan
    secrets: str = field(default="", repr=False)


def specs_of(
    recipe: Recipe, hosts: Iterable[Host], lock: Lock | None, templates: str | None, *, unpinned: bool = True
) -> tuple[Spec, ...]:
    """The spec of each host. InputError: all that is wrong on all hosts, an image without digest unless `unpinned`."""
    specs: list[Spec] = []
    problems: list[Problem] = []
    for host in hosts:
        try:
            specs.append(render(recipe, host, lock, templates=templates))
        except InputError as error:
            problems.extend(problem for problem in error.problems if problem not in problems)
    problems.extend(_secret_problems(recipe))
    if specs and not specs[0].image.pinned and not recipe.unpinned and not unpinned:
        problems.append(_unpinned(recipe))
    if problems:
        raise InputError(problems)
    return tuple(specs)


def plan(specs: tuple[Spec, ...], options: Options, say: SayHost) -> Report:
    """What apply would do. Exit CHANGES_PENDING is the caller's to ask for: see `pending`."""
    with ExitStack() as stack:
        looked = _look_at_all(specs, options, Run(stack, say))
        reports = tuple(_planned(name, found) for name, found in looked.items())
    return Report("Plan", errors.worst(report.exit for report in reports), reports)


def pending(report: Report) -> bool:
    """Whether any host of a plan would be changed."""
    return any(host.plan for host in report.hosts)


def apply(specs: tuple[Spec, ...], options: Options, say: SayHost, confirm: Confirm) -> Report:
    """Bring the hosts to their specs. `confirm` sees the plans before anything changes and may refuse."""
    with ExitStack() as stack:
        run = Run(stack, say)
        looked = _look_at_all(specs, options, run)
        reports = {name: _planned(name, found) for name, found in looked.items()}
        able = _able(looked)
        blocked = any(report.outcome == "blocked" for report in reports.values())
        if blocked and not options.skip_blocked:
            reports |= _left(able, reports, "another host is blocked")
        elif confirm(tuple(reports.values())):
            reports |= _act_in_waves(able, reports, options, run)
        else:
            reports |= _left(able, reports, "not confirmed")
    ended = tuple(reports.values())
    return Report(options.action.capitalize(), errors.worst(report.exit for report in ended), ended)


def question(spec: Spec) -> Question:
    """What must be known of a host before its plan."""
    recipe = spec.recipe
    address, port = recipe.container.address, recipe.container.port
    return Question(
        name=recipe.name,
        images=(spec.image.word,),
        model_dir=spec.host.model_dir,
        folders=recipe.folders,
        ports=(port,),
        docker=spec.host.docker_words,
        need_gpus=True,
        http=((address, port, spec.engine.ready), (address, port, "/v1/models")),
    )


def _secret_problems(recipe: Recipe) -> tuple[Problem, ...]:
    """What is wrong with the secrets that come from here, before any host is asked."""
    try:
        secrets.given(recipe, os.environ)
    except InputError as error:
        return error.problems
    return ()


def _unpinned(recipe: Recipe) -> Problem:
    return Problem(
        f"image.reference {recipe.image.word} has no digest, and there is no lock",
        "Run `beamdeploy lock`, give name@sha256:…, say why in image.unpinned, or apply with --unpinned.",
        file=recipe.file,
        rule="BD051",
    )


def _look_at_all(specs: tuple[Spec, ...], options: Options, run: Run) -> dict[str, Planned | HostError]:
    by_name = {spec.host.name: spec for spec in specs}

    def work(name: str) -> Planned:
        return _looked(by_name[name], options, run)

    return each(by_name, work)


def _looked(spec: Spec, options: Options, run: Run) -> Planned:
    session = run.opened(spec.host, accept_new=options.accept_new)
    run.say(spec.host.name, "look", "")
    text = secrets.given(spec.recipe, os.environ)
    made = plan_apply(spec, _facts(session, spec, text))
    return Planned(session, spec, replace(made, notes=(*told(session), *made.notes)), text)


def _facts(session: Session, spec: Spec, text: str) -> Facts:
    """One look; for a recipe with secrets one question more, since these travel by stdin alone."""
    facts = look(session, question(spec))
    if not spec.recipe.container.secrets:
        return facts
    return replace(facts, secrets=secrets.compare(session, spec.recipe, text))


def _planned(name: str, found: Planned | HostError) -> HostReport:
    return recap.failed(name, found) if isinstance(found, HostError) else recap.planned(found.spec, found.plan)


def _able(looked: Mapping[str, Planned | HostError]) -> dict[str, Planned]:
    return {
        name: found for name, found in looked.items() if isinstance(found, Planned) and found.plan.outcome != "blocked"
    }


def _left(able: Iterable[str], reports: Mapping[str, HostReport], why: str) -> dict[str, HostReport]:
    return {name: recap.not_attempted(reports[name], why) for name in able}


def _act_in_waves(
    able: Mapping[str, Planned], reports: Mapping[str, HostReport], options: Options, run: Run
) -> dict[str, HostReport]:
    """The reports of all waves; those after too many failures, or after Ctrl-C, are not attempted."""
    ended: dict[str, HostReport] = {}
    for wave in waves(tuple(able), options.serial, canary=options.canary):
        failures = sum(report.exit != errors.DONE for report in ended.values())
        interrupted = any(report.exit == errors.INTERRUPTED for report in ended.values())
        if failures > options.max_fail or interrupted:
            ended |= _left(wave, reports, "an earlier wave failed")
        else:
            ended |= _act_on_all({name: able[name] for name in wave}, options, run)
    return ended


def _act_on_all(wave: Mapping[str, Planned], options: Options, run: Run) -> dict[str, HostReport]:
    def work(name: str) -> Acted:
        say = run.sayer(name)
        try:
            return _carry_out(wave[name], options, say)
        except HostError as error:
            if error.exit != errors.UNREACHABLE or run.phases.get(name) != "pull":
                raise
            say("connect", "again: the connection was lost during the pull")
            patient = replace(options, lock_wait=options.lock_wait + _LOCK_OUTLIVES)
            return _carry_out(_looked_again(wave[name], options, run), patient, say)

    try:
        results = each(wave, work)
    except KeyboardInterrupt:
        return {name: recap.interrupted(planned.plan, run.phases.get(name, "")) for name, planned in wave.items()}
    return {name: recap.acted(wave[name].spec, wave[name].plan, result) for name, result in results.items()}


def _carry_out(planned: Planned, options: Options, say: Callable[[str, str], None]) -> Acted:
    """The plan under the host's lock, and its record. HostError: a step failed, or the world has moved."""
    spec, session = planned.spec, planned.session
    if not planned.plan.writes:
        return act(session, spec, planned.plan, say)
    owner = f"{started_by()} since {now()}: {options.action} {spec.recipe.file}"
    with locked(session, spec.recipe.name, owner, wait=options.lock_wait, say=say):
        say("look", "again, under the lock")
        _check_unmoved(planned, plan_apply(spec, _facts(session, spec, planned.secrets)))
        return _recorded(planned, options, say)


def _looked_again(planned: Planned, options: Options, run: Run) -> Planned:
    """The same over a new connection; nothing was stopped yet. HostError: the host stays away, or has changed."""
    for pause in _PAUSES:
        try:
            again = _looked(planned.spec, options, run)
            break
        except HostError as error:
            if error.exit != errors.UNREACHABLE:
                raise
            time.sleep(pause)
    else:
        again = _looked(planned.spec, options, run)
    _check_unmoved(replace(planned, plan=_pulled(planned.plan)), _pulled(again.plan))
    return again


def _pulled(plan: Plan) -> Plan:
    """The plan as it is when the image has arrived."""
    return replace(plan, steps=tuple(step for step in plan.steps if step.kind != "pull"))


def _check_unmoved(planned: Planned, again: Plan) -> None:
    """What is done is what was shown. HostError (BLOCKED): the host is no longer as it was."""
    shown = planned.plan
    if (again.outcome, again.steps, again.changes) == (shown.outcome, shown.steps, shown.changes):
        return
    what = f"the host has changed since the plan was made (it would now be: {recap.summary_of(again)})"
    problem = Problem(what, "Nothing was done here. Apply again to see the new plan.", f"{shown.host}: plan")
    raise HostError(again.problems[0] if again.problems else problem, exit=errors.BLOCKED)


def _recorded(planned: Planned, options: Options, say: Callable[[str, str], None]) -> Acted:
    """Act, and write down how it ended; a record that cannot be written is a warning."""
    began, started = now(), time.monotonic()
    try:
        done = act(planned.session, planned.spec, planned.plan, say, planned.secrets)
        run_hook(planned.spec.host, "after_ready", facts_of(planned.spec, done.container))
    except HostError as error:
        append(planned.session, _entry(planned, options, began, started, error))
        run_hook(planned.spec.host, "on_failure", {**facts_of(planned.spec, None), "error": error.problems[0].what})
        raise
    warning = append(planned.session, _entry(planned, options, began, started, done))
    return replace(done, warnings=(*done.warnings, *warning))


def _entry(planned: Planned, options: Options, began: str, started: float, ended: Acted | HostError) -> Entry:
    spec = planned.spec
    made = Entry(
        at=began,
        by=started_by(),
        action=options.action,
        name=spec.recipe.name,
        outcome="ready",
        seconds=round(time.monotonic() - started, 1),
        digest=spec.digest,
        image=spec.image.word,
        words=spec.words,
        recipe=spec.recipe.source,
        settings=spec.settings,
        plan=recap.plan_data(planned.plan),
    )
    if isinstance(ended, HostError):
        return replace(made, outcome="failed", error=ended.problems[0].what)
    return replace(made, container=ended.container, completion=ended.proof.text if ended.proof else "")
