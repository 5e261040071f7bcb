"""The smoke contract: what a server must do before it is called good, check by check, with evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from beamdeploy.completion import PATH
from beamdeploy.errors import Problem
from beamdeploy.exchange import Carry, Heard, Request
from beamdeploy.served import Served
from beamdeploy.smoke import answers, drafter, refusals
from beamdeploy.smoke.check import FAIL, SKIP, Check, Verdict, shortened, skipped

CHECKS: Mapping[str, Check] = {check.name: check for check in (*answers.CHECKS, *refusals.CHECKS, *drafter.CHECKS)}
"""In the order in which they run: what hurts the server least comes first."""

Say = Callable[[str, str], None]


@dataclass(frozen=True)
class Evidence:
    """One request of a check and its answer, both shortened."""

    request: str
    answer: str


@dataclass(frozen=True)
class Outcome:
    """What came of a check. `seconds`: of the requests that it made itself; an answer it shares costs it none."""

    check: str
    verdict: str
    why: str
    remedy: str
    seconds: float
    evidence: tuple[Evidence, ...]


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """The checks that these names mean, "all" among them, in their order."""
    wanted = set(names)
    return tuple(name for name in CHECKS if name in wanted or "all" in wanted)


def smoke(carry: Carry, served: Served, names: Iterable[str], say: Say) -> tuple[Outcome, ...]:
    """Run the checks of these names. A request that several make is made once.

    After one that got no answer at all, nothing more is asked: a server that hangs would be waited for each time.
    """
    heard: dict[Request, Heard] = {}
    outcomes: list[Outcome] = []
    for name in chosen(names):
        say("smoke", name)
        outcomes.append(_outcome(carry, served, CHECKS[name], heard))
    return tuple(outcomes)


def failures(outcomes: Iterable[Outcome], where: str) -> tuple[Problem, ...]:
    """A problem for each check that failed."""
    return tuple(
        Problem(f"smoke: {each.check}: {each.why}", each.remedy or "See the evidence: beamdeploy smoke -o json.", where)
        for each in outcomes
        if each.verdict == FAIL
    )


def summary(outcomes: Iterable[Outcome]) -> str:
    """ "9 checks passed, 1 failed, 2 skipped" """
    verdicts = [each.verdict for each in outcomes]
    passing = len(verdicts) - verdicts.count(FAIL) - verdicts.count(SKIP)
    counts = ((verdicts.count(FAIL), "failed"), (verdicts.count(SKIP), "skipped"))
    return ", ".join((f"{passing} of {len(verdicts)} checks passed", *(f"{n} {word}" for n, word in counts if n)))


def _outcome(carry: Carry, served: Served, check: Check, heard: dict[Request, Heard]) -> Outcome:
    why = check.unfit(served)
    if why:
        return _told(check, skipped(why), 0.0, ())
    if any(request.path == PATH and answer.status is None and not answer.unsent for request, answer in heard.items()):
        return _told(check, skipped("an earlier request got no answer at all"), 0.0, ())
    started, exchanged = time.monotonic(), list[tuple[Request, Heard]]()
    while (request := check.next(served, tuple(answer for _, answer in exchanged))) is not None:
        if request not in heard:
            heard[request] = carry(request, served.recipe.smoke.timeout, None)
        exchanged.append((request, heard[request]))
    verdict = check.judge(served, tuple(answer for _, answer in exchanged))
    return _told(check, verdict, time.monotonic() - started, tuple(exchanged))


def _told(check: Check, verdict: Verdict, seconds: float, exchanged: tuple[tuple[Request, Heard], ...]) -> Outcome:
    evidence = tuple(Evidence(_request(request), _answer(answer)) for request, answer in exchanged)
    return Outcome(check.name, verdict.verdict, verdict.why, verdict.remedy, round(seconds, 3), evidence)


def _request(request: Request) -> str:
    if request.body is None:
        return f"GET {request.path}"
    return f"POST {request.path} {shortened(request.body.decode('utf-8', 'replace'), 600)}"


def _answer(heard: Heard) -> str:
    if heard.status is None:
        return heard.reason
    told = heard.body or " | ".join(data for _, data in heard.events)
    return f"HTTP {heard.status} {shortened(told, 900)}"
