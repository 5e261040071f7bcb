"""Lock files: what exactly a recipe's image is. `beam.yaml` has `beam.lock.yaml` beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamdeploy import documents, schema
from beamdeploy.errors import InputError, Problem
from beamdeploy.image import ImageRef, parse_reference


@dataclass(frozen=True)
class Lock:
    """The digest that `reference` named when it was locked."""

    file: str
    reference: str
    digest: str


def lock_file(recipe_file: str) -> str:
    """recipes/beam.yaml → recipes/beam.lock.yaml"""
    return str(Path(recipe_file).with_suffix(".lock.yaml"))


def load_lock(recipe_file: str) -> Lock | None:
    """The lock beside a recipe; None: there is none. InputError: it is not one."""
    file = lock_file(recipe_file)
    if recipe_file == "-" or not os.path.exists(file):
        return None
    document, problems = documents.load(file)
    if document is not None and not problems:
        problems = schema.check(document, "lock")
    if document is None or problems:
        raise InputError(problems)
    data: Any = document.data
    return Lock(file, data["image"]["reference"], data["image"]["digest"])


def require_lock(recipe_file: str, lock: Lock | None) -> None:
    """InputError: the recipe has no lock."""
    if lock is None:
        remedy = f"Write it: beamdeploy lock {recipe_file} -i INVENTORY"
        raise InputError([Problem("--locked was given, and there is no lock", remedy, file=lock_file(recipe_file))])


def locked(ref: ImageRef, lock: Lock) -> ImageRef:
    """`ref` at the lock's digest. InputError: the lock was written for another reference."""
    at = parse_reference(lock.reference)
    if (at.name, at.tag) == (ref.name, ref.tag) and ref.digest in (None, lock.digest):
        return ref.at(lock.digest)
    what = f"the lock is stale: it was written for {lock.reference}, the recipe names {_said(ref)}"
    raise InputError([Problem(what, "Write it anew: beamdeploy lock RECIPE -i INVENTORY", file=lock.file)])


def write_lock(lock: Lock) -> None:
    """Write the file whole or not at all."""
    text = (
        "# Written by `beamdeploy lock`. Commit it beside the recipe.\n"
        "apiVersion: beamdeploy/v1\nkind: Lock\n"
        f"image:\n  reference: {lock.reference}\n  digest: {lock.digest}\n"
    )
    unfinished = Path(lock.file + ".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(lock.file)


def _said(ref: ImageRef) -> str:
    named = f"{ref.name}:{ref.tag}" if ref.tag else ref.name
    return f"{named}@{ref.digest}" if ref.digest else named
