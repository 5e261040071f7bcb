"""Whether a model fits into its GPUs before it is loaded: weights, KV cache, drafter and a margin against memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from beamdeploy.engines.traits import traits
from beamdeploy.fit import shape
from beamdeploy.fit.shape import Shape
from beamdeploy.look.facts import Weights
from beamdeploy.models import ModelFacts, model_of
from beamdeploy.recipe import Recipe

GIB = 2**30
MARGIN = 4 * GIB
"""CUDA's context, communication buffers, kernels' workspaces and graphs on each GPU."""
_ACTIVATIONS = 64
"""Bytes a token of a prefill chunk and element of the hidden state: activations of a layer and of its experts."""
_HIDDEN = 8192
_CHUNK = 8192
_UTILIZATION = 0.9
_ONE_BYTE = ("fp8", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4")
_LARGEST_CONTEXT = 2**31
_TOO_MUCH = 1.05
"""An estimate of the weights must be this much too large before it blocks."""


@dataclass(frozen=True)
class Fit:
    """What each GPU has and needs, in bytes. `exact`: the weights were measured by their headers.

    `context` tokens × `sequences` are what was asked for; `most_context` is what fits with so many sequences (the
    model's own at most), `most_sequences` with so long ones. `notes`: what was assumed.
    """

    memory: int
    utilization: float
    weights: int
    drafter: int
    kv: int
    drafter_kv: int
    margin: int
    context: int
    sequences: int
    most_context: int
    most_sequences: int
    exact: bool
    notes: tuple[str, ...] = ()

    @property
    def usable(self) -> int:
        return int(self.memory * self.utilization)

    @property
    def needed(self) -> int:
        return self.weights + self.drafter + self.kv + self.drafter_kv + self.margin

    @property
    def verdict(self) -> str:
        """ "fits", "less" (not so many tokens at once), "none" (not one sequence), "weights" (not even they)."""
        loaded = self.weights + self.drafter
        if loaded > self.usable * (1 if self.exact else _TOO_MUCH):
            return "weights"
        if self.needed <= self.usable:
            return "fits"
        return "less" if self.most_sequences else "none"


@dataclass(frozen=True)
class _Parts:
    """What a recipe loads: bytes over all GPUs, and shapes; None: not known."""

    weights: int
    drafter: int
    target: Shape | None
    draft: Shape | None
    exact: bool
    notes: tuple[str, ...]


def fit(recipe: Recipe, memory: int, staged: Mapping[str, Weights | None] | None = None) -> Fit | None:
    """The fit on GPUs of so many bytes; None: neither the staged files nor the known models tell the weights' size."""
    parts = _parts(recipe, staged or {})
    if parts is None:
        return None
    engine = recipe.engine
    known = traits(engine.name)
    own = parts.target.context if parts.target else 0
    context = engine.max_model_len or own or 0
    share = engine.gpu_memory_utilization or (known.memory_share if known else None)
    utilization = share or _UTILIZATION
    held = (
        *parts.notes,
        *(() if engine.max_num_seqs else ("max_num_seqs is not said: counted for one sequence",)),
        *(() if share else (f"the engine chooses its share of memory: counted with {utilization:g}",)),
    )
    empty = Fit(
        memory=memory,
        utilization=utilization,
        weights=parts.weights // _gpus_of_one(recipe),
        drafter=parts.drafter // engine.tensor_parallel,
        kv=0,
        drafter_kv=0,
        margin=margin(recipe, parts.target),
        context=context,
        sequences=engine.max_num_seqs or 1,
        most_context=0,
        most_sequences=0,
        exact=parts.exact,
        notes=held,
    )
    return _with_cache(empty, recipe, parts)


def margin(recipe: Recipe, target: Shape | None) -> int:
    """What graphs, activations and CUDA itself are taken to need on each GPU: stated, not measured."""
    hidden = target.hidden if target and target.hidden else _HIDDEN
    chunk = recipe.engine.chunked_prefill_size or _CHUNK
    return MARGIN + max(chunk, 0) * hidden * _ACTIVATIONS // recipe.engine.tensor_parallel


def _with_cache(empty: Fit, recipe: Recipe, parts: _Parts) -> Fit:
    """The cache for what was asked, and the most that would fit."""
    room = empty.usable - empty.needed

    def one(tokens: int) -> tuple[int, int]:
        return _cache(recipe, parts.target, tokens), _drafter_cache(recipe, parts.draft, tokens)

    kv, drafter_kv = one(empty.context)
    a_sequence = kv + drafter_kv
    own = parts.target.context if parts.target else 0
    low, high = 0, (own or _LARGEST_CONTEXT) if a_sequence else 0
    while low < high:  # the longest context of which `sequences` fit
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(one(middle)) * empty.sequences <= room else (low, middle - 1)
    return replace(
        empty,
        kv=kv * empty.sequences,
        drafter_kv=drafter_kv * empty.sequences,
        most_context=low,
        most_sequences=max(0, room) // a_sequence if a_sequence else 0,
    )


def _cache(recipe: Recipe, target: Shape | None, tokens: int) -> int:
    if target is None:
        return 0
    element = 1 if recipe.quantization.kv_cache in _ONE_BYTE else 2
    return target.kv_bytes(tokens, element, recipe.engine.tensor_parallel, recipe.engine.pipeline_parallel or 1)


def _drafter_cache(recipe: Recipe, draft: Shape | None, tokens: int) -> int:
    return 0 if draft is None else draft.kv_bytes(tokens, 2, recipe.engine.tensor_parallel)


def _gpus_of_one(recipe: Recipe) -> int:
    """Over how many GPUs one copy of the weights is split; with expert parallelism nearly all of them are over all."""
    engine = recipe.engine
    if engine.expert_parallel and engine.expert_parallel > 1:
        return recipe.gpus
    return engine.tensor_parallel * (engine.pipeline_parallel or 1)


def _parts(recipe: Recipe, staged: Mapping[str, Weights | None]) -> _Parts | None:
    source, speculative = recipe.model.weights.source, recipe.speculative
    model = model_of(source, recipe.model.served_name)
    variant = model.variant(source) if model else None
    measured = tensor_bytes(staged.get(recipe.model.weights.path))
    weights = measured or (variant.size if variant else None)
    if weights is None:
        return None
    target = _target(staged.get(recipe.model.weights.path), model)
    notes = [] if measured else ["the weights' size is an estimate from the number of parameters"]
    if target is None:
        notes.append("the model's shape is not known: no KV cache is counted")
    drafter = speculative.drafter if speculative else None
    size, draft = 0, None
    if drafter is not None:
        facts = model.drafter(drafter.source) if model else None
        size = tensor_bytes(staged.get(drafter.path)) or (facts.size if facts else 0)
        draft = _staged_shape(staged.get(drafter.path)) or (shape.of_drafter(facts) if facts else None)
        draft = shape.without_windows(draft) if draft else None
        if not size:
            notes.append("the drafter's size is not known and not counted")
    return _Parts(weights, size, target, draft, measured is not None, tuple(notes))


def tensor_bytes(staged: Weights | None) -> int | None:
    """Bytes of all tensors that are loaded, by the shards' headers; None: not all of them can be told."""
    if staged is None or staged.index_error:
        return None
    read = [shard for shard in staged.shards if staged.index is None or shard.name in staged.index]
    if not read or (staged.index is not None and len(read) < len(staged.index)):
        return None
    if any(shard.tensor_bytes is None for shard in read):
        return None
    return sum(shard.tensor_bytes or 0 for shard in read)


def _target(staged: Weights | None, model: ModelFacts | None) -> Shape | None:
    """The staged shape; which of its layers slide, a config.json may leave to the model's own code."""
    told, known = _staged_shape(staged), shape.of_model(model) if model else None
    if told is None or known is None:
        return told or known
    same = told.full == known.full + known.sliding and told.elements == known.elements
    return replace(told, full=known.full, sliding=known.sliding) if same and told.window == known.window else told


def _staged_shape(staged: Weights | None) -> Shape | None:
    text = staged.texts.get("config.json") if staged else None
    return shape.of_config(text) if text else None
