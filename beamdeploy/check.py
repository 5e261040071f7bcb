"""Check files without a server: which kind each is, and everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from beamdeploy import documents, errors, schema
from beamdeploy.documents import Document
from beamdeploy.errors import Problem
from beamdeploy.inventory import inventory_problems
from beamdeploy.outcome import Report
from beamdeploy.recipe import recipe_problems


def check_all(names: Iterable[str]) -> Report:
    """The report on all files: exit 2 when any has an error."""
    files = [file for name in names for file in _files(name)]
    problems = tuple(problem for file in files for problem in check_file(file))
    failed = any(problem.level == "error" for problem in problems)
    return Report("Validate", errors.BAD_INPUT if failed else errors.DONE, problems=problems, details={"files": files})


def check_file(file: str) -> tuple[Problem, ...]:
    """Everything that is wrong with one file."""
    document, problems = documents.load(file)
    if document is None or problems:
        return problems
    kind = kind_of(document)
    if kind == "recipe":
        return recipe_problems(document)
    return inventory_problems(file) if kind == "inventory" else schema.check(document, kind)


def kind_of(document: Document) -> str:
    """recipe, inventory or lock, as the document's keys say."""
    data = document.data if isinstance(document.data, dict) else {}
    if data.get("kind") == "Lock" or document.file.endswith(".lock.yaml"):
        return "lock"
    groups = [key for key, value in data.items() if isinstance(value, dict) and {"hosts", "children"} & set(value)]
    return "inventory" if ("all" in data or groups) and "apiVersion" not in data else "recipe"


def _files(name: str) -> Iterator[str]:
    if name == "-" or not os.path.isdir(name):
        yield name
        return
    yield from sorted(str(path) for path in Path(name).rglob("*") if path.suffix in (".yaml", ".yml"))
