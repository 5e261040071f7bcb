"""A DFlash drafter's block size against `speculative.num_speculative_tokens`, in each engine's own meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from beamdeploy.errors import Problem

FIELD = "speculative.num_speculative_tokens"


def check(
    role: str, method: str | None, engine: str, tokens: int | None, config: Mapping[str, Any]
) -> Iterator[Problem]:
    """Whether the drafter can draft that many tokens. Other methods than dflash have no such rule here."""
    if role != "drafter" or method != "dflash" or tokens is None or not config:
        return
    block = block_size(config)
    if block is None:
        yield Problem(
            f"the drafter's config.json names no block_size, so `{FIELD}: {tokens}` has nothing to be compared with",
            "compare it with the model's card",
            rule="BD216",
            level="info",
        )
        return
    low, high = fitting(engine, block)
    if not low <= tokens <= high:
        values = str(low) if low == high else f"{low} to {high}"
        yield Problem(
            f"`{FIELD}: {tokens}` does not fit the drafter's block_size {block}: {engine} takes {values}",
            f"set `{FIELD}: {high}`, or stage the drafter that the recipe means",
            rule="BD215",
        )


def block_size(config: Mapping[str, Any]) -> int | None:
    """The block size; the nested one is read first (TokenSpeed 0.1.1 spec_block_geometry.py)."""
    nested = config.get("dflash_config")
    for section in (nested if isinstance(nested, Mapping) else {}, config):
        size = section.get("block_size")
        if isinstance(size, int) and not isinstance(size, bool):
            return size
    return None


def fitting(engine: str, block: int) -> tuple[int, int]:
    """Lowest and highest number of tokens that fit.

    TokenSpeed 0.1.1 wants the block exactly; vLLM 0.33.0 counts drafted tokens without the anchor; SGLang 0.5.23
    counts the anchor and needs one draft beside it.
    """
    if engine == "vllm":
        return 1, block - 1
    if engine == "sglang":
        return 2, block
    return block, block
