"""Lock files: what exactly a recipe's image and weights are. `beam.yaml` has `beam.lock.yaml` beside it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamdeploy import documents, schema
from beamdeploy.errors import InputError, Problem
from beamdeploy.image import ImageRef, parse_reference

if TYPE_CHECKING:
    from beamdeploy.recipe import Folder, Recipe

_HEAD = "# Written by `beamdeploy lock`. Commit it beside the recipe.\napiVersion: beamdeploy/v1\nkind: Lock\n"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./-][A-Za-z0-9_]+)*\.[A-Za-z]\w*")


@dataclass(frozen=True)
class LockedFile:
    """One file: its size in bytes and the hex digits of its sha256."""

    size: int
    sha256: str


@dataclass(frozen=True)
class LockedFolder:
    """One weights folder: where it is from, the commit there (None: taken from a host), and its files by path."""

    source: str | None
    revision: str | None
    files: Mapping[str, LockedFile]


@dataclass(frozen=True)
class Lock:
    """What `reference` named when it was locked; None: the recipe's image needs no lock.

    `platforms`: "linux/amd64" → (manifest digest, None where a host was asked; config digest). `weights`: the
    recipe's folder → its files.
    """

    file: str
    reference: str | None = None
    digest: str | None = None
    platforms: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    weights: Mapping[str, LockedFolder] = field(default_factory=dict)


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
    image = data.get("image", {})
    platforms = {name: (one.get("manifest"), one["config"]) for name, one in image.get("platforms", {}).items()}
    weights = {path: _folder(one) for path, one in data.get("weights", {}).items()}
    return Lock(file, image.get("reference"), image.get("digest"), platforms, weights)


def _folder(data: Mapping[str, Any]) -> LockedFolder:
    files = {name: LockedFile(one["size"], one["sha256"]) for name, one in data["files"].items()}
    return LockedFolder(data.get("source"), data.get("revision"), files)


def require_lock(recipe_file: str, lock: Lock | None) -> None:
    """InputError: the recipe has no lock."""
    if lock is None:
        remedy = f"Write it: beamdeploy lock {recipe_file}"
        raise InputError([Problem("--locked was given, and there is no lock", remedy, file=lock_file(recipe_file))])


def locked(ref: ImageRef, lock: Lock) -> ImageRef:
    """`ref` at the lock's digest, if it locks an image. InputError: it was written for another reference."""
    if lock.reference is None or lock.digest is None:
        return ref
    if fits_image(ref, lock):
        return with_ids(ref.at(lock.digest), lock)
    what = f"the lock is stale: it was written for {lock.reference}, the recipe names {_said(ref)}"
    raise InputError([Problem(what, "Write it anew: beamdeploy lock RECIPE", file=lock.file)])


def with_ids(ref: ImageRef, lock: Lock) -> ImageRef:
    """`ref` with the ids that the lock knows for its digest."""
    if ref.digest is None or ref.digest != lock.digest or ref.name != parse_reference(str(lock.reference)).name:
        return ref
    found = (each for one in lock.platforms.values() for each in (one[1], one[0]))
    return replace(ref, ids=tuple(each for each in (*found, lock.digest) if each))


def locked_weights(recipe: Recipe, lock: Lock) -> Mapping[str, LockedFolder]:
    """The recipe's folders that are locked, by path. InputError: one was locked from another source."""
    sources = {folder.path: folder.source for folder in wanted_folders(recipe)}
    wrong = [path for path, held in lock.weights.items() if path in sources and held.source != sources[path]]
    if wrong:
        raise InputError([each for each in _stale(recipe, lock) if "was locked from" in each.what])
    return {path: held for path, held in lock.weights.items() if path in sources}


def fits_image(ref: ImageRef, lock: Lock) -> bool:
    """Whether the lock's image was locked for this reference."""
    at = parse_reference(str(lock.reference))
    return (at.name, at.tag) == (ref.name, ref.tag) and ref.digest in (None, lock.digest)


def stale(recipe: Recipe, lock: Lock) -> tuple[Problem, ...]:
    """In what the lock does not fit the recipe; no server is asked."""
    return tuple(_stale(recipe, lock))


def _stale(recipe: Recipe, lock: Lock) -> Iterator[Problem]:
    remedy = f"Write it anew: beamdeploy lock {recipe.file}"
    if recipe.image.id is None and (lock.reference is None or not fits_image(recipe.image, lock)):
        of = f"it was written for {lock.reference}" if lock.reference else "it locks no image"
        yield Problem(
            f"the lock is stale: {of}, the recipe names {_said(recipe.image)}", remedy, file=lock.file, rule="BD053"
        )
    for folder in wanted_folders(recipe):
        held = lock.weights.get(folder.path)
        if held is None and folder.source is not None:
            yield Problem(f"the lock is stale: it lacks {folder.path}", remedy, file=lock.file, rule="BD053")
        elif held is not None and held.source != folder.source:
            what = f"the lock is stale: {folder.path} was locked from {held.source}, the recipe says {folder.source}"
            yield Problem(what, remedy, file=lock.file, rule="BD053")
    for path in sorted(set(lock.weights) - set(recipe.folders)):
        what = f"the lock is stale: it holds {path}, which the recipe does not name"
        yield Problem(what, remedy, file=lock.file, rule="BD053")


def wanted_folders(recipe: Recipe) -> tuple[Folder, ...]:
    """The recipe's weights folders with their sources."""
    drafter = recipe.speculative.drafter if recipe.speculative else None
    return (recipe.model.weights, *((drafter,) if drafter else ()))


def write_lock(lock: Lock) -> None:
    """Write the file whole or not at all."""
    unfinished = Path(lock.file + ".unfinished")
    unfinished.write_text(text_of(lock), encoding="utf-8")
    unfinished.replace(lock.file)


def text_of(lock: Lock) -> str:
    """The file: sorted, one file of the weights a line, so that a review sees what changed."""
    return "".join(f"{line}\n" for line in (_HEAD.rstrip("\n"), *_image_lines(lock), *_weights_lines(lock)))


def _image_lines(lock: Lock) -> Iterator[str]:
    if lock.reference is None or lock.digest is None:
        return
    yield from ("image:", f"  reference: {lock.reference}", f"  digest: {lock.digest}")
    if lock.platforms:
        yield "  platforms:"
    for name, (manifest, config) in sorted(lock.platforms.items()):
        yield f"    {name}:"
        yield from ((f"      manifest: {manifest}",) if manifest else ())
        yield f"      config: {config}"


def _weights_lines(lock: Lock) -> Iterator[str]:
    if lock.weights:
        yield "weights:"
    for path, folder in sorted(lock.weights.items()):
        yield f"  {_word(path)}:"
        if folder.source is not None:
            yield f"    source: {json.dumps(folder.source, ensure_ascii=False)}"
        if folder.revision is not None:
            # forty digits without a letter would be a number
            yield f'    revision: "{folder.revision}"'
        yield "    files:"
        for name, one in sorted(folder.files.items()):
            yield f'      {_word(name)}: {{size: {one.size}, sha256: "{one.sha256}"}}'


def _word(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _said(ref: ImageRef) -> str:
    named = f"{ref.name}:{ref.tag}" if ref.tag else ref.name
    return f"{named}@{ref.digest}" if ref.digest else named
