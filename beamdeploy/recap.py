"""What was planned, done or left undone on a host, as the report says it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from difflib import unified_diff
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from beamdeploy import errors
from beamdeploy.errors import HostError, Problem
from beamdeploy.label import Change, without_labels
from beamdeploy.outcome import HostReport, PlanLine, Report
from beamdeploy.render import Spec

if TYPE_CHECKING:
    from beamdeploy.plan import Plan, Step

_MARKS = {"stop": "-", "remove": "-", "remove image": "-", "set aside": "~", "pull": "+", "run": "+", "start": "+"}
_OUTCOMES = {
    errors.UNREACHABLE: "unreachable",
    errors.NOT_READY: "not ready",
    errors.LOCKED: "locked",
    errors.BLOCKED: "blocked",
}
_INTERRUPTED = {
    "pull": "the image was being pulled; what served before was not touched",
    "probe": "the image was being asked; what served before was not touched",
    "try GPUs": "CUDA was being tried in the image; what served before was not touched",
    "lock": "the run waited for the lock; nothing was changed",
    **dict.fromkeys(("", "connect", "look", "write secrets"), "nothing was stopped or started"),
    "stop": "the old server was being stopped and no new one was started: apply again",
    "set aside": "the old server is stopped and no new one was started: apply again",
    "wait for GPUs": "the old server is stopped and no new one was started: apply again",
    "run": "the new container was being started: beamdeploy status says what runs",
    "smoke": "the new server answers and was being checked: beamdeploy smoke goes on with that",
    "remove": "a container was being removed: apply again",
    "restore": "the old server was being brought back: beamdeploy status says what runs",
}
_BASTION = ": connect: bastion "
_LOADING = "the new server goes on loading there; watch it with beamdeploy logs -f"


def planned(spec: Spec, plan: Plan, *, diff: bool = False) -> HostReport:
    """A host before anything is done. `diff`: with the words of the command, old and new."""
    details: dict[str, object] = {"plan": plan_data(plan), "digest": spec.digest}
    if diff and plan.steps:
        details = {**details, "diff": diff_of(plan.before, without_labels(spec.words))}
    if plan.outcome == "blocked":
        summary = f"{len(plan.problems)} in the way; nothing was changed"
        problems = (*plan.problems, *plan.notes)
        return HostReport(plan.host, "blocked", errors.BLOCKED, summary, details, problems, plan_lines(plan))
    shown = (*plan_lines(plan), *_diff_lines(details.get("diff", ())))
    return HostReport(plan.host, plan.outcome, errors.DONE, summary_of(plan), details, plan.notes, shown)


def diff_of(old: tuple[str, ...], new: tuple[str, ...]) -> list[str]:
    """A unified diff of two commands, a line an option with its values; empty where they are the same."""
    lines = unified_diff(_by_option(old), _by_option(new), "deployed", "wanted", lineterm="", n=1)
    return list(lines)


def _by_option(words: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and not word.startswith("-") and lines[-1].startswith("-") and " " not in lines[-1]:
            lines[-1] = f"{lines[-1]} {shlex.quote(word)}"
        else:
            lines.append(shlex.quote(word))
    return lines


def _diff_lines(diff: object) -> Iterator[PlanLine]:
    # without the two lines of names and those of places: the marks say which is which
    for line in diff[2:] if isinstance(diff, list) else ():
        if not line.startswith("@@"):
            yield PlanLine(line[0], line[1:])


def drifted(spec: Spec, plan: Plan, ignored: tuple[Change, ...] = ()) -> HostReport:
    """A host against what it should be; nothing is said of steps, which nobody takes here. `ignored`: see `without`."""
    made = planned(spec, plan)
    if ignored:
        made = replace(made, details={**made.details, "ignored": [asdict(each) for each in ignored]})
    if made.exit:
        return made
    left_out = f"; ignored: {', '.join(each.path for each in ignored)}" if ignored else ""
    differing = ", ".join(each.path for each in (*plan.changes, *plan.edits))
    if differing:
        shown = tuple(replace(line, cost="") for line in _change_lines(plan))
        return replace(_drifted(made), summary=differing + left_out, plan=shown)
    if plan.steps:
        return replace(_drifted(made), summary=_lacks(plan) + left_out, plan=None)
    return replace(made, summary=f"as the recipe says{left_out}", plan=None)


def _drifted(made: HostReport) -> HostReport:
    return replace(made, outcome="drifted", exit=errors.CHANGES_PENDING)


def _lacks(plan: Plan) -> str:
    """Why a host with the right settings is not as it should be: a server that is not there, or one too many."""
    telling = {"create": "run", "start": "start", "settle": "settle", "replace": "remove"}[plan.outcome]
    if plan.outcome == "replace" and len(plan.steps) > 1 and plan.current is not None:
        return f"the container is {plan.current.state}"
    return next(step.reason for step in plan.steps if step.kind == telling)


def without(plan: Plan, patterns: Collection[str]) -> tuple[Plan, tuple[Change, ...]]:
    """The plan as far as these settings do not matter ("engine.*"), with no step that they alone ask for; and these."""

    def split(found: tuple[Change, ...]) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
        gone = tuple(each for each in found if any(fnmatchcase(each.path, pattern) for pattern in patterns))
        return tuple(each for each in found if each not in gone), gone

    (changes, some), (edits, others) = split(plan.changes), split(plan.edits)
    left = replace(plan, changes=changes, edits=edits)
    if plan.changes and not changes and plan.outcome == "replace":
        left = replace(left, outcome="unchanged", steps=())
    return left, (*some, *others)


def has_steps(report: HostReport) -> bool:
    """Whether something is to be done on a host, as its plan has it."""
    found = report.details.get("plan")
    return isinstance(found, Mapping) and bool(found["steps"])


def failed(host: str, error: HostError, plan: Plan | None = None) -> HostReport:
    """A host on which a step failed, or which could not be reached."""
    details = {"plan": plan_data(plan)} if plan else {}
    summary = error.problems[0].what.splitlines()[0]
    return HostReport(host, _OUTCOMES.get(error.exit, "failed"), error.exit, summary, details, error.problems)


def shared(report: Report) -> Report:
    """What a bastion did to several hosts is said once, as the run's problem; each host keeps its outcome and line."""
    behind: dict[Problem, list[str]] = {}
    for host in report.hosts:
        for problem in host.problems:
            if _BASTION in problem.where:
                behind.setdefault(_of_bastion(problem), []).append(host.name)
    several = {problem: names for problem, names in behind.items() if len(names) > 1}
    hosts = tuple(
        replace(host, problems=tuple(each for each in host.problems if _of_bastion(each) not in several))
        for host in report.hosts
    )
    said = tuple(
        replace(each, what=f"{each.what}; {len(names)} hosts are behind it: {', '.join(names)}")
        for each, names in several.items()
    )
    return replace(report, hosts=hosts, problems=(*report.problems, *said))


def _of_bastion(problem: Problem) -> Problem:
    """The same, said of the bastion and of no host."""
    _, mark, bastion = problem.where.partition(_BASTION)
    return problem.at(f"bastion {bastion}") if mark else problem


def not_attempted(report: HostReport, why: str) -> HostReport:
    """A host that had something to do and was left as it was."""
    if not has_steps(report):
        return report
    return HostReport(report.name, "not attempted", errors.DONE, why, report.details, report.problems)


def interrupted(plan: Plan, phase: str) -> HostReport:
    """A host in the middle of its plan: what is known of it."""
    known = _INTERRUPTED.get(phase, _LOADING) if plan.steps else "nothing was to be done"
    return HostReport(plan.host, "interrupted", errors.INTERRUPTED, known, {"plan": plan_data(plan)})


def summary_of(plan: Plan) -> str:
    """One line for the recap."""
    if not plan.steps:
        return "no change: nothing to do"
    differing = ", ".join(change.path for change in plan.changes)
    return ", ".join(step.kind for step in plan.steps) + (f" ({differing})" if differing else "")


def moved(shown: Plan, again: Plan) -> str:
    """What of the deployment's container is no longer as it was when the plan was shown; "": nothing of it."""
    before, now = shown.current, again.current
    if before is None:
        return f"a container {now.name} was made there meanwhile, and is {now.state}" if now is not None else ""
    if now is None:
        return f"the container {before.name} ({before.id[:12]}) is gone"
    if now.id != before.id:
        return f"the container {now.name} is another one: {now.id[:12]} in the place of {before.id[:12]}"
    if before.running and now.state == "exited":
        return f"the container {now.name} exited at {now.finished_at[:19]}Z with exit code {now.exit_code}"
    return f"the container {now.name} was {before.state} and is {now.state}" if now.state != before.state else ""


def plan_lines(plan: Plan) -> tuple[PlanLine, ...]:
    """A plan for people: the settings that differ, then the steps, or that it is blocked."""
    blocked = (PlanLine("!", "blocked", f"{len(plan.problems)} in the way"),) if plan.outcome == "blocked" else ()
    return (*_change_lines(plan), *blocked, *map(_step_line, plan.steps))


def plan_data(plan: Plan) -> dict[str, object]:
    """A plan as JSON can hold it."""
    return {
        "outcome": plan.outcome,
        "changes": [asdict(change) for change in plan.changes],
        "steps": [{**asdict(step), "words": list(step.words)} for step in plan.steps],
        **({"costs": dict(plan.costs)} if plan.costs else {}),
        **({"edits": [asdict(edit) for edit in plan.edits]} if plan.edits else {}),
    }


def _change_lines(plan: Plan) -> Iterator[PlanLine]:
    for change in plan.changes:
        yield PlanLine("~", change.path, f"{_said(change.old)} → {_said(change.new)}", plan.costs.get(change.path, ""))
    for edit in plan.edits:
        reason = f"{_said(edit.old)} → {_said(edit.new)}, by another hand since it was ready"
        yield PlanLine("~", edit.path, reason, "the next restart")


def _step_line(step: Step) -> PlanLine:
    return PlanLine(_MARKS.get(step.kind, " "), step.kind, step.reason, step.cost)


def _said(value: object) -> str:
    return "not set" if value is None else str(value)
