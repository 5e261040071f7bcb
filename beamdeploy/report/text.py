"""Reports as lines of styled text: values in, values out. `show` decides where they go and in colour or not."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import unified_diff
from itertools import groupby, zip_longest
from pathlib import Path

from beamdeploy.errors import Problem
from beamdeploy.outcome import HostReport, PlanLine, Report

Span = tuple[str, str]
"""(text, rich style); "" is no style."""
Line = tuple[Span, ...]

_SEQUENCE_OR_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS …: titles, clipboard
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"  # would show words in another order
    r"|[\ud800-\udfff]"  # no stream can encode these
)
_SECRET = re.compile(
    r"""(?ix) ( (?:\b|_) (?:token|password|passwd|pass|secret|api_?key|private_key) ["']? \s* [:=] \s* )
              (?! [{\[>|\s] ) [^\s,}]+"""
)
_HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}")
_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_OUTCOMES = {
    "unchanged": "green",
    "ready": "green",
    "ok": "green",
    "changed": "yellow",
    "not attempted": "dim",
}
_LARGEST_SOURCE = 16 * 1024 * 1024
_MARKS = {"+": "green", "-": "red", "~": "yellow", "!": "bold red"}


def clean(text: str) -> str:
    """Text from elsewhere, safe for a terminal: no control character is left but newline and tab.

    Escape sequences go as a whole; a carriage return becomes a newline; so nothing can hide, overwrite or reorder.
    """
    return _SEQUENCE_OR_CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def clean_line(text: str) -> str:
    """Clean, and on one line."""
    return " ".join(clean(text).split())


def plain(lines: Iterable[Line]) -> str:
    """Lines without style, each ended by a newline."""
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)


def problem_lines(problem: Problem, source: str | None = None, width: int = 120) -> tuple[Line, ...]:
    """`file:line:col: error BD031: what`, the place in the source with a caret, and the remedy.

    `source`: the text of problem.file. None: read it, and show no excerpt where it cannot be read.
    """
    return _told(problem, source.split("\n") if source is not None else _source(problem.file), width)


def _told(problem: Problem, source: Sequence[str], width: int) -> tuple[Line, ...]:
    head, *more = clean(problem.what).splitlines() or [""]
    place = f"{clean_line(problem.place)}: " if problem.place else ""
    label = f"{problem.level} {problem.rule}".strip()
    return (
        ((place, "bold"), (f"{label}: ", _STYLES.get(problem.level, "")), (head, "")),
        *_indented(more, "    "),
        *_excerpt(problem, source, width),
        *_remedy(problem.remedy),
    )


def problems_lines(problems: Sequence[Problem], width: int = 120) -> tuple[Line, ...]:
    """All problems in the order given, and how many there are when there are several."""
    lines = found_lines(problems, width)
    return (*lines, ((count(problems), "bold"),)) if len(problems) > 1 else lines


def found_lines(problems: Sequence[Problem], width: int = 120) -> tuple[Line, ...]:
    """All problems in the order given; a file is read once for all that follow each other."""
    lines: list[Line] = []
    for file, group in groupby(problems, lambda problem: problem.file):
        several = tuple(group)
        source = _source(file) if any(problem.line for problem in several) else ()
        lines += [line for problem in several for line in _told(problem, source, width)]
    return tuple(lines)


def host_lines(hosts: Sequence[HostReport]) -> tuple[Line, ...]:
    """The recap: a row a host with its outcome, exit code where it is not 0, and summary."""
    rows = [
        (clean_line(host.name), host.outcome + (f" ({host.exit})" if host.exit else ""), clean_line(host.summary))
        for host in hosts
    ]
    styles = [_OUTCOMES.get(host.outcome, "" if host.exit == 0 else "red") for host in hosts]
    return tuple(
        ((name, "bold"), ("  ", ""), (outcome, style), ("  ", ""), (summary, ""))
        for (name, outcome, summary), style in zip(_aligned(rows), styles, strict=True)
    )


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[Line, ...]:
    """A table with columns as wide as they need."""
    first, *rest = _aligned([[clean_line(cell) for cell in row] for row in (head, *rows)])
    return (_row(first, "bold"), *(_row(row, "") for row in rest))


def plan_lines(host: str, steps: Sequence[PlanLine]) -> tuple[Line, ...]:
    """What will be done on a host, a line a step, each with its reason and cost."""
    if not steps:
        return (((clean_line(host), "bold"), (": nothing to do", "green")),)
    rows = _aligned([(clean_line(step.what), clean_line(step.reason), clean_line(step.cost)) for step in steps])
    body = [
        ((f"  {step.mark} ", _MARKS.get(step.mark, "")), (f"{what}  ", ""), (f"{reason}  ", "dim"), (cost, ""))
        for step, (what, reason, cost) in zip(steps, rows, strict=True)
    ]
    return (((f"{clean_line(host)}:", "bold"),), *body)


def diff_lines(before: Sequence[str], after: Sequence[str], names: tuple[str, str]) -> tuple[Line, ...]:
    """A unified diff of lines, with their indentation; empty when they are equal."""
    changes = unified_diff([_flat(x) for x in before], [_flat(x) for x in after], *names, lineterm="")
    return tuple(((line, _MARKS.get(line[:1], "")),) for line in changes)


def report_lines(report: Report) -> tuple[Line, ...]:
    """The results of a run for people: plans, then the recap; its problems are shown apart."""
    plans = [line for host in report.hosts if host.plan is not None for line in plan_lines(host.name, host.plan)]
    return (*plans, *host_lines(report.hosts))


def count(problems: Sequence[Problem]) -> str:
    """ "2 errors, 1 warning"; empty for none."""
    levels = [problem.level for problem in problems]
    counts = {level: levels.count(level) for level in dict.fromkeys(levels)}
    return ", ".join(f"{number} {level}{'s' if number > 1 else ''}" for level, number in counts.items())


def _remedy(remedy: str) -> tuple[Line, ...]:
    first, *more = clean(remedy).splitlines() or [""]
    return ((("    remedy: ", "green"), (first, "")), *_indented(more, "            ")) if first else ()


def _indented(lines: Iterable[str], indent: str) -> tuple[Line, ...]:
    return tuple(((indent + line, ""),) for line in lines)


def _excerpt(problem: Problem, source: Sequence[str], width: int) -> tuple[Line, ...]:
    if problem.line is None or not 1 <= problem.line <= len(source):
        return ()
    return _pointed(source[problem.line - 1], problem.line, problem.col, width)


def _pointed(line: str, number: int, column: int | None, width: int) -> tuple[Line, ...]:
    shown = _masked(line.rstrip())
    before = _flat(shown[: column - 1]) if column else ""
    gutter = f"{number:>5} | "
    start = max(0, len(before) - (width - len(gutter)) // 2) if len(gutter + shown) > width else 0
    window = _flat(shown)[start : start + width - len(gutter)]
    code: Line = ((gutter, "dim"), (window, ""))
    if not column:
        return (code,)
    return (code, (("      | ", "dim"), (" " * _cells(before[start:]) + "^", "bold red")))


def _masked(line: str) -> str:
    # An excerpt may end up in the log of a CI: what looks like a secret is never repeated there.
    return _HUB_TOKEN.sub("hf_…", _SECRET.sub(r"\1…", line))


def _flat(text: str) -> str:
    return clean(text).replace("\t", " ").replace("\n", "")


def _source(file: str | None) -> Sequence[str]:
    """The lines of a file; none of what has no end or can be read only once (a device, a pipe)."""
    try:
        if file is None or not Path(file).is_file():
            return ()
        with open(file, encoding="utf-8", errors="replace") as stream:
            return stream.read(_LARGEST_SOURCE).split("\n")
    except (OSError, ValueError):
        return ()


def _cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def _aligned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows, with every cell but the last padded to its column's width."""
    widths = [max(map(_cells, column)) for column in zip_longest(*rows, fillvalue="")]
    return [
        [cell + " " * (wide - _cells(cell)) for cell, wide in zip(row[:-1], widths, strict=False)] + [*row[-1:]]
        for row in rows
    ]


def _row(cells: Sequence[str], style: str) -> Line:
    return (("  ".join(cells), style),)
