"""The plans of hosts that serve one model together: where one rank is made anew, all are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from beamdeploy.errors import Problem
from beamdeploy.look.facts import Container
from beamdeploy.plan import Plan, Step, deployed_stop_timeout, settle_step, stop_step, wait_step
from beamdeploy.render import Spec

_BEGIN = ("run", "start")


def joined(specs: Mapping[str, Spec], plans: Mapping[str, Plan], absent: Mapping[str, str]) -> dict[str, Plan]:
    """The plans of one deployment's hosts as far as they hang together. `absent`: host → why it has no plan."""
    stand = {**absent, **{name: "is blocked" for name, plan in plans.items() if plan.outcome == "blocked"}}
    if len(plans) + len(absent) == 1:
        return dict(plans)
    if stand:
        return {name: plan if name in stand else _blocked(plan, specs[name], stand) for name, plan in plans.items()}
    if not any(_begins(plan) for plan in plans.values()):
        return dict(plans)
    return {name: plan if _begins(plan) else _along(plan, specs[name]) for name, plan in plans.items()}


def phases(plan: Plan, spec: Spec) -> tuple[tuple[Step, ...], ...]:
    """The steps in the rounds that all ranks go through together; each round ends everywhere before the next begins.

    What can fail while the old servers run; the stop of the head; of the followers (SGLang's end only when their head
    has told them to, vLLM's by themselves); what clears the place; the start; until the head answers; what is left.
    """
    rounds: list[list[Step]] = [[] for _ in range(ROUNDS)]
    began = False
    for step in plan.steps:
        began = began or step.kind in (*_BEGIN, "settle")
        rounds[_round(step.kind, head=spec.answers, began=began)].append(step)
    return tuple(map(tuple, rounds))


PREPARE, BEGIN, SETTLE, ROUNDS = 0, 4, 5, 7


def _round(kind: str, *, head: bool, began: bool) -> int:
    if kind in ("pull", "write secrets", "probe", "try GPUs"):
        return PREPARE
    if kind == "stop":
        return 1 if head else 2
    if kind in _BEGIN:
        return BEGIN
    if kind == "settle":
        return SETTLE
    return 6 if began else 3


def _begins(plan: Plan) -> bool:
    return any(step.kind in _BEGIN for step in plan.steps)


def _along(plan: Plan, spec: Spec) -> Plan:
    """A rank that is as it should be, and must meet the others anew."""
    current = plan.current
    if current is None or not current.running:
        return plan
    left = tuple(step for step in plan.steps if step.kind == "remove")
    steps = (*_restart(spec, current), *left)
    return replace(plan, outcome="restart", steps=steps, fallback=current.id)


def _restart(spec: Spec, current: Container) -> tuple[Step, ...]:
    stop = stop_step(spec.host, current, deployed_stop_timeout(spec, current), "another rank of it is made anew")
    words = (*spec.host.docker_words, "start", current.id)
    start = Step("start", "with the other ranks", words, current.id, cost="loading the model")
    return (stop, wait_step(spec), start, settle_step(spec, current))


def _blocked(plan: Plan, spec: Spec, stand: Mapping[str, str]) -> Plan:
    problems = tuple(_in_the_way(spec, host, why) for host, why in stand.items())
    return replace(plan, outcome="blocked", steps=(), problems=problems, fallback=None)


def _in_the_way(spec: Spec, host: str, why: str) -> Problem:
    assert spec.rank is not None
    what = f"{spec.recipe.name} is on {len(spec.rank.hosts)} hosts together, and {host} {why}"
    return Problem(what, f"See what is said of {host}.", f"{spec.host.name}: plan")
