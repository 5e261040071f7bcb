"""The way back of hosts that serve one model together: failed ranks end, all old ones start, their head answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from beamdeploy.act import GOES_ON, cleared, end, last_lines, serves_again, start_again, told_too, touched
from beamdeploy.errors import UNREACHABLE, HostError
from beamdeploy.fleet import each
from beamdeploy.ready import AS_USUAL, Say
from beamdeploy.steps import Acted
from beamdeploy.survey import Planned

_KILLED_AFTER = 10
"""Seconds for a failed rank: it has nothing to finish, and a follower may wait for a head that is gone."""


def reunited(
    members: Mapping[str, Planned],
    done: Mapping[str, Acted],
    errors: Mapping[str, HostError],
    say: Callable[[str], Say],
) -> dict[str, HostError]:
    """Each host's error with what became of it."""
    there = {name: planned for name, planned in members.items() if errors[name].exit != UNREACHABLE}
    told = {name: told_too(error, GOES_ON) for name, error in errors.items() if name not in there}
    if not _any_touched(there, done):
        said = "Nothing was stopped or started here."
        return {**told, **{name: told_too(errors[name], said) for name in there}}
    ended = _ended(there, done, say)
    sentences = _started(there, members, done, ended, say)
    return {**told, **{name: told_too(errors[name], sentence) for name, sentence in sentences.items()}}


def _any_touched(there: Mapping[str, Planned], done: Mapping[str, Acted]) -> bool:
    """Whether on any host something was stopped, or started. A host that does not tell counts."""

    def work(name: str) -> bool:
        planned = there[name]
        if done[name].container is not None or planned.plan.fallback is None:
            return done[name].container is not None
        return touched(planned.plan, done[name], planned.session, planned.spec)

    return any(found is not False for found in each(there, work).values())


def _ended(
    there: Mapping[str, Planned], done: Mapping[str, Acted], say: Callable[[str], Say]
) -> dict[str, str | HostError]:
    """What failed is away on all, the head's first; host → the failed one's last lines, or why it is not away."""

    def work(name: str) -> str:
        planned = there[name]
        end(planned.session, planned.spec, _KILLED_AFTER)
        if planned.plan.fallback is None:
            return ""
        return cleared(planned.session, planned.spec, planned.plan.fallback, done[name], say(name))

    heads = [name for name, planned in there.items() if planned.spec.answers]
    return {**each(heads, work), **each([name for name in there if name not in heads], work)}


def _started(
    there: Mapping[str, Planned],
    members: Mapping[str, Planned],
    done: Mapping[str, Acted],
    ended: Mapping[str, str | HostError],
    say: Callable[[str], Say],
) -> dict[str, str]:
    """Start the old ranks where all of them are there, and see their head answer; what is said of each host."""
    lacking = [
        name
        for name, planned in members.items()
        if planned.plan.fallback is None or isinstance(ended.get(name), HostError) or name not in there
    ]
    if lacking:
        return {name: _alone(planned, ended[name], lacking) for name, planned in there.items()}

    def start(name: str) -> None:
        start_again(there[name].session, there[name].spec, str(there[name].plan.fallback))

    def answer(name: str) -> str:
        planned = there[name]
        return serves_again(planned.session, planned.spec, str(planned.plan.fallback), AS_USUAL, say(name))

    started = each(there, start)
    stayed = [f"{name} ({error.problems[0].what})" for name, error in started.items() if isinstance(error, HostError)]
    if stayed:
        return dict.fromkeys(
            there, f"The servers that ran before do not start again on {', '.join(stayed)}: apply again."
        )
    [said] = each([name for name in there if there[name].spec.answers], answer).values()
    whole = said if isinstance(said, str) else said.problems[0].what
    return {name: f"{whole}{last_lines(str(ended[name]), done[name], '')}" for name in there}


def _alone(planned: Planned, ended: str | HostError, lacking: list[str]) -> str:
    if isinstance(ended, HostError):
        return f"What failed is not cleared away ({ended.problems[0].what}): apply again."
    if planned.plan.fallback is None:
        return "Nothing served here before; the container is stopped and left for a look: beamdeploy logs."
    others = ", ".join(lacking)
    return f"The server that ran before is stopped and keeps its place: its other ranks ({others}) are not there."
