"""Carry out the plan of one host: under its lock, checked again, with hooks, and written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace

from beamdeploy import errors, recap
from beamdeploy.act import Acted, act, facts_of
from beamdeploy.errors import HostError, Problem
from beamdeploy.hooks import run_hook
from beamdeploy.hostlock import locked
from beamdeploy.outcome import HostReport
from beamdeploy.plan import Plan, plan_apply
from beamdeploy.record import Entry, append
from beamdeploy.render import Spec
from beamdeploy.run import Run, now, started_by, to_look
from beamdeploy.smoke import summary
from beamdeploy.startup import decisions
from beamdeploy.survey import Options, Planned, looked
from beamdeploy.survey import facts_of as look_again

_PAUSES = (2.0, 5.0, 15.0)
"""Seconds between attempts to reach a host again that went away during a pull."""
_LOCK_OUTLIVES = 40.0
"""Seconds: a lock ends 30 s after the last heartbeat of a connection that just vanished."""
_DONE = {"create": "created", "replace": "replaced", "start": "started again", "settle": "ready now"}


def execute(planned: Planned, options: Options, run: Run) -> Acted:
    """Do what was planned; a connection that is lost while the image is pulled is taken up again. HostError."""
    name = planned.spec.host.name
    say = run.sayer(name)
    try:
        return _carry_out(planned, options, say)
    except HostError as error:
        if error.exit != errors.UNREACHABLE or run.phases.get(name) != "pull":
            raise
    say("connect", "again: the connection was lost during the pull")
    patient = replace(options, lock_wait=options.lock_wait + _LOCK_OUTLIVES)
    return _carry_out(_looked_again(planned, options, run), patient, say)


def report(planned: Planned, result: Acted | HostError) -> HostReport:
    """A host after its plan was carried out, or failed to be."""
    spec, plan = planned.spec, planned.plan
    if isinstance(result, HostError):
        return recap.failed(plan.host, result, plan)
    details = {
        "plan": recap.plan_data(plan),
        "digest": spec.digest,
        "container": result.container,
        "completion": asdict(result.proof) if result.proof else None,
        "smoke": [asdict(check) for check in result.checks],
    }
    outcome = "changed" if plan.writes else "unchanged"
    decided = result.proof.decided if result.proof else None
    otherwise = tuple(each.at(f"{plan.host}: settle") for each in decisions(decided, spec.recipe)) if decided else ()
    told = (*plan.notes, *result.warnings, *otherwise)
    return HostReport(plan.host, outcome, errors.DONE, _done(spec, plan, result), details, told)


def _carry_out(planned: Planned, options: Options, say: Callable[[str, str], None]) -> Acted:
    """The plan under the host's lock, and its record. HostError: a step failed, or the world has moved."""
    spec, session = planned.spec, planned.session
    if not planned.plan.writes:
        return act(session, spec, planned.plan, say)
    owner = f"{started_by()} since {now()}: {options.action} {spec.recipe.file}"
    with locked(session, spec.recipe.name, owner, wait=options.lock_wait, say=say):
        say("look", "again, under the lock")
        _check_unmoved(planned, plan_apply(spec, look_again(to_look(session), spec, planned.secrets)))
        return _recorded(planned, options, say)


def _looked_again(planned: Planned, options: Options, run: Run) -> Planned:
    """The same over a new connection; nothing was stopped yet. HostError: the host stays away, or has changed."""
    for pause in _PAUSES:
        try:
            again = looked(planned.spec, options, run)
            break
        except HostError as error:
            if error.exit != errors.UNREACHABLE:
                raise
            time.sleep(pause)
    else:
        again = looked(planned.spec, options, run)
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


def _done(spec: Spec, plan: Plan, result: Acted) -> str:
    said = _DONE.get(plan.outcome, recap.summary_of(plan))
    if result.proof is None:
        return said
    published = spec.recipe.container
    where = f"http://{published.address}:{published.port}/v1"
    checked = f"; {summary(result.checks)}" if result.checks else ""
    return f"{said}; {result.proof.model} answers on {where} ({result.proof.seconds:.1f} s){checked}"
