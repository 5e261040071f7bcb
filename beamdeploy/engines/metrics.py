"""Where an engine counts what its drafter does, read from its folder's metrics.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import yaml

from beamdeploy.engines import place

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})? ([-+0-9.eE]+|NaN|[+-]Inf)\b")


@dataclass(frozen=True)
class Metrics:
    """`path` on the serving port; `accepted` and `drafted`: names of counters, in the Prometheus text form.

    `remedy`: what makes the engine show them, where it does not. `running`, `waiting`: names of the gauges of requests;
    "": not known.
    """

    path: str
    accepted: str
    drafted: str
    remedy: str = ""
    running: str = ""
    waiting: str = ""


@cache
def metrics_of(engine: str) -> Metrics | None:
    """The metrics of an engine; None: nothing is known of them."""
    file = place(engine) / "metrics.yaml"
    return Metrics(**yaml.safe_load(file.read_text(encoding="utf-8"))) if file.is_file() else None


def accepted_and_drafted(metrics: Metrics, page: str) -> tuple[float, float] | None:
    """The counts since the engine's start, over all its parts; None: the page has no such counters."""
    accepted, drafted = total(page, metrics.accepted), total(page, metrics.drafted)
    return None if accepted is None or drafted is None else (accepted, drafted)


def total(page: str, name: str) -> float | None:
    """The sum of a counter over its labels; None: it is not there."""
    samples = (_SAMPLE.match(line) for line in page.splitlines())
    values = [float(found[2]) for found in samples if found and found[1] == name]
    return sum(values) if values else None
