"""The serving engines: one folder each, with its facts as data, its template and its catalogs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from beamdeploy.errors import InputError, Problem

FOREIGN = "BEAMDEPLOY_ENGINES"
"""Folders of engines that are not ours, as `--engines` gives them, joined as in PATH."""
TRUSTED = "BEAMDEPLOY_TRUST_ENGINES"
"""Whether their rules.py may run: "1", as `--trust-engines` sets it."""

_OF_THE_RECIPE = ("entrypoint", "port", "ready")


@dataclass(frozen=True)
class EngineFacts:
    """What beamdeploy must know of an engine. `port`: inside the container; `stop_timeout`: seconds, worst case.

    `ready`: the path that answers 200 when the engine can serve; `catalog`: the default flag catalog, "" for none.
    `checkpoint_says`: values of quantization.weights that it reads in the checkpoint and that are not passed.
    `probe`: the file of a program that asks an image, run by `python` in it; None: there is none.
    `reaches`: the settings of the recipe that its words hold; empty: all of them.
    `rank_ports`: of several nodes, the ports that the head opens for the others; the first is the default of
    engine.rank_port, the others move with it; empty: it serves on one node. `rank_env`: variable → "interface" or
    "address", which of a host's it holds.
    """

    name: str
    entrypoint: str
    port: int
    ready: str
    reasoning_field: str
    stop_timeout: int
    catalog: str = ""
    checkpoint_says: tuple[str, ...] = ()
    reaches: tuple[str, ...] = ()
    probe: str | None = None
    python: str = "python3"
    rank_ports: tuple[int, ...] = ()
    rank_env: Mapping[str, str] = field(default_factory=dict)


def folder() -> Traversable:
    """The engines that come with beamdeploy."""
    return files("beamdeploy") / "engines"


def foreign() -> tuple[Path, ...]:
    """The folders of other engines, one folder an engine in each. InputError: one of them is no folder."""
    named = tuple(word for word in os.environ.get(FOREIGN, "").split(os.pathsep) if word)
    wrong = [word for word in named if not (os.path.isdir(word) and os.access(word, os.R_OK | os.X_OK))]
    if wrong:
        remedy = "Name a folder that holds the engines' folders: see docs/adding-an-engine.md."
        where = f"--engines, ${FOREIGN}"
        raise InputError([Problem(f"{word} is no folder that can be read", remedy, where) for word in wrong])
    return tuple(map(Path, named))


def place(name: str) -> Traversable:
    """The folder of one engine; ours, where another has the same name."""
    return dict(reversed([*places()])).get(name, folder() / name)


def places() -> Iterator[tuple[str, Traversable]]:
    """(name, folder) of every engine, ours first."""
    for above in (folder(), *foreign()):
        found = sorted((entry for entry in above.iterdir() if entry.is_dir()), key=lambda entry: entry.name)
        yield from ((entry.name, entry) for entry in found if not entry.name.startswith(("_", ".")))


@cache
def names() -> tuple[str, ...]:
    """The engines that can be named in a recipe."""
    return tuple(sorted({name for name, where in places() if (where / "engine.yaml").is_file()}))


@cache
def engine_facts(name: str) -> EngineFacts:
    """The facts of the engine `name`. InputError: no such engine, or its engine.yaml is not one."""
    if name not in names():
        raise InputError([Problem(f"engine.name: there is no engine {name!r}", f"Known: {', '.join(names())}.")])
    file = place(name) / "engine.yaml"
    try:
        return _facts(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (TypeError, AttributeError, yaml.YAMLError) as error:
        what = f"{file} does not describe an engine: {error}"
        raise InputError([Problem(what, "See docs/adding-an-engine.md.", file=str(file))]) from error


def _facts(read: Mapping[str, Any]) -> EngineFacts:
    lists = {key: tuple(read.get(key, ())) for key in ("checkpoint_says", "reaches", "rank_ports")}
    return EngineFacts(**{**read, **lists})


def facts_of(section: Mapping[str, Any]) -> EngineFacts:
    """The facts of the engine that a recipe's `engine` section names, with what it says of them itself."""
    known = engine_facts(str(section["name"]))
    said = {key: section[key] for key in _OF_THE_RECIPE if section.get(key) is not None}
    return replace(known, **said) if "engine.command" in known.reaches else known
