"""The serving engines: one folder each, with its facts as data, its template and its catalogs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import yaml

from beamdeploy.errors import InputError, Problem


@dataclass(frozen=True)
class EngineFacts:
    """What beamdeploy must know of an engine. `port`: inside the container; `stop_timeout`: seconds, worst case.

    `ready`: the path that answers 200 when the engine can serve; `catalog`: the default flag catalog.
    `checkpoint_says`: values of quantization.weights that it reads in the checkpoint and that are not passed.
    """

    name: str
    entrypoint: str
    port: int
    ready: str
    reasoning_field: str
    stop_timeout: int
    catalog: str
    checkpoint_says: tuple[str, ...] = ()


def folder() -> Traversable:
    return files("beamdeploy") / "engines"


def names() -> tuple[str, ...]:
    """The engines that can be named in a recipe."""
    return tuple(sorted(entry.name for entry in folder().iterdir() if (entry / "engine.yaml").is_file()))


@cache
def engine_facts(name: str) -> EngineFacts:
    """The facts of the engine `name`. InputError: no such engine."""
    if name not in names():
        raise InputError([Problem(f"engine.name: there is no engine {name!r}", f"Known: {', '.join(names())}.")])
    text = (folder() / name / "engine.yaml").read_text(encoding="utf-8")
    read = yaml.safe_load(text)
    return EngineFacts(**{**read, "checkpoint_says": tuple(read.get("checkpoint_says", ()))})
