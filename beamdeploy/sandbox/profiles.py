"""The servers that a sandbox can stand for and the faults that it can have, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from beamdeploy.errors import InputError, Problem

DEFAULT = "4xb300"
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Profile:
    """One kind of server. `gpu`: its family as recipes name it; `product`: what nvidia-smi says."""

    name: str
    gpu: str
    product: str
    count: int
    memory_mib: int
    compute_capability: str
    power_w: int
    driver: str
    cuda: str
    mig: str
    fabric: str = "N/A"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    `exit`, `says` and `set` tell how an apply ends with it, `status` what `status` says then; `says` and `status` are
    regular expressions. `cuda`: the CUresult of cuInit in a container; `image_env`: what a pulled image's environment
    says besides.
    """

    name: str
    what: str
    exit: int
    says: str
    status: str
    set: Mapping[str, str] = field(default_factory=dict)
    engine: str | None = None
    load_seconds: float | None = None
    driver: str | None = None
    weights: str | None = None
    gpu_runtime: bool = True
    disk_full: bool = False
    taken: bool = False
    drop: bool = False
    cuda: int | None = None
    image_env: str | None = None


@cache
def profiles() -> Mapping[str, Profile]:
    """All profiles by name."""
    return {name: Profile(name, **values) for name, values in _read("profiles.yaml").items()}


@cache
def faults() -> Mapping[str, Fault]:
    """All faults by name."""
    return {name: Fault(name, **values) for name, values in _read("faults.yaml").items()}


def profile_named(name: str) -> Profile:
    """InputError: there is none of that name."""
    if name not in profiles():
        raise InputError([_unknown("profile", name, profiles())])
    return profiles()[name]


def faults_named(names: Iterable[str]) -> tuple[Fault, ...]:
    """InputError: one of the names is no fault."""
    names = tuple(dict.fromkeys(names))
    problems = [_unknown("fault", name, faults()) for name in names if name not in faults()]
    if problems:
        raise InputError(problems)
    return tuple(faults()[name] for name in names)


def profile_for(gpu: str, count: int) -> Profile | None:
    """The smallest server that has so many of these GPUs; None: there is no profile of that family."""
    fitting = [each for each in profiles().values() if each.gpu.lower() == gpu.lower() and each.count >= count]
    return min(fitting, key=lambda each: each.count, default=None)


def _read(name: str) -> Mapping[str, Mapping[str, Any]]:
    held: Mapping[str, Mapping[str, Any]] = yaml.safe_load((HERE / name).read_text(encoding="utf-8"))
    return held


def _unknown(kind: str, name: str, known: Iterable[str]) -> Problem:
    return Problem(f"the sandbox knows no {kind} {name!r}", f"Known: {', '.join(known)}.", where="sandbox")
