"""One entry of a host's history for people; `-o json` has all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beamdeploy.report.paste import paste
from beamdeploy.report.text import Line, clean

_SAID = ("at", "by", "action", "outcome", "seconds", "digest", "image", "container", "completion", "error")


def _by_time(phases: Mapping[str, float]) -> list[tuple[float, str]]:
    return sorted((seconds, phase) for phase, seconds in phases.items())


def entry_lines(host: str, entry: Mapping[str, Any], words: Sequence[str]) -> tuple[Line, ...]:
    """The entry, a block a subject; what it does not hold is left out. `words`: its command, without labels."""
    said = {key: entry[key] for key in _SAID if entry[key] not in ("", None)}
    blocks = {
        "": said,
        "changed": {each["path"]: f"{_text(each['old'])} → {_text(each['new'])}" for each in _changes(entry)},
        "steps": {each["kind"]: each["reason"] for each in entry["plan"].get("steps", ())},
        "phases": {phase: f"after {seconds:g} s" for seconds, phase in _by_time(entry["phases"])},
        "the engine decided": {key: value for key, value in entry["decided"].items() if value not in (None, [])},
        "settings": entry["settings"],
    }
    head: Line = ((f"{host}: entry {entry['number']}, {entry['name']}", "bold"),)
    body = [line for title, pairs in blocks.items() if pairs for line in _block(title, pairs)]
    command = [_title("command"), *_indented(paste(words, expand=False), "    ")] if words else []
    return (head, *body, *command)


def _changes(entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = entry["plan"].get("changes", ())
    return found


def _block(title: str, pairs: Mapping[str, Any]) -> Iterator[Line]:
    indent = "    " if title else "  "
    if title:
        yield _title(title)
    wide = max(map(len, pairs))
    for key, value in pairs.items():
        first, *more = clean(_text(value)).splitlines() or [""]
        yield ((f"{indent}{clean(key).ljust(wide)}  ", "dim"), (first, ""))
        yield from _indented("\n".join(more), indent + " " * (wide + 2))


def _title(title: str) -> Line:
    return ((f"  {title}", "bold"),)


def _indented(text: str, indent: str) -> Iterator[Line]:
    yield from (((indent + line, ""),) for line in clean(text).splitlines())


def _text(value: object) -> str:
    """A value as a recipe would have it: text bare, the rest as JSON."""
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
