"""What a checkpoint says about its own quantization, against what the recipe asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from beamdeploy.errors import Problem
from beamdeploy.look.facts import Weights

CONFIG = "config.json"
HF_QUANT = "hf_quant_config.json"

# Each method under the names that checkpoints write, lower case, "-" for "_" (TokenSpeed 0.1.1 model_config.py,
# vLLM 0.33.0 and SGLang 0.5.23 quantization registries).
SAME = {
    "nvfp4": {"nvfp4", "modelopt-fp4", "modelopt-nvfp4", "compressed-tensors nvfp4-pack-quantized", "nvfp4-awq"},
    "fp8": {"fp8", "modelopt-fp8", "compressed-tensors float-quantized", "fp8-pb-wo", "fp8-per-channel-per-token"},
    "mxfp4": {"mxfp4", "compressed-tensors mxfp4-pack-quantized"},
    "mxfp8": {"mxfp8", "modelopt-mxfp8"},
    "modelopt": {"fp8", "modelopt-fp8", "nvfp4", "modelopt-fp4"},
    "modelopt-mixed": {"mixed-precision", "modelopt-mixed"},
    "w8a8-fp8": {"w8a8-fp8", "compressed-tensors float-quantized"},
}
NONE = ("", "none", "unquantized", "unquant")


def config(host_path: str, facts: Weights) -> tuple[Mapping[str, Any], tuple[Problem, ...]]:
    """config.json as a mapping; empty with a problem where it is missing or broken."""
    if CONFIG in facts.texts:
        found = _mapping(facts.texts[CONFIG])
        if found is not None:
            return found, ()
    if any(pointer.name == CONFIG for pointer in facts.pointers):
        return {}, ()
    if not any(file.name == CONFIG for file in facts.files):
        what = f"{host_path} has no config.json"
    elif CONFIG not in facts.texts:
        what = f"{host_path}/config.json could not be read"
    else:
        what = f"{host_path}/config.json is no JSON object (or is cut)"
    return {}, (Problem(what, "fetch it again from the same revision as the weights", rule="BD213"),)


def check(
    host_path: str,
    wanted: str | None,
    role: str,
    config: Mapping[str, Any],
    facts: Weights,
    *,
    quantizes: bool = False,
) -> Iterator[Problem]:
    """One problem where recipe and files, or the two files, do not agree. `quantizes`: the engine, while it loads."""
    if role != "target" or not config:
        return
    hf_quant = _mapping(facts.texts.get(HF_QUANT, "{}"))
    if hf_quant is None:
        yield Problem(f"{host_path}/{HF_QUANT} is no JSON object (or is cut)", "fetch it again", rule="BD213")
        return
    told = [said for said in (in_config(config), in_hf_quant(hf_quant)) if said is not None]
    quoted = " and ".join(f"{file} says {quote}" for file, quote, _ in told)
    if wanted is None or _plain(wanted) in NONE:
        if told and wanted is not None:
            yield _differs(host_path, f"`quantization.weights: {wanted}`", quoted)
    elif not told and quantizes:
        return
    elif not told:
        yield _unquantized(host_path, wanted, facts)
    elif not all(agrees(wanted, method) for _, _, method in told):
        yield _differs(host_path, f"`quantization.weights: {wanted}`", quoted)


def in_config(config: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """(file, what it says, method) of config.json; None: it names no quantization."""
    for key in ("quantization_config", "compression_config"):
        section = config.get(key)
        if isinstance(section, Mapping) and section:
            return CONFIG, *_section(key, section)
    return None


def _section(key: str, section: Mapping[str, Any]) -> tuple[str, str]:
    method = str(section.get("quant_method") or section.get("quant_algo") or "")
    quote = f"{key}.{'quant_method' if section.get('quant_method') else 'quant_algo'}: {method or 'nothing'}"
    algorithm = section.get("quant_algo") if _plain(method) == "modelopt" else None
    layout = section.get("format") if _plain(method) == "compressed-tensors" else None
    if algorithm:
        return f"{quote} {algorithm}", str(algorithm)
    return (f"{quote} {layout}", f"{method} {layout}") if layout else (quote, method)


def in_hf_quant(hf_quant: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """(file, what it says, method) of ModelOpt's hf_quant_config.json; None: it names no quantization."""
    section = hf_quant.get("quantization")
    method = str(section.get("quant_algo") or "") if isinstance(section, Mapping) else ""
    return (HF_QUANT, f"quantization.quant_algo: {method}", method) if method else None


def agrees(wanted: str, method: str) -> bool:
    """Whether the checkpoint's method is what the recipe's word means."""
    want, have = _plain(wanted), _plain(method)
    return want == have or want == have.partition(" ")[0] or have in SAME.get(want, ())


def _plain(text: str) -> str:
    return text.strip().lower().replace("_", "-")


def _differs(host_path: str, recipe: str, quoted: str) -> Problem:
    return Problem(
        f"the recipe asks for {recipe}, but in {host_path} {quoted}",
        "stage the checkpoint that the recipe names, or change `quantization.weights` to what is there",
        rule="BD214",
    )


def _unquantized(host_path: str, wanted: str, facts: Weights) -> Problem:
    total = sum(shard.size for shard in facts.shards)
    size = f"; its weights take {total} bytes ({total / 2**30:.1f} GiB)" if total else ""
    return Problem(
        f"the recipe asks for `quantization.weights: {wanted}`, but the checkpoint in {host_path} looks unquantised: "
        f"neither config.json (quantization_config, compression_config) nor hf_quant_config.json names a method{size}",
        "stage the quantised checkpoint that the recipe names, or change `quantization.weights`",
        rule="BD214",
    )


def _mapping(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
