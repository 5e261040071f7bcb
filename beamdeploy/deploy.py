"""Plan and apply one recipe on its hosts: look at all, plan all, then act."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from beamdeploy import errors
from beamdeploy.act import Acted, act
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.fleet import each
from beamdeploy.inventory import Host
from beamdeploy.lock import Lock
from beamdeploy.look import Question, look
from beamdeploy.outcome import HostReport, PlanLine, Report
from beamdeploy.plan import Plan, Step, plan_apply
from beamdeploy.recipe import Recipe
from beamdeploy.remote import Session, open_session
from beamdeploy.render import Spec, render

SayHost = Callable[[str, str, str], None]
"""Progress: (host, phase, detail)."""

_MARKS = {"stop": "-", "remove": "-", "set aside": "~", "pull": "+", "run": "+", "start": "+"}
_INTERRUPTED = {
    "pull": "the image was being pulled; what served before was not touched",
    "stop": "the old server was being stopped and no new one was started: apply again",
    "set aside": "the old server is stopped and no new one was started: apply again",
    "wait for GPUs": "the old server is stopped and no new one was started: apply again",
    "run": "the new container was being started: beamdeploy status says what runs",
    "remove": "a container was being removed: apply again",
    "restore": "the old server was being brought back: beamdeploy status says what runs",
}
_LOADING = "the new server goes on loading there; watch it with beamdeploy logs -f"


@dataclass(frozen=True)
class Options:
    """How a run is made, beside recipe, hosts and lock."""

    accept_new: bool = False
    unpinned: bool = False
    skip_blocked: bool = False
    templates: str | None = None


@dataclass
class Run:
    """The open sessions of a run and the last word of each host, for whoever interrupts it."""

    stack: ExitStack
    say: SayHost
    phases: dict[str, str] = field(default_factory=dict)

    def sayer(self, host: str) -> Callable[[str, str], None]:
        """The progress of one host."""

        def say(phase: str, detail: str) -> None:
            self.phases[host] = phase
            self.say(host, phase, detail)

        return say


@dataclass(frozen=True)
class Planned:
    """One host, looked at and planned."""

    session: Session
    spec: Spec
    plan: Plan


def render_all(recipe: Recipe, hosts: Iterable[Host], lock: Lock | None, templates: str | None) -> tuple[Spec, ...]:
    """The spec of each host. InputError: all that is wrong on all hosts."""
    specs: list[Spec] = []
    problems: list[Problem] = []
    for host in hosts:
        try:
            specs.append(render(recipe, host, lock, templates=templates))
        except InputError as error:
            problems.extend(problem for problem in error.problems if problem not in problems)
    if problems:
        raise InputError(problems)
    return tuple(specs)


def plan(recipe: Recipe, hosts: Iterable[Host], lock: Lock | None, options: Options, say: SayHost) -> Report:
    """What apply would do. Exit CHANGES_PENDING is the caller's to ask for: see `pending`."""
    specs = _specs(recipe, hosts, lock, options)
    with ExitStack() as stack:
        looked = _look_at_all(specs, options, Run(stack, say))
        reports = [_planned_report(spec.host.name, looked[spec.host.name]) for spec in specs]
    return Report("Plan", errors.worst(report.exit for report in reports), tuple(reports))


def pending(report: Report) -> bool:
    """Whether any host of a plan would be changed."""
    return any(host.plan for host in report.hosts)


def apply(
    recipe: Recipe,
    hosts: Iterable[Host],
    lock: Lock | None,
    options: Options,
    say: SayHost,
    confirm: Callable[[tuple[HostReport, ...]], bool],
) -> Report:
    """Bring the hosts to the recipe. `confirm` sees the plans before anything changes and may refuse."""
    specs = _specs(recipe, hosts, lock, options)
    with ExitStack() as stack:
        run = Run(stack, say)
        looked = _look_at_all(specs, options, run)
        reports = {spec.host.name: _planned_report(spec.host.name, looked[spec.host.name]) for spec in specs}
        blocked = any(report.outcome == "blocked" for report in reports.values())
        ready = {name: each for name, each in looked.items() if isinstance(each, Planned) and not _is_blocked(each)}
        if blocked and not options.skip_blocked:
            reports |= {name: _not_attempted(reports[name], "another host is blocked") for name in ready}
        elif confirm(tuple(reports.values())):
            reports |= _act_on_all(ready, run)
        else:
            reports |= {name: _not_attempted(reports[name], "not confirmed") for name in ready}
        return Report("Apply", errors.worst(report.exit for report in reports.values()), tuple(reports.values()))


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


def _specs(recipe: Recipe, hosts: Iterable[Host], lock: Lock | None, options: Options) -> tuple[Spec, ...]:
    specs = render_all(recipe, hosts, lock, options.templates)
    if specs and not specs[0].image.pinned and not recipe.unpinned and not options.unpinned:
        raise InputError([_unpinned(recipe)])
    return specs


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
    say = run.sayer(spec.host.name)
    say("connect", spec.host.address or "")
    session = open_session(spec.host, accept_new=options.accept_new)
    run.stack.callback(session.close)
    for note in getattr(session, "notes", ()):
        say("connect", note)
    say("look", "")
    return Planned(session, spec, plan_apply(spec, look(session, question(spec))))


def _is_blocked(planned: Planned) -> bool:
    return planned.plan.outcome == "blocked"


def _act_on_all(ready: Mapping[str, Planned], run: Run) -> dict[str, HostReport]:
    def work(name: str) -> Acted:
        planned = ready[name]
        return act(planned.session, planned.spec, planned.plan, run.sayer(name))

    try:
        acted = each(ready, work)
    except KeyboardInterrupt:
        return {name: _interrupted(planned, run.phases.get(name, "")) for name, planned in ready.items()}
    return {name: _acted_report(ready[name], result) for name, result in acted.items()}


def _planned_report(host: str, planned: Planned | HostError) -> HostReport:
    if isinstance(planned, HostError):
        return failed(host, planned)
    plan = planned.plan
    details = {"plan": plan_data(plan), "digest": planned.spec.digest}
    if plan.outcome == "blocked":
        summary = f"{len(plan.problems)} in the way; nothing was changed"
        return HostReport(host, "blocked", errors.BLOCKED, summary, details, (*plan.problems, *plan.notes), lines(plan))
    return HostReport(host, plan.outcome, errors.DONE, summary_of(plan), details, plan.notes, lines(plan))


def _acted_report(planned: Planned, result: Acted | HostError) -> HostReport:
    plan = planned.plan
    host = plan.host
    if isinstance(result, HostError):
        return failed(host, result, plan)
    details = {
        "plan": plan_data(plan),
        "digest": planned.spec.digest,
        "container": result.container,
        "completion": asdict(result.proof) if result.proof else None,
    }
    outcome = "changed" if plan.writes else "unchanged"
    summary = f"{plan.outcome}d; it answers" if plan.outcome in ("create", "replace") else summary_of(plan)
    if plan.outcome in ("start", "settle"):
        summary = "started again; it answers" if plan.outcome == "start" else "it answers"
    return HostReport(host, outcome, errors.DONE, summary, details, (*plan.notes, *result.warnings))


def failed(host: str, error: HostError, plan: Plan | None = None) -> HostReport:
    """The report of a host on which a step failed, or which could not be reached."""
    outcome = {errors.UNREACHABLE: "unreachable", errors.NOT_READY: "not ready", errors.LOCKED: "locked"}
    details = {"plan": plan_data(plan)} if plan else {}
    summary = error.problems[0].what.splitlines()[0]
    return HostReport(host, outcome.get(error.exit, "failed"), error.exit, summary, details, error.problems)


def _not_attempted(report: HostReport, why: str) -> HostReport:
    if not report.plan:
        return report
    return HostReport(report.name, "not attempted", errors.DONE, why, report.details, report.problems, report.plan)


def _interrupted(planned: Planned, phase: str) -> HostReport:
    known = _INTERRUPTED.get(phase, _LOADING) if planned.plan.steps else "nothing was to be done"
    return HostReport(planned.plan.host, "interrupted", errors.INTERRUPTED, known, {"plan": plan_data(planned.plan)})


def summary_of(plan: Plan) -> str:
    """One line for the recap."""
    if not plan.steps:
        return "nothing to do"
    differing = ", ".join(change.path for change in plan.changes)
    return ", ".join(step.kind for step in plan.steps) + (f" ({differing})" if differing else "")


def lines(plan: Plan) -> tuple[PlanLine, ...]:
    """A plan for people: the settings that differ, the steps, what stands in the way."""
    return (*_change_lines(plan), *map(_step_line, plan.steps))


def _change_lines(plan: Plan) -> Iterator[PlanLine]:
    for change in plan.changes:
        yield PlanLine("~", change.path, f"{_said(change.old)} → {_said(change.new)}")


def _step_line(step: Step) -> PlanLine:
    return PlanLine(_MARKS.get(step.kind, " "), step.kind, step.reason, step.cost)


def _said(value: object) -> str:
    return "not set" if value is None else str(value)


def plan_data(plan: Plan) -> dict[str, object]:
    """A plan as JSON can hold it."""
    return {
        "outcome": plan.outcome,
        "changes": [asdict(change) for change in plan.changes],
        "steps": [{**asdict(step), "words": list(step.words)} for step in plan.steps],
    }
