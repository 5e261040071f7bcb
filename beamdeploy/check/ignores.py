"""Which findings are wanted: `# beamdeploy: ignore BD301` in a file, `--select` and `--ignore` on the command line.

What makes a file undeployable (the errors of YAML, schema and inventory: BD001 … BD299) cannot be ignored: `apply`
refuses it all the same, and a check that is silent about it would be of no use.

Rules: BD070 an ignore that hits nothing · BD071 an ignore of what cannot be ignored · BD072 an ignore without a rule ·
BD073 an ignore-file that is not above the first key.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import yaml

from beamdeploy.documents import Document
from beamdeploy.errors import Problem

FIRST_IGNORABLE = "BD300"
MOST_IGNORES = 1000  # beyond that, the comments of a file mean nothing

_COMMENT = re.compile(r"(?:^|(?<=\s))#[ \t]*beamdeploy:[ \t]*(ignore-file|ignore)\b:?[ \t]*(.*)")
_RULES = re.compile(r"BD\d{3}(?!\w)(?:[ \t]*,?[ \t]*BD\d{3}(?!\w))*")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Choice:
    """Prefixes of rule ids, as ("BD3", "BD301"): only these, and not those. Empty `select`: all."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def wants(self, problem: Problem) -> bool:
        """Whether the problem is to be told."""
        if not ignorable(problem):
            return True
        selected = not self.select or problem.rule.startswith(self.select)
        return selected and not (self.ignore and problem.rule.startswith(self.ignore))


@dataclass(frozen=True)
class _Ignore:
    """A comment at `line` and `col`; `covers` is the line that it is about, None: the whole file."""

    line: int
    col: int
    covers: int | None
    rules: tuple[str, ...]
    late: bool = False
    """An ignore-file below the first key, which is not honoured."""


def ignorable(problem: Problem) -> bool:
    """Whether a file may say that it means this."""
    return problem.level != "error" or problem.rule >= FIRST_IGNORABLE


def without_ignored(document: Document, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """The problems that no comment in the file ignores, and what is wrong with these comments."""
    if "beamdeploy:" not in document.text:
        return problems
    ignores = tuple(_ignores(document))
    kept = tuple(problem for problem in problems if not any(_hits(each, problem) for each in ignores))
    told = [_complaint(document, each, rule, problems) for each in ignores for rule in each.rules or ("",)]
    return (*kept, *filter(None, told))


def _hits(ignore: _Ignore, problem: Problem) -> bool:
    here = ignore.covers is None or problem.line == ignore.covers
    return here and not ignore.late and problem.rule in ignore.rules and ignorable(problem)


def _complaint(document: Document, ignore: _Ignore, rule: str, problems: Sequence[Problem]) -> Problem | None:
    def problem(what: str, remedy: str, id: str, level: str) -> Problem:
        return Problem(what, remedy, file=document.file, line=ignore.line, col=ignore.col, rule=id, level=level)

    if not rule:
        remedy = "write the ids of the rules: # beamdeploy: ignore BD301, BD302"
        return problem("this comment names no rule, so it ignores nothing", remedy, "BD072", "warning")
    if ignore.late:
        what = "ignore-file stands below the first key, where it is easily overlooked, and is not honoured"
        return problem(what, "move it above the first key, or write ignore", "BD073", "warning")
    found = [each for each in problems if each.rule == rule and ignore.covers in (None, each.line)]
    if any(not ignorable(each) for each in found) or (not found and rule < FIRST_IGNORABLE):
        what = f"{rule} cannot be ignored: what YAML, schema or inventory do not allow is not deployed either"
        return problem(what, "correct the value, and remove the comment", "BD071", "info")
    if any(not ignorable(each) for each in problems):
        return None  # the rules were not asked yet
    where = "in this file" if ignore.covers is None else f"on line {ignore.covers}"
    return None if found else problem(f"{rule} is ignored here, but is not found {where}", "remove it", "BD070", "info")


def _ignores(document: Document) -> Iterator[_Ignore]:
    lines = document.text.split("\n")
    texts = tuple(_scalars(document.text))
    first_key = min((mark.line for mark in document.keys.values()), default=0)
    for match, start, line in islice(_comments(lines), MOST_IGNORES):
        before = bisect(texts, (start, len(document.text))) - 1
        if before >= 0 and start < texts[before][1]:
            continue  # inside a text
        named = _RULES.match(match[2])
        rules = tuple(dict.fromkeys(re.findall(r"BD\d{3}", named[0]))) if named else ()
        whole = match[1] == "ignore-file"
        alone = not lines[line - 1][: match.start()].strip()
        covers = None if whole else _next_line(lines, line) if alone else line
        yield _Ignore(line, match.start() + 1, covers, rules, late=whole and line >= first_key)


def _comments(lines: Sequence[str]) -> Iterator[tuple[re.Match[str], int, int]]:
    """Each comment that speaks to us, where it starts in the text, and its line."""
    begin = 0
    for number, line in enumerate(lines, 1):
        match = _COMMENT.search(line) if "beamdeploy:" in line else None
        if match:
            yield match, begin + match.start(), number
        begin += len(line) + 1


def _next_line(lines: Sequence[str], line: int) -> int:
    """The first line below `line` that is neither blank nor a comment."""
    below = enumerate(islice(lines, line, line + MOST_IGNORES), line + 1)
    return next((number for number, each in below if each.strip() and each.lstrip()[0] != "#"), line)


def _scalars(text: str) -> Iterator[tuple[int, int]]:
    """Where texts and values begin and end; what looks like a comment in there is none."""
    tokens: Iterable[Any] = yaml.scan(text, Loader=_LOADER)
    for token in tokens:
        if isinstance(token, yaml.ScalarToken):
            yield token.start_mark.index, token.end_mark.index
