"""What engines, docker and drivers print, as data: the phases of a start, and the signatures of failures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from beamdeploy.engines import folder, places

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Phase:
    """A line that tells how far a start is.

    `event`: "begin" or "end" of reading one checkpoint; `part`: "drafter" where the line itself says so; `table`: the
    lines after it are a table of GB. Named groups: done, total, percent; free_gb, weights_gb, kv_gb, graphs_gb;
    context, max_input, kv_tokens, concurrency, max_running.
    """

    phase: str
    regex: re.Pattern[str]
    event: str = ""
    part: str = ""
    table: bool = False


@dataclass(frozen=True)
class Saying:
    """What a failure means. All three may name the regex's groups ({value}); `remedy` also {path}.

    `path`: the recipe's setting; "@flag": the one that gives the flag in the group of that name; "": the host.
    """

    cause: str
    remedy: str
    path: str = ""


@dataclass(frozen=True)
class Failure:
    """A signature. It is looked for in a line and the three that follow, and begins in the line.

    `kind`: "root" is a cause; "effect" one only if nothing else explains the end; "summary" says that there is a cause;
    "harmless" is no failure whatever it looks like.
    `loading`, `loaded`: what it means while the weights are read, and once they are in memory, as a log shows it.
    `confidence`: "high", "medium" or "low". `area`: "docker" for what docker commands end with, otherwise "log".
    """

    id: str
    regex: re.Pattern[str]
    says: Saying
    source: str
    kind: str = "root"
    confidence: str = "high"
    area: str = "log"
    loading: Saying | None = None
    loaded: Saying | None = None


@dataclass(frozen=True)
class EngineLog:
    """One engine's. `recognise`: a line of this engine; `exits`: exit status → what it says when nothing else does."""

    name: str
    recognise: re.Pattern[str]
    phases: tuple[Phase, ...]
    failures: tuple[Failure, ...]
    exits: Mapping[int, Saying]


@dataclass(frozen=True)
class SharedLog:
    """What all engines share. `stalls`: phase → what to look at when it makes no progress."""

    failures: tuple[Failure, ...]
    exits: Mapping[int, Saying]
    stalls: Mapping[str, str]


@cache
def engine_logs() -> Mapping[str, EngineLog]:
    """All engines that have a log.yaml, by name."""
    files = {name: where / "log.yaml" for name, where in reversed([*places()]) if (where / "log.yaml").is_file()}
    return {name: _engine_log(name, _read(files[name])) for name in sorted(files)}


@cache
def shared_log() -> SharedLog:
    """The failures that are told alike whatever the engine."""
    loaded = _read(folder() / "shared-log.yaml")
    return SharedLog(tuple(map(_failure, loaded["failures"])), _exits(loaded), loaded["stalls"])


def failures(engine: str | None) -> tuple[Failure, ...]:
    """The signatures to look for, the engine's own first; without an engine those of all."""
    logs = engine_logs()
    own = [logs[engine]] if engine is not None and engine in logs else list(logs.values())
    return (*(failure for log in own for failure in log.failures), *shared_log().failures)


def exit_saying(engine: str | None, status: int) -> Saying | None:
    """What an exit status alone says."""
    log = engine_logs().get(engine or "")
    return (log.exits.get(status) if log else None) or shared_log().exits.get(status)


def all_failures() -> Iterator[tuple[str, Failure]]:
    """(engine or "", failure), for the document and the tests."""
    yield from ((name, failure) for name, log in engine_logs().items() for failure in log.failures)
    yield from (("", failure) for failure in shared_log().failures)


def _engine_log(name: str, loaded: Mapping[str, Any]) -> EngineLog:
    return EngineLog(
        name,
        re.compile(loaded["recognise"]),
        tuple(Phase(**{**phase, "regex": re.compile(phase["regex"])}) for phase in loaded["phases"]),
        tuple(map(_failure, loaded["failures"])),
        _exits(loaded),
    )


def _exits(loaded: Mapping[str, Any]) -> Mapping[int, Saying]:
    return {status: Saying(**saying) for status, saying in loaded["exits"].items()}


def _failure(entry: Mapping[str, Any]) -> Failure:
    says = Saying(entry["cause"], entry["remedy"], entry.get("path", ""))
    rest = {key: entry[key] for key in ("kind", "confidence", "area") if key in entry}
    return Failure(
        entry["id"],
        re.compile(entry["regex"]),
        says,
        entry["source"],
        **rest,
        loading=_later(says, entry.get("loading")),
        loaded=_later(says, entry.get("loaded")),
    )


def _later(says: Saying, entry: Mapping[str, Any] | None) -> Saying | None:
    """What it means later in a start; what is not said stays. None: the same as ever."""
    return Saying(**{"remedy": says.remedy, "path": says.path, **entry}) if entry else None


def _read(file: Traversable) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)
    return loaded
