"""Stage tiny weights that are right for a recipe in all that can be checked, or wrong in the one way of a fault."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from beamdeploy.recipe import Recipe
from beamdeploy.sandbox import checkpoint, place

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 4891250304\n"


def stage(folder: Path, recipes: Iterable[Recipe]) -> None:
    """Write the folders that the recipes name below the sandbox's model_dir; what is already right stays."""
    settings = place.settings(str(folder))
    staged = place.read(str(folder), place.STAGED) or {}
    for recipe in recipes:
        for path, wanted in _wanted(recipe, settings["weights"]):
            print_of = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
            target = folder / place.MODELS / path
            if staged.get(path) != print_of or not target.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                _write(target, wanted)
                staged[path] = print_of
    place.write(str(folder), place.STAGED, staged)


def _wanted(recipe: Recipe, faults: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield (
        recipe.model.weights.path,
        {"role": "target", "config": _target(recipe), "faults": [*faults], **_quantized(recipe)},
    )
    if recipe.speculative is not None and recipe.speculative.drafter is not None:
        yield recipe.speculative.drafter.path, {"role": "drafter", "config": _drafter(recipe)}


def _target(recipe: Recipe) -> dict[str, Any]:
    config: dict[str, Any] = dict(checkpoint.CONFIG)
    config["num_attention_heads"] = _divisible(int(config["num_attention_heads"]), recipe.engine.tensor_parallel)
    longest = recipe.engine.max_model_len or 0
    config["max_position_embeddings"] = max(int(config["max_position_embeddings"]), longest)
    return config


def _drafter(recipe: Recipe) -> dict[str, Any]:
    config: dict[str, Any] = dict(checkpoint.DRAFT_CONFIG)
    config["num_attention_heads"] = _divisible(int(config["num_attention_heads"]), recipe.engine.tensor_parallel)
    config["max_position_embeddings"] = max(int(config["max_position_embeddings"]), recipe.engine.max_model_len or 0)
    assert recipe.speculative is not None
    tokens = recipe.speculative.num_speculative_tokens
    if tokens is not None:
        # TokenSpeed and SGLang count the anchor, vLLM does not
        config["block_size"] = tokens + 1 if recipe.engine.name == "vllm" else tokens
    return config


def _divisible(heads: int, ranks: int) -> int:
    return heads if heads % ranks == 0 else heads * ranks


def _quantized(recipe: Recipe) -> dict[str, Any]:
    """How the checkpoint says that it is quantized."""
    wanted = recipe.quantization.weights
    if wanted in (None, "modelopt_fp4", "nvfp4", "modelopt"):
        algorithm = None if wanted is None else "NVFP4"
    else:
        algorithm = str(wanted).upper()
    if algorithm is None:
        return {"quantization": None}
    return {"quantization": {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm}}}


def _write(target: Path, wanted: Mapping[str, Any]) -> None:
    if wanted["role"] == "drafter":
        checkpoint.write_drafter(target)
    else:
        checkpoint.write_target(target)
        _quantize(target, wanted["quantization"])
    (target / "config.json").write_text(json.dumps(wanted["config"], indent=2) + "\n", encoding="utf-8")
    shards = sorted(target.glob("*.safetensors"))
    if "missing-shard" in wanted.get("faults", ()):
        shards[1].unlink()
    if "lfs-pointer" in wanted.get("faults", ()):
        shards[-1].write_text(POINTER.format(oid="4" * 64), encoding="utf-8")


def _quantize(target: Path, quantization: Mapping[str, Any] | None) -> None:
    file = target / "hf_quant_config.json"
    if quantization is None:
        file.unlink()
    elif quantization["quantization"]["quant_algo"] != "NVFP4":
        file.write_text(json.dumps(quantization, indent=2) + "\n", encoding="utf-8")
