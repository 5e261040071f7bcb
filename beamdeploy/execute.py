"""Carry out the plan of one host: under its lock, checked again, with hooks, and written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from beamdeploy import errors, recap
from beamdeploy.act import act
from beamdeploy.errors import HostError, Problem
from beamdeploy.hooks import facts_of, run_hook
from beamdeploy.hostlock import OUTLIVES, HostLock, locked
from beamdeploy.imprint import past_of, restarted, usual_phases
from beamdeploy.lasting import Regain
from beamdeploy.look.facts import Past
from beamdeploy.outcome import HostReport
from beamdeploy.plan import Plan, plan_apply
from beamdeploy.preflight.memory import serving, strangers
from beamdeploy.ready import Waiting
from beamdeploy.record import Entry, append
from beamdeploy.regain import WITHIN, WayBack
from beamdeploy.remote import Session
from beamdeploy.remote.renewable import Renewable
from beamdeploy.render import Spec
from beamdeploy.run import Run, now, started_by, to_look
from beamdeploy.secrets import forget
from beamdeploy.smoke import Say, summary
from beamdeploy.startup import decisions
from beamdeploy.steps import Acted, Manner
from beamdeploy.survey import Options, Planned, looked
from beamdeploy.survey import facts_of as look_again

_PAUSES = (2.0, 5.0, 15.0)
"""Seconds between attempts to reach a host again that went away during a pull."""
_BY_ITSELF = ("pull", "start", "settle")
"""Steps that may turn out to be needless between the plan and the deed."""
_DONE = {
    "restart": "restarted with its other ranks",
    "create": "created",
    "replace": "replaced",
    "start": "started again",
    "settle": "ready now",
}


@dataclass(frozen=True)
class Since:
    """When a plan began to be carried out: as it is written down, and on this machine's clock of seconds."""

    at: str = field(default_factory=now)
    clock: float = field(default_factory=time.monotonic)


def execute(planned: Planned, options: Options, run: Run) -> Acted:
    """Do what was planned; a connection that is lost while the image is pulled is taken up again. HostError."""
    name = planned.spec.host.name
    say = run.sayer(name)
    try:
        return _carry_out(planned, options, run)
    except HostError as error:
        if error.exit != errors.UNREACHABLE or run.phases.get(name) != "pull":
            raise
    say("connect", "again: the connection was lost during the pull")
    patient = replace(options, lock_wait=options.lock_wait + OUTLIVES)
    return _carry_out(_looked_again(planned, options, run), patient, run)


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


def _carry_out(planned: Planned, options: Options, run: Run) -> Acted:
    """The plan under the host's lock, and its record. HostError: a step failed, or the world has moved."""
    spec, session = planned.spec, Renewable(planned.session)
    say = run.sayer(spec.host.name)
    if not planned.plan.writes:
        return act(
            session, spec, planned.plan, say, Manner(waiting=Waiting(way_back(session, None, spec, options, run)))
        )
    with locked(session, spec.recipe.name, owner_of(spec, options), wait=options.lock_wait, say=say) as lock:
        say("look", "again, under the lock")
        facts = look_again(to_look(session), spec, planned.secrets)
        again = unmoved(planned.plan, plan_apply(spec, facts))
        waiting = Waiting(way_back(session, lock, spec, options, run), usual_phases(facts))
        others = strangers(facts, serving(spec.recipe.name, facts))
        manner = Manner(
            planned.secrets,
            options.keep_failed,
            strangers=others,
            waiting=waiting,
            check_lock=partial(lock.check, session, say),
        )
        return _recorded(replace(planned, plan=again, session=session), options, manner, say)


def way_back(
    session: Renewable,
    lock: HostLock | None,
    spec: Spec,
    options: Options,
    run: Run,
    pointless: Callable[[], bool] = lambda: False,
) -> Regain:
    """The way back to a host that is lost while its server loads, with its lock where the plan has one.

    `pointless`: whether another try that fails is the last.
    """
    say = run.sayer(spec.host.name)

    def opened() -> Session:
        try:
            return run.opened_again(spec.host, accept_new=options.accept_new)
        except HostError as error:
            raise HostError(error.problems[0], exit=error.exit, final=error.final or pointless()) from error

    def taken_up(again: Session) -> None:
        if lock is not None:
            lock.retake(again, say)
        session.renew(again)

    within = min(WITHIN, float(spec.recipe.ready.timeout))
    return WayBack(opened, taken_up, say, "the server goes on there", within).regainer()


def _looked_again(planned: Planned, options: Options, run: Run) -> Planned:
    """The same over a new connection; nothing was stopped yet. HostError: the host stays away, or has changed."""
    for pause in (*_PAUSES, None):
        try:
            again = looked(planned.spec, options, run)
            break
        except HostError as error:
            if error.exit != errors.UNREACHABLE:
                raise
            if pause is None:
                raise _gone(error) from error
        time.sleep(pause)
    return replace(again, plan=unmoved(planned.plan, again.plan))


def _gone(error: HostError) -> HostError:
    """The host went away during the pull and does not come back."""
    problem = error.problems[0]
    what = (
        f"the connection was lost during the pull and does not come back ({problem.what}); the state of this host is "
        "unknown"
    )
    remedy = (
        f"{problem.remedy}. What served before was not touched; apply again when the host is there: it looks first."
    )
    return HostError(replace(problem, what=what, remedy=remedy), exit=errors.UNREACHABLE)


def unmoved(shown: Plan, again: Plan) -> Plan:
    """What is left of the shown plan. HostError (BLOCKED): the host is no longer as it was.

    What happens by itself is no such change: a server that was loading is ready or has ended, or an image has arrived.
    """
    now = _deeds(again)[1:] if _has_ended(shown, again) else _deeds(again)
    if again.outcome != "blocked" and again.changes == shown.changes and _is_left_of(_deeds(shown), now):
        return again
    moved = recap.moved(shown, again)
    what = (
        f"the host has changed since the plan was made{f': {moved}' if moved else ''} (it would now be: "
        f"{recap.summary_of(again)})"
    )
    why = " beamdeploy doctor says why it ended." if " exited at " in moved else ""
    remedy = f"Nothing was done here. Run the same again: it looks anew and shows the new plan.{why}"
    problem = Problem(what, remedy, f"{shown.host}: plan")
    raise HostError(again.problems[0] if again.problems else problem, exit=errors.BLOCKED)


def _deeds(plan: Plan) -> tuple[tuple[object, ...], ...]:
    return tuple((step.kind, step.words, step.container) for step in plan.steps)


def _has_ended(shown: Plan, again: Plan) -> bool:
    """Whether the server that was to be waited for has ended, so that it is started first."""
    waited, started = next(iter(shown.steps), None), next(iter(again.steps), None)
    return (
        waited is not None
        and started is not None
        and (waited.kind, started.kind, waited.container) == ("settle", "start", started.container)
    )


def _is_left_of(shown: tuple[tuple[object, ...], ...], now: tuple[tuple[object, ...], ...]) -> bool:
    """Whether the steps of now are the shown ones, but for some that took care of themselves."""
    if shown == now:
        return True
    if not shown or (now and shown[0] == now[0]):
        return bool(shown) and _is_left_of(shown[1:], now[1:])
    return shown[0][0] in _BY_ITSELF and _is_left_of(shown[1:], now)


def owner_of(spec: Spec, options: Options) -> str:
    """What the lock tells those who meet it."""
    return f"{started_by()} since {now()}: {options.action} {spec.recipe.file}"


def _recorded(planned: Planned, options: Options, manner: Manner, say: Say) -> Acted:
    """Act, and write down how it ended; a record that cannot be written is a warning."""
    since = Since()
    try:
        done = act(planned.session, planned.spec, planned.plan, say, manner)
        return finished(planned, done, options, since)
    except HostError as error:
        raise broken(planned, error, options, since) from error


def finished(planned: Planned, done: Acted, options: Options, since: Since) -> Acted:
    """What follows a plan that went well: its hook and its record. HostError: the hook failed."""
    run_hook(planned.spec.host, "after_ready", facts_of(planned.spec, done.container))
    recipe = planned.spec.recipe
    # what the deployment before was given is nobody's any more
    left = forget(planned.session, recipe.name) if "run" in done.took and not recipe.container.secrets else ()
    made = _entry(planned, options, since, done)
    warning = append(planned.session, replace(made, past=_past(planned, done)))
    return replace(done, warnings=(*done.warnings, *left, *warning))


def broken(planned: Planned, error: HostError, options: Options, since: Since) -> HostError:
    """The error of a plan that did not go well, when it is written down and its hook was run."""
    append(planned.session, replace(_entry(planned, options, since, error), past=_restored(planned, error)))
    try:
        run_hook(planned.spec.host, "on_failure", {**facts_of(planned.spec, None), "error": error.problems[0].what})
    except HostError as second:
        return second
    return error


def _past(planned: Planned, done: Acted) -> Past | None:
    """The imprint of what serves now; None: it is gone again, or cannot be asked, which the next look will tell."""
    try:
        facts = look_again(to_look(planned.session), planned.spec, planned.secrets)
    except HostError:
        return None
    container = next((each for each in facts.containers if each.id == done.container), None)
    if container is None:
        return None
    # of a start that was followed from its begin
    phases = done.proof.phases if done.proof is not None and {"run", "start"} & set(done.took) else {}
    return replace(past_of(container, facts, done.took), phases=phases)


def _restored(planned: Planned, error: HostError) -> Past | None:
    """The imprint of the old server that we started again, so that the next plan takes it for no other hand's doing."""
    if planned.plan.fallback is None or error.exit == errors.UNREACHABLE:
        return None
    try:
        facts = look_again(to_look(planned.session), planned.spec, planned.secrets)
    except HostError:
        return None
    container = next((each for each in facts.containers if each.id == planned.plan.fallback), None)
    # what was another hand's doing before this run is still to be told
    known = {change.new for change in planned.plan.edits if change.path == "docker.started_at"}
    if container is None or not container.running or container.started_at[:19] in known:
        return None
    return restarted(container, facts)


def _entry(planned: Planned, options: Options, since: Since, ended: Acted | HostError) -> Entry:
    spec = planned.spec
    made = Entry(
        at=since.at,
        by=started_by(),
        action=options.action,
        name=spec.recipe.name,
        outcome="ready",
        seconds=round(time.monotonic() - since.clock, 1),
        digest=spec.digest,
        image=spec.image.word,
        ids=spec.image.ids,
        words=spec.words,
        recipe=spec.recipe.source,
        settings=spec.settings,
        plan=recap.plan_data(planned.plan),
    )
    if isinstance(ended, HostError):
        return replace(made, outcome="failed", error=ended.problems[0].what)
    proof = ended.proof
    if proof is None:
        return replace(made, container=ended.container)
    decided = asdict(proof.decided) if proof.decided else {}
    return replace(made, container=ended.container, completion=proof.text, decided=decided, phases=dict(proof.phases))


def _done(spec: Spec, plan: Plan, result: Acted) -> str:
    said = _DONE.get(plan.outcome, recap.summary_of(plan))
    if result.proof is None:
        return f"{said}; {spec.rank.said} runs" if spec.rank and plan.writes else said
    published = spec.recipe.container
    where = f"http://{published.address}:{published.port}/v1"
    checked = f"; {summary(result.checks)}" if result.checks else ""
    return f"{said}; {result.proof.model} answers on {where} ({result.proof.seconds:.1f} s){checked}"
