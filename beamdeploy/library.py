"""The recipes that come with beamdeploy: what each serves, with which engine, on which GPUs, what was seen of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from beamdeploy import documents, schema, variants
from beamdeploy.errors import InputError, Problem
from beamdeploy.recipe import Recipe, build


@dataclass(frozen=True)
class Entry:
    """One recipe, or a variant of it. `numbers`: the weights' format; `drafting`: the method, or ""."""

    name: str
    variant: str
    model: str
    engine: str
    gpu: str
    count: int
    numbers: str
    drafting: str
    verified: str
    description: str


def folder() -> Path:
    """Where the recipes lie."""
    return Path(str(files("beamdeploy") / "recipes"))


def file_of(name: str) -> Path:
    """The file of a recipe of the library. InputError: there is none of that name."""
    names = [path.stem for path in _paths()]
    if name not in names:
        from difflib import get_close_matches

        near = get_close_matches(name, names, 1, 0.4)
        remedy = f"Did you mean {near[0]}?" if near else "beamdeploy recipes list shows all."
        raise InputError([Problem(f"there is no recipe {name!r} in the library", remedy)])
    return folder() / f"{name}.yaml"


def entries(*, model: str | None = None, engine: str | None = None, gpu: str | None = None) -> tuple[Entry, ...]:
    """All recipes and variants whose model and GPU hold these words, and whose engine is this one."""
    return tuple(
        entry
        for path in _paths()
        for entry in _entries(path)
        if _holds(entry.model, model) and _holds(entry.gpu, gpu) and engine in (None, entry.engine)
    )


def _holds(text: str, word: str | None) -> bool:
    return word is None or word.lower() in text.lower()


def _paths() -> list[Path]:
    return sorted(path for path in folder().glob("*.yaml") if not path.name.endswith(".lock.yaml"))


def _entries(path: Path) -> Iterator[Entry]:
    document, problems = documents.load(str(path))
    if document is None or problems:
        raise InputError(problems)
    for name in (None, *variants.names(document)):
        data = schema.defaults(variants.resolved(document, name).data, "recipe")
        yield _entry(path.stem, name or "", build(data, str(path)))


def _entry(name: str, variant: str, recipe: Recipe) -> Entry:
    return Entry(
        name,
        variant,
        recipe.model.served_name,
        recipe.engine.name,
        recipe.hardware.gpu,
        recipe.hardware.count,
        recipe.quantization.weights or recipe.quantization.dtype or "as published",
        recipe.speculative.method if recipe.speculative else "",
        str(recipe.source.get("verified", "")),
        str(recipe.source.get("description", "")),
    )
