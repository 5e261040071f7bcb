"""What of a model's shape decides its memory: from the staged config.json, or else from what is known of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beamdeploy.models import DrafterFacts, ModelFacts


@dataclass(frozen=True)
class Shape:
    """`elements`: of the KV cache, a token and layer; `heads`: KV heads that it can be split over, 1: it is copied.

    `full` layers keep the whole context, `sliding` ones `window` tokens. `context`: the model's own, 0: not known.
    """

    full: int
    sliding: int
    window: int
    elements: int
    heads: int
    hidden: int = 0
    context: int = 0

    def kv_bytes(self, tokens: int, element: int, ranks: int, stages: int = 1) -> int:
        """Bytes on each GPU for one sequence of so many tokens, elements of so many bytes, split over `ranks`."""
        held = self.full * tokens + self.sliding * min(tokens, self.window or tokens)
        share = -(-self.heads // ranks) / self.heads
        return round(held * self.elements * element * share / stages)


def of_config(text: str) -> Shape | None:
    """The shape in a config.json; None: it does not say enough."""
    try:
        whole = json.loads(text)
    except ValueError:
        return None
    if not isinstance(whole, dict):
        return None
    nested = whole.get("text_config")
    config = {**whole, **nested} if isinstance(nested, dict) else whole
    layers, heads = _number(config, "num_hidden_layers"), _number(config, "num_attention_heads")
    hidden = _number(config, "hidden_size")
    if not layers or not heads:
        return None
    full, window = _full_layers(config, layers), _number(config, "sliding_window")
    context = _number(config, "max_position_embeddings")
    rank = _number(config, "kv_lora_rank")
    if rank:  # MLA: one latent for all heads, on every GPU
        elements = rank + _number(config, "qk_rope_head_dim")
        return Shape(layers, 0, 0, elements, 1, hidden, context)
    kv_heads = _number(config, "num_key_value_heads") or heads
    head_dim = _number(config, "head_dim") or hidden // heads
    if not head_dim:
        return None
    return Shape(full, layers - full, window, 2 * kv_heads * head_dim, kv_heads, hidden, context)


def of_model(model: ModelFacts) -> Shape:
    """The shape of a model that is known before its weights are there."""
    return Shape(
        model.full_layers,
        model.sliding_layers,
        model.window,
        2 * model.kv_heads * model.head_dim,
        model.kv_heads,
        context=model.context,
    )


def of_drafter(drafter: DrafterFacts) -> Shape:
    """A drafter keeps the whole context: engines write its cache where the target's lies, window or not."""
    return Shape(drafter.layers, 0, 0, 2 * drafter.kv_heads * drafter.head_dim, drafter.kv_heads)


def without_windows(shape: Shape) -> Shape:
    """The same, all layers at full length: an upper bound where an engine does not use the window."""
    return Shape(shape.full + shape.sliding, 0, 0, shape.elements, shape.heads, shape.hidden, shape.context)


def _full_layers(config: Mapping[str, Any], layers: int) -> int:
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        return sum(kind != "sliding_attention" for kind in kinds)
    every = _number(config, "sliding_window_pattern")
    if _number(config, "sliding_window") and every:
        return layers // every
    return layers  # a window without layer types is one that engines may not use


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
