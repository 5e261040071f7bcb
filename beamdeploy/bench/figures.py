"""What a run of requests amounts to, and how it compares with an earlier one: values in, values out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from beamdeploy.bench.load import Run, Sample
from beamdeploy.errors import InputError, Problem
from beamdeploy.regular import text_of

COMPARED = ("ttft.p50", "ttft.p99", "inter_token.p50", "latency.p50", "user_tokens_per_second", "tokens_per_second")


@dataclass(frozen=True)
class Spread:
    """Seconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Level:
    """One level of concurrency. None: no request ended well, or it cannot be known.

    `ttft`: until the first token; `inter_token`: from the first to the last, by the tokens between; `latency`: the
    whole request; `user_tokens_per_second`: what one of the users sees; `acceptance`: share of the drafted tokens.
    """

    concurrency: int
    requests: int
    failed: int
    seconds: float
    input_tokens: float | None
    output_tokens: float | None
    ttft: Spread | None
    inter_token: Spread | None
    latency: Spread | None
    user_tokens_per_second: float | None
    tokens_per_second: float
    requests_per_second: float
    acceptance: float | None


@dataclass(frozen=True)
class Change:
    """A figure now and before, and the ratio of both."""

    concurrency: int
    figure: str
    before: float
    now: float

    @property
    def ratio(self) -> float:
        return self.now / self.before


def level(run: Run, acceptance: float | None) -> Level:
    """The figures of a run."""
    good = [each for each in run.samples if not each.error]
    tokens = sum(each.tokens for each in good)
    return Level(
        concurrency=run.concurrency,
        requests=len(run.samples),
        failed=len(run.samples) - len(good),
        seconds=round(run.seconds, 3),
        input_tokens=_mean(each.prompt_tokens for each in good),
        output_tokens=_mean(each.tokens for each in good),
        ttft=spread([each.first for each in good]),
        inter_token=spread([each for each in map(_inter_token, good) if each is not None]),
        latency=spread([each.seconds for each in good]),
        user_tokens_per_second=_mean(each.tokens / each.seconds for each in good if each.seconds),
        tokens_per_second=round(tokens / run.seconds, 3) if run.seconds else 0.0,
        requests_per_second=round(len(good) / run.seconds, 3) if run.seconds else 0.0,
        acceptance=acceptance,
    )


def spread(values: Sequence[float]) -> Spread | None:
    """Percentiles; None of nothing."""
    return Spread(*(round(percentile(values, part), 6) for part in (50, 90, 99))) if values else None


def percentile(values: Sequence[float], part: float) -> float:
    """Linear between the two nearest."""
    ranked = sorted(values)
    place = (len(ranked) - 1) * part / 100
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)


def accepted_share(before: tuple[float, float] | None, after: tuple[float, float] | None) -> float | None:
    """Of the tokens drafted between two looks at the counters, the share that was accepted; None: unknown or none."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    return round((after[0] - before[0]) / (after[1] - before[1]), 4)


def changes(now: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> tuple[Change, ...]:
    """The figures of the levels that both runs have."""
    earlier = {each["concurrency"]: each for each in before}
    pairs = [(each, earlier[each["concurrency"]]) for each in now if each["concurrency"] in earlier]
    found = [
        Change(new["concurrency"], name, _at(old, name), _at(new, name))
        for new, old in pairs
        for name in COMPARED
        if _at(old, name) and _at(new, name)
    ]
    return tuple(found)


def as_data(levels: Iterable[Level]) -> list[dict[str, Any]]:
    """Levels as JSON holds them."""
    return [asdict(each) for each in levels]


def load_earlier(file: str, host: str) -> list[dict[str, Any]]:
    """The levels in the JSON of an earlier run: of this host, else of its only one. InputError: it holds none."""
    try:
        report = json.loads(text_of(file, pipes=True))
        hosts = report["hosts"]
        found = hosts[host] if host in hosts else next(iter(hosts.values())) if len(hosts) == 1 else {}
        levels: list[dict[str, Any]] = found["levels"]
        if report["kind"] == "BenchReport" and all(isinstance(each["concurrency"], int) for each in levels):
            return levels
        why = "it is no BenchReport"
    except (OSError, ValueError) as error:
        why = str(error)
    except (KeyError, TypeError, AttributeError):
        why = "it is no report of bench, or not of this host"
    remedy = "Name a file that `beamdeploy bench … -o json` wrote."
    raise InputError([Problem(f"--against {file} cannot be read: {why}", remedy)])


def _inter_token(each: Sample) -> float | None:
    return (each.last - each.first) / (each.tokens - 1) if each.tokens > 1 else None


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return round(fmean(listed), 3) if listed else None


def _at(levels: Mapping[str, Any], path: str) -> float:
    """A figure by its path; 0 where there is none."""
    value: Any = levels
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else 0.0
