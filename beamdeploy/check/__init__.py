"""Check files without a server: which kind each is, and everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from beamdeploy import documents, errors, schema
from beamdeploy.check.ignores import Choice, without_ignored
from beamdeploy.check.kinds import is_ours, kind_of
from beamdeploy.documents import Document
from beamdeploy.errors import Problem
from beamdeploy.inventory import inventory_problems
from beamdeploy.outcome import Report
from beamdeploy.rules import recipe_problems


def check_all(names: Iterable[str], choice: Choice | None = None, *, strict: bool = False) -> Report:
    """The report on all files, and on those in all folders; exit 2 when any has an error.

    `strict`: warnings are errors. Files of a folder that are not ours are counted, not checked; one without
    any of ours is an error: nothing was looked at where something was meant to be.
    """
    names, files, skipped, problems = tuple(names), [], 0, []
    for file, walked in _files(names):
        found = check_file(file, walked=walked)
        if found is None:
            skipped += 1
            continue
        files.append(file)
        problems += [problem for problem in found if choice is None or choice.wants(problem)]
    problems += _empty(names, files)
    if strict:
        problems = [replace(each, level="error") if each.level == "warning" else each for each in problems]
    failed = any(problem.level == "error" for problem in problems)
    exit = errors.BAD_INPUT if failed else errors.DONE
    return Report("Validate", exit, problems=_sorted(problems), details={"files": files, "skipped": skipped})


def _empty(names: Iterable[str], files: Sequence[str]) -> Iterator[Problem]:
    for name in dict.fromkeys(names):
        if name != "-" and os.path.isdir(name) and not any(file.startswith(os.path.join(name, "")) for file in files):
            yield Problem("there is no recipe or inventory in this folder", "Name a file, or their folder.", file=name)


def check_file(file: str, *, walked: bool = False) -> tuple[Problem, ...] | None:
    """Everything that is wrong with one file. None: it was found in a folder, and is not ours."""
    document, problems = documents.load(file)
    if walked and not is_ours(file, document, problems):
        return None
    return problems if document is None else without_ignored(document, _problems(document, problems))


def _problems(document: Document, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    kind = kind_of(document)
    if kind == "inventory":
        return inventory_problems(document.file, document.text)  # it knows which doubts about YAML are none of ours
    if problems:
        return (*problems, *schema.check(document, kind))  # its values may not be used, the schema skips them
    return recipe_problems(document) if kind == "recipe" else schema.check(document, kind)


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda each: (each.file or "", each.line or 0, each.col or 0, each.rule)))


def _files(names: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Every file once, and whether it was found in a folder."""
    seen = set()
    for name in names:
        folder = name != "-" and os.path.isdir(name)
        for file in _walk(name) if folder else (name,):
            if file not in seen:
                seen.add(file)
                yield file, folder


def _walk(folder: str) -> Iterator[str]:
    """The YAML files below a folder in order; hidden ones, links to folders and what is no file are left out."""
    with os.scandir(folder) as entries:
        found = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
        elif entry.name.endswith((".yaml", ".yml")) and _may_be_file(entry):
            yield entry.path


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """In doubt, as for links that lead in a circle, it is one: who reads it says what is wrong."""
    try:
        return entry.is_file()
    except OSError:
        return True
