"""Variants of a recipe: a named change of what the file says, merged into it, one level deep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from beamdeploy.documents import Document, Place
from beamdeploy.errors import InputError, Problem

T = TypeVar("T")
KEY = "variants"
CHOSEN = "--variant"
"""The path of an override that chooses a variant: `(CHOSEN, NAME)`."""


def names(document: Document) -> tuple[str, ...]:
    """The variants that a document has."""
    held = document.data.get(KEY) if isinstance(document.data, dict) else None
    return tuple(held) if isinstance(held, dict) else ()


def resolved(document: Document, name: str | None = None) -> Document:
    """The document as if it were written with the variant `name`, and without the others. InputError: none of it.

    What the variant says stands, for problems, where it is written there.
    """
    data: Any = document.data
    plain = {key: value for key, value in data.items() if key != KEY} if isinstance(data, dict) else data
    if name is None:
        return replace(document, data=plain)
    if name not in names(document):
        known = ", ".join(names(document)) or "none"
        raise InputError([Problem(f"there is no variant {name!r}", f"The recipe has: {known}.", CHOSEN)])
    change = data[KEY][name]
    if not isinstance(change, dict):
        return replace(document, data=plain)
    return replace(
        document,
        data=merged(plain, change),
        keys=_moved(document.keys, name),
        values=_moved(document.values, name),
        written=_moved(document.written, name),
    )


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with what `change` says in its place; only mappings are merged."""
    out = dict(base)
    for key, value in change.items():
        held = out.get(key)
        both = isinstance(value, dict) and isinstance(held, dict)
        out[key] = merged(held, value) if both and isinstance(held, dict) else value
    return out


def _moved(places: Mapping[Place, T], name: str) -> dict[Place, T]:
    """The places of the variant as those of the whole."""
    head = (KEY, name)
    return {**places, **{path[2:]: mark for path, mark in places.items() if path[:2] == head and len(path) > 2}}
