"""Which recipes a test is of: files, folders of them, and their variants."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from beamdeploy import documents, variants
from beamdeploy.check.kinds import is_ours, kind_of
from beamdeploy.errors import InputError, Problem


def recipe_files(names: Iterable[str]) -> tuple[str, ...]:
    """The files, and the recipes in all folders, each once. InputError: a folder holds none."""
    found: dict[str, None] = {}
    empty = []
    for name in names:
        files = tuple(_recipes_in(name)) if os.path.isdir(name) else (name,)
        found |= dict.fromkeys(files)
        empty += [] if files else [Problem("there is no recipe in this folder", "Name a recipe.", file=name)]
    if empty:
        raise InputError(empty)
    return tuple(found)


def _recipes_in(folder: str) -> Iterator[str]:
    for path in sorted(Path(folder).rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in (".yaml", ".yml") and path.is_file() and not hidden and _is_recipe(str(path)):
            yield str(path)


def _is_recipe(file: str) -> bool:
    """Also one that is broken: it is refused later, with all that is wrong with it."""
    document, problems = documents.load(file)
    return is_ours(file, document, problems) and (document is None or kind_of(document) == "recipe")


def variants_of(file: str) -> tuple[str, ...]:
    """The variants that a recipe has; none where it cannot be read, which is said when it is loaded."""
    document, _ = documents.load(file)
    return variants.names(document) if document is not None else ()
