"""What config.json allows: how attention heads divide over GPUs, and how long a context may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from beamdeploy.errors import Problem

LENGTHS = ("max_position_embeddings", "max_sequence_length", "seq_length", "max_seq_len", "model_max_length")
# of these the length in config.json is already the scaled one (TokenSpeed 0.1.1, SGLang 0.5.23 model_config.py)
ALREADY_SCALED = ("llama3", "longrope", "su", "mrope", "default")
OVERRIDES = {
    "tokenspeed": "TOKENSPEED_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    "vllm": "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
    "sglang": "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
}


def check_heads(host_path: str, size: int | None, gpus: int | None, config: Mapping[str, Any]) -> Iterator[Problem]:
    """Whether attention heads divide by the tensor parallel size, and KV heads too or are copied evenly."""
    heads = _number(config, "num_attention_heads")
    kv_heads = _number(config, "num_key_value_heads")
    if size is None or size < 1 or not heads or divides(size, heads, kv_heads):
        return
    what = f"{heads} attention heads" if heads % size else f"{kv_heads} KV heads"
    how = "do not divide by" if heads % size else "neither divide by nor divide"
    sizes = [str(one) for one in range(1, max(size, gpus or 0) + 1) if divides(one, heads, kv_heads)]
    yield Problem(
        f"{host_path}/config.json has {what}, which {how} `engine.tensor_parallel: {size}`",
        f"set `engine.tensor_parallel` to one of {', '.join(sizes)}",
        rule="BD217",
    )


def divides(size: int, heads: int, kv_heads: int | None) -> bool:
    """KV heads are split, or copied where there are fewer of them than GPUs."""
    return heads % size == 0 and (not kv_heads or kv_heads % size == 0 or size % kv_heads == 0)


def check_length(
    host_path: str, role: str, engine: str, wanted: int | None, config: Mapping[str, Any]
) -> Iterator[Problem]:
    """Whether the wanted context fits the model's own."""
    if role != "target" or wanted is None or not config:
        return
    key, own, factor = longest(config)
    if own is None:
        yield Problem(
            f"{host_path}/config.json names no {LENGTHS[0]}, so `engine.max_model_len: {wanted}` "
            "has nothing to be compared with",
            "compare it with the model's card",
            rule="BD218",
            level="info",
        )
    elif wanted > own * factor:
        scaled = "" if factor == 1 else f" × rope scaling {factor:g} = {int(own * factor)}"
        override = f" ({OVERRIDES[engine]})" if engine in OVERRIDES else ""
        yield Problem(
            f"`engine.max_model_len: {wanted}` is longer than {host_path}/config.json allows: {key} {own}{scaled}. "
            f"The engine refuses this at start unless told otherwise by its own override{override}",
            f"set `engine.max_model_len: {int(own * factor)}` or less",
            rule="BD218",
        )


def longest(config: Mapping[str, Any]) -> tuple[str, int | None, float]:
    """(key, length, rope factor) of the model's own context; None: config.json does not say."""
    for key in LENGTHS:
        own = _number(config, key)
        if own:
            return key, own, _factor(config)
    return LENGTHS[0], None, 1.0


def _factor(config: Mapping[str, Any]) -> float:
    rope = _value(config, "rope_scaling") or _value(config, "rope_parameters")
    if not isinstance(rope, Mapping) or "original_max_position_embeddings" in rope:
        return 1.0
    kind, factor = rope.get("rope_type") or rope.get("type"), rope.get("factor")
    if kind in ALREADY_SCALED or isinstance(factor, bool) or not isinstance(factor, int | float):
        return 1.0
    return float(factor)


def _number(config: Mapping[str, Any], key: str) -> int | None:
    value = _value(config, key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _value(config: Mapping[str, Any], key: str) -> object:
    """A key of a multimodal model lies under text_config."""
    text = config.get("text_config")
    own = config.get(key)
    return text.get(key) if own is None and isinstance(text, Mapping) else own
