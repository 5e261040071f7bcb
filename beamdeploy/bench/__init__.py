"""Latency and throughput of a server, level by level of concurrency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from beamdeploy.bench.figures import Level, accepted_share, as_data, changes, level
from beamdeploy.bench.load import SILENCE, Run, Size, calibrated, is_exact, request_of, run
from beamdeploy.engines.metrics import accepted_and_drafted, metrics_of
from beamdeploy.errors import DONE, NOT_READY, Problem
from beamdeploy.exchange import Carry, Request
from beamdeploy.outcome import HostReport, Report
from beamdeploy.run import SayHost
from beamdeploy.served import Served

_STEPS = 8
"""A level is told of so many times."""
_NOT_EXACT = "the server knows no ignore_eos: an answer is as long as the model makes it, up to the asked tokens"


@dataclass(frozen=True)
class Wanted:
    """What is measured: `requests` at each level, at least one for each of its users."""

    levels: tuple[int, ...]
    requests: int
    size: Size


def bench(
    carry: Carry, served: Served, host: str, wanted: Wanted, before: Sequence[dict[str, Any]] | None, say: SayHost
) -> Report:
    """Measure every level. HostError: the server does not answer at all, or the session is lost."""
    say(host, "calibrate", f"how many words make {wanted.size.input} tokens")
    exact = is_exact(carry, served)
    words = calibrated(carry, served, wanted.size.input, exact=exact)
    levels: list[Level] = []
    problems: list[Problem] = []
    for concurrency in wanted.levels:
        counted = _counters(carry, served)
        ended = run(
            carry,
            _requests(served, wanted, words, concurrency, exact),
            concurrency,
            _told(wanted, host, concurrency, say),
        )
        levels.append(level(ended, accepted_share(counted, _counters(carry, served))))
        problems += _problems(ended, host)
    notes = () if exact else (Problem(_NOT_EXACT, "Compare tokens a second, not latencies.", host, level="warning"),)
    return _report(host, levels, wanted, before, tuple(problems), notes)


def _requests(served: Served, wanted: Wanted, words: int, concurrency: int, exact: bool) -> tuple[Request, ...]:
    # the number makes the prompt: no two requests of a run are alike
    numbers = range(concurrency * 1_000_000, concurrency * 1_000_000 + max(wanted.requests, concurrency))
    return tuple(request_of(served, words, wanted.size.output, number, exact=exact) for number in numbers)


def _told(wanted: Wanted, host: str, concurrency: int, say: SayHost) -> Callable[[int], None]:
    total = max(wanted.requests, concurrency)

    def done(count: int) -> None:
        if count == total or count * _STEPS // total > (count - 1) * _STEPS // total:
            say(host, f"{concurrency} at a time", f"{count}/{total}")

    return done


def _counters(carry: Carry, served: Served) -> tuple[float, float] | None:
    """The drafter's counters now; None: there is no drafter, or the engine does not show them."""
    metrics = metrics_of(served.engine.name)
    if metrics is None or served.recipe.speculative is None:
        return None
    page = carry(Request(metrics.path), SILENCE, None)
    return accepted_and_drafted(metrics, page.body) if page.status == 200 else None


def _problems(ended: Run, host: str) -> Iterator[Problem]:
    errors = [each.error for each in ended.samples if each.error]
    if errors:
        what = f"{len(errors)} of {len(ended.samples)} requests failed at {ended.concurrency} at a time: {errors[0]}"
        yield Problem(what, "beamdeploy smoke and logs say more.", host)


def _report(
    host: str,
    levels: Sequence[Level],
    wanted: Wanted,
    before: Sequence[dict[str, Any]] | None,
    problems: tuple[Problem, ...],
    notes: tuple[Problem, ...],
) -> Report:
    data = as_data(levels)
    compared = [{**asdict(each), "ratio": round(each.ratio, 4)} for each in changes(data, before or ())]
    exit_code = NOT_READY if problems else DONE
    best = max((each.tokens_per_second for each in levels), default=0.0)
    summary = f"at most {best:.1f} tokens a second with about {wanted.size.input} in, {wanted.size.output} out"
    details = {"levels": data, "size": asdict(wanted.size), **({} if before is None else {"against": compared})}
    outcome = "ok" if not problems else "not right"
    return Report("Bench", exit_code, (HostReport(host, outcome, exit_code, summary, details, (*problems, *notes)),))
