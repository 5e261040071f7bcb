"""vLLM's own YAML → words: a file of `vllm serve --config`, or a recipe of the project vllm-project/recipes.

Sources: docs.vllm.ai, configuration/serve_args; github.com/vllm-project/recipes, models/*/*.yaml.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from beamdeploy import hardware
from beamdeploy.dockerrun import Run
from beamdeploy.engines import engine_facts
from beamdeploy.errors import InputError, Problem

_IMAGE = "vllm/vllm-openai"
_MAJORS = {"ampere": "8", "hopper": "9", "blackwell": "10"}
"""What a recipe calls a group of GPUs → their compute capability."""
_READ = {"meta", "model", "features", "variants", "hardware_overrides", "strategy_overrides", "guide", "dependencies"}
_READ |= {"compatible_strategies", "opt_in_features"}


def read_vllm(
    text: str, *, image: str | None, variant: str, gpu: str | None, count: int | None
) -> tuple[Run, tuple[str, ...]]:
    """(the words, notes). InputError: it is neither of the two, or has no such variant."""
    try:
        read: Any = yaml.safe_load(text)  # as vLLM reads it
    except yaml.YAMLError as error:
        raise InputError([Problem(f"it is no YAML: {error}", "Give a file of vLLM.")]) from None
    model = read.get("model") if isinstance(read, dict) else None
    if isinstance(model, str):
        return _config(read, image, count)
    if isinstance(model, dict) and "model_id" in model:
        return _recipe(read, image, variant, gpu, count)
    what = "it is neither a file of `vllm serve --config` nor a recipe of vllm-project/recipes"
    raise InputError([Problem(what, "The one has model: NAME, the other model: {model_id: NAME}.")])


def _config(read: Mapping[str, Any], image: str | None, count: int | None) -> tuple[Run, tuple[str, ...]]:
    """Each key is a flag without its dashes."""
    words = [word for key, value in read.items() if key != "model" for word in _flag(key, value)]
    size = ["--tensor-parallel-size", str(count)] if count and "tensor-parallel-size" not in _dashed(read) else []
    notes = () if image else (f"the file names no image: {_IMAGE} of the catalog's version is taken",)
    return _run(image or _default_image(), str(read["model"]), [*words, *size], {}), notes


def _dashed(read: Mapping[str, Any]) -> set[str]:
    return {key.replace("_", "-") for key in read}


def _flag(key: str, value: Any) -> Iterator[str]:
    """As vLLM makes words of its file: true is the switch alone, false nothing, a list its values."""
    if value is False or value is None or value == []:
        return
    yield f"--{key}"
    if value is not True:
        yield from (_word(each) for each in (value if isinstance(value, list) else [value]))


def _word(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, (dict, list)) else str(value)


def _recipe(
    read: Mapping[str, Any], image: str | None, variant: str, gpu: str | None, count: int | None
) -> tuple[Run, tuple[str, ...]]:
    model, variants = read["model"], read.get("variants") or {"default": {}}
    if variant not in variants:
        raise InputError([Problem(f"there is no variant {variant}", f"There are: {', '.join(variants)}.")])
    chosen, own = variants[variant] or {}, _of_gpu(read.get("hardware_overrides") or {}, gpu)
    by_hand = read.get("opt_in_features") or ()
    features = [said.get("args") for name, said in (read.get("features") or {}).items() if name not in by_hand]
    parts = [model.get("base_args"), *features, chosen.get("extra_args"), own.get("extra_args")]
    words = [str(word) for part in parts for word in part or ()]
    single = ((read.get("strategy_overrides") or {}).get("single_node_tp") or {}).get("tp")
    size = chosen.get("tp") or single or count
    env = {**(model.get("base_env") or {}), **(chosen.get("extra_env") or {}), **(own.get("extra_env") or {})}
    there = image or model.get("docker_image") or f"{_IMAGE}:v{model.get('min_vllm_version', 'latest')}"
    run = _run(there, str(chosen.get("model_id") or model["model_id"]), [*_parallel(size, words), *words], env)
    return run, tuple(_lost(read, gpu, size, image or model.get("docker_image")))


def _parallel(size: int | None, words: list[str]) -> list[str]:
    return ["--tensor-parallel-size", str(size)] if size and "--tensor-parallel-size" not in words else []


def _of_gpu(overrides: Mapping[str, Any], gpu: str | None) -> Mapping[str, Any]:
    """What is meant for this family: by its own name, or by that of its generation."""
    known = hardware.family(gpu) if gpu else None
    for name, said in overrides.items():
        same = gpu is not None and name.lower() == gpu.lower()
        if same or (known is not None and _MAJORS.get(name.lower()) == known.compute_capability.split(".")[0]):
            return said or {}
    return {}


def _lost(read: Mapping[str, Any], gpu: str | None, size: int | None, image: str | None) -> Iterator[str]:
    if size is None:
        yield "the recipe does not say over how many GPUs: give --count, or set engine.tensor_parallel"
    if image is None:
        yield "the recipe names no image: that of its oldest version is taken"
    if gpu is None and read.get("hardware_overrides"):
        yield f"hardware_overrides ({', '.join(read['hardware_overrides'])}) were left out: give --gpu"
    for name in read.get("opt_in_features") or ():
        yield f"the feature {name} is for those who ask for it: it was left out"
    for each in read.get("dependencies") or ():
        yield f"dependency: {each.get('note')}"
    yield from (f"{key} has no place in a recipe" for key in read if key not in _READ)


def _default_image() -> str:
    return f"{_IMAGE}:v{engine_facts('vllm').catalog}"


def _run(image: str, model: str, words: list[str], env: Mapping[str, Any]) -> Run:
    options = {"--publish": ("127.0.0.1:8000:8000",), "--init": ("",), "--entrypoint": ("vllm",)}
    given = {"--env": tuple(f"{name}={value}" for name, value in env.items())} if env else {}
    above = model.rstrip("/").rpartition("/")[0]
    # a folder of this machine: what lies beside it is in the same model_dir
    mounted = {"--volume": (f"{above}:{above}",)} if model.startswith("/") and above else {}
    return Run(image, ("serve", model, *words), {**options, **given, **mounted})
