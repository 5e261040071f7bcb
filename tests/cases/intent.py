"""The cases' neutral "intent" form → our recipe and the inventory's variables of its host: the one translation."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parents[1] / "data" / "cases"
# neutral name of an engine setting → ours; the others are called alike
ENGINE = {"tensor_parallel_size": "tensor_parallel"}
# neutral name of an engine setting → (section, our name), for those that are in a section of their own
ELSEWHERE = {
    "served_model_name": ("model", "served_name"),
    "dtype": ("quantization", "dtype"),
    "quantization": ("quantization", "weights"),
    "kv_cache_dtype": ("quantization", "kv_cache"),
    "tool_call_parser": ("parsers", "tool_call"),
    "reasoning_parser": ("parsers", "reasoning"),
}
# passed to the engine in any case, or told by another field
FIXED = ("listen_host", "speculative", "drafter_attention_backend", "kind")
MOUNT = "/weights/"


@dataclass(frozen=True)
class Wanted:
    """A recipe as data, and the variables of its host."""

    recipe: dict[str, Any]
    name: str
    variables: dict[str, Any]


def load(case: str = "", change: Mapping[str, Any] | None = None) -> Wanted:
    """The base intent with what tests/data/cases/CASE/change.yaml and `change` change, in our names."""
    wanted = _read(DATA / "base.yaml")
    if case:
        wanted = merged(wanted, _read(DATA / case / "change.yaml"))
    return translated(merged(wanted, change or {}))


def table(case: str) -> dict[str, dict[str, Any]]:
    """The rows of tests/data/cases/CASE/rows.yaml by their id."""
    return {row["id"]: row for row in _read(DATA / case / "rows.yaml")["rows"]}


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A deep merge; lists and null replace."""
    result = deepcopy(dict(base))
    for key, value in change.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else deepcopy(value)
    return result


def translated(intent: Mapping[str, Any]) -> Wanted:
    """`weights.host_dir` and `gpus` are the host's, and so the inventory's; `mount_at` is always /weights."""
    engine = intent["engine"]
    recipe: dict[str, Any] = {
        "apiVersion": "beamdeploy/v1",
        "name": intent["name"],
        "hardware": {"gpu": "B300", "count": len(intent["gpus"])},
        "image": {"reference": _reference(intent["image"])},
        "model": {"weights": {"path": intent["weights"]["target"]}},
        "quantization": {},
        "engine": {"name": engine["kind"], "catalog": "beam"},
        "parsers": {},
        "container": {
            "publish": "{host_ip}:{host_port}".format_map(intent["publish"]),
            "shm_size": intent["shm_size"],
            "env": intent["env"],
            "stop_timeout": intent["stop_timeout_s"],
        },
    }
    for setting, value in engine.items():
        section, name = ELSEWHERE.get(setting, ("engine", ENGINE.get(setting, setting)))
        if setting not in FIXED:
            recipe[section][name] = value
    if engine["speculative"] is not None:
        recipe["speculative"] = _speculative(engine)
    variables = {"model_dir": intent["weights"]["host_dir"], "gpus": intent["gpus"]}
    return Wanted(recipe, intent["host"], variables)


def _reference(image: Mapping[str, Any]) -> str:
    digest = f"@{image['digest']}" if image["digest"] else ""
    return f"{image['repo']}:{image['tag']}{digest}"


def _speculative(engine: Mapping[str, Any]) -> dict[str, Any]:
    given = engine["speculative"]
    return {
        "method": given["method"],
        "drafter": {"path": given["model"].removeprefix(MOUNT)},
        "num_speculative_tokens": given["num_speculative_tokens"],
        "attention_backend": engine["drafter_attention_backend"],
    }


def _read(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return data
