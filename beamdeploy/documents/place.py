"""A mapping that was read, and where in its file each key and value stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from beamdeploy.errors import Problem

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a text; both count from 1."""

    line: int
    col: int


@dataclass(frozen=True)
class Document:
    """A file's mapping. `written`: the source text of every plain number, true/false and null.

    `faults`: the places already reported by `load`, so that the schema does not report them a second time.
    """

    file: str
    data: object
    keys: Mapping[Place, Mark]
    values: Mapping[Place, Mark]
    text: str
    written: Mapping[Place, str] = field(default_factory=dict)
    faults: frozenset[Place] = frozenset()

    def place(self, path: Place, *, key: bool = False) -> tuple[int, int]:
        """(line, col) of the value (or key) at `path`, else of the nearest known ancestor, else of the file's start."""
        return place(self, path, key=key)

    def problem(
        self, path: Place, what: str, remedy: str, *, rule: str = "", level: str = "error", key: bool = False
    ) -> Problem:
        """A problem at `path`."""
        return problem(self, path, what, remedy, rule=rule, level=level, key=key)


def place(document: Document, path: Place, *, key: bool = False) -> tuple[int, int]:
    """(line, col) of the value (or key) at `path`, else of the nearest known ancestor, else of the file's start."""
    if key and path in document.keys:
        return document.keys[path].line, document.keys[path].col
    for end in range(len(path), -1, -1):
        mark = document.values.get(path[:end]) or document.keys.get(path[:end])
        if mark is not None:
            return mark.line, mark.col
    return 1, 1


def problem(
    document: Document, path: Place, what: str, remedy: str, *, rule: str = "", level: str = "error", key: bool = False
) -> Problem:
    """A problem at `path` of `document`."""
    line, col = place(document, path, key=key)
    return Problem(what, remedy, file=document.file, line=line, col=col, rule=rule, level=level)


def dotted(path: Place) -> str:
    """`("a", 0, "b")` as `a[0].b`; the empty path as `the file`."""
    words = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return words.removeprefix(".") or "the file"
