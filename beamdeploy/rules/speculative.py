"""Rules on speculative decoding."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.rules.rule import Finding, Rule, Subject, closest, listed

_COUNTS = {
    "block": "{engine} counts the anchor, so that it is the drafter's block_size exactly",
    "drafts": "{engine} counts the drafted tokens without the anchor, so that it is at most block_size - 1",
    "window": "{engine} counts the anchor and needs one draft beside it",
}


def _method(subject: Subject) -> Iterator[Finding]:
    speculative, methods = subject.recipe.speculative, tuple(subject.traits.methods)
    if speculative is None or not methods or speculative.method.lower() in methods:
        return
    meant = subject.traits.meant.get(speculative.method.lower()) or closest(speculative.method, methods, 0.6)
    what = f"speculative.method: {subject.recipe.engine.name} has no method {speculative.method}"
    known = listed(methods)
    if subject.unverified(("speculative", "method")):
        yield Finding("speculative.method", f"{what} that is known here", "engine.unverified names it.", "info")
        return
    yield Finding("speculative.method", what, f"Did you mean {meant}? Known: {known}." if meant else f"Known: {known}.")


def _drafter(subject: Subject) -> Iterator[Finding]:
    speculative = subject.recipe.speculative
    need = subject.traits.methods.get(speculative.method.lower()) if speculative else None
    if speculative is None or need is None:
        return
    if need == "needed" and speculative.drafter is None:
        what = f"speculative.method: {speculative.method} needs a drafter, and none is given"
        yield Finding("speculative.method", what, "Add speculative.drafter: {path: FOLDER}.")
    if need == "refused" and speculative.drafter is not None:
        what = f"speculative.drafter: the method {speculative.method} takes no drafter"
        yield Finding("speculative.drafter", what, "Remove it.", key=True)


def fitting(tokens: str, block: int) -> tuple[int, int]:
    """Lowest and highest num_speculative_tokens that fit a drafter's block, as an engine counts."""
    return {"drafts": (1, block - 1), "window": (2, block)}.get(tokens, (block, block))


def _tokens(subject: Subject) -> Iterator[Finding]:
    speculative, drafter, counts = subject.recipe.speculative, subject.drafter, subject.traits.tokens
    if speculative is None or drafter is None or counts not in _COUNTS or speculative.method.lower() != drafter.method:
        return
    tokens = speculative.num_speculative_tokens
    low, high = fitting(counts, drafter.block_size)
    if tokens is None or low <= tokens <= high:
        return
    reason = _COUNTS[counts].format(engine=subject.recipe.engine.name)
    what = f"speculative.num_speculative_tokens: {tokens} does not fit {drafter.name} (block_size {drafter.block_size})"
    remedy = f"Write {high}." if low == high else f"Write {low} to {high}."
    yield Finding("speculative.num_speculative_tokens", f"{what}: {reason}", remedy)


def _tokens_needed(subject: Subject) -> Iterator[Finding]:
    speculative = subject.recipe.speculative
    if speculative is None or speculative.num_speculative_tokens is not None:
        return
    if speculative.method.lower() in subject.traits.tokens_needed:
        what = f"speculative.num_speculative_tokens is not set: {subject.recipe.engine.name} has no default for it"
        yield Finding("speculative", what, "Set it.", "error", key=True)
    else:
        what = "speculative.num_speculative_tokens is not set: the engine takes the drafter's own"
        yield Finding("speculative", what, "Set it, so that another drafter is noticed.", key=True)


def _family(subject: Subject) -> Iterator[Finding]:
    if subject.model is None:
        return
    for path in ("engine.attention_backend", "speculative.attention_backend"):
        backend = subject.setting(path)
        families = [name for name, backends in subject.traits.families.items() if backend in backends]
        if families and subject.model.attention not in families:
            fitting_ones = listed(subject.traits.families[subject.model.attention])
            what = (
                f"{path}: {backend} is for {families[0]} attention, {subject.model.name} has {subject.model.attention}"
            )
            yield Finding(path, what, f"Use one of: {fitting_ones}.")


def _window(subject: Subject) -> Iterator[Finding]:
    drafter, windowed = subject.drafter, subject.traits.windowed
    path = "speculative.attention_backend"
    backend = subject.setting(path)
    if backend is None:
        path, backend = "engine.attention_backend", subject.setting("engine.attention_backend")
    known = {each for backends in subject.traits.families.values() for each in backends}
    if drafter is None or not windowed or backend not in known or backend in windowed:
        return
    if subject.model is not None and backend not in subject.traits.families[subject.model.attention]:
        return
    what = f"{path}: {backend} ignores the attention window of {drafter.window} tokens that {drafter.name} declares"
    yield Finding(path, what, f"Set speculative.attention_backend to one of: {listed(windowed)}.")


RULES = (
    Rule(
        "BD380",
        "The engine has no such speculative method",
        "error",
        "Methods are named in the engine's words: a DFlash2 checkpoint is served with method dflash and recognised by "
        "its architecture.",
        "speculative:\n  method: dflash2  # <-",
        "speculative:\n  method: dflash",
        "TokenSpeed 0.1.1 runtime/execution/drafter/__init__.py:163",
        _method,
    ),
    Rule(
        "BD381",
        "The method needs a drafter, or takes none",
        "error",
        "DFLASH and EAGLE3 draft with a checkpoint of their own; MTP drafts with layers of the model.",
        "speculative:\n  method: dflash  # <-\n  drafter: null",
        "speculative:\n  method: dflash\n  drafter:\n    path: dflash2",
        "TokenSpeed 0.1.1 runtime/utils/server_args.py:703",
        _drafter,
    ),
    Rule(
        "BD382",
        "num_speculative_tokens does not fit the drafter",
        "error",
        "Engines count differently. For a block of 16 TokenSpeed takes 16 and nothing else, vLLM at most 15, SGLang 2 "
        "to 16. TokenSpeed compares it before any weight is read.",
        "speculative:\n  num_speculative_tokens: 15  # <-",
        "speculative:\n  num_speculative_tokens: 16",
        "TokenSpeed 0.1.1 utils/spec_block_geometry.py:60; vLLM 0.33.0 models/beam/nvidia/dflash2.py; SGLang 0.5.23 "
        "arg_groups/speculative_hook.py:376",
        _tokens,
    ),
    Rule(
        "BD383",
        "num_speculative_tokens is not set",
        "info",
        "TokenSpeed takes the drafter's own width. vLLM has no default for block drafters: there it is an error.",
        "speculative:  # <-\n  num_speculative_tokens: null",
        "speculative:\n  num_speculative_tokens: 16",
        "TokenSpeed 0.1.1 utils/spec_block_geometry.py; vLLM 0.33.0 config/speculative.py",
        _tokens_needed,
    ),
    Rule(
        "BD384",
        "The attention backend is for another kind of attention",
        "error",
        "A backend for latent attention (MLA) cannot serve a model with grouped heads. It is looked up after the "
        "weights have been read.",
        "engine:\n  attention_backend: trtllm_mla  # <-",
        "engine:\n  attention_backend: trtllm_mha",
        "TokenSpeed 0.1.1 runtime/layers/attention/registry.py:584",
        _family,
    ),
    Rule(
        "BD385",
        "The drafter's backend ignores its attention window",
        "error",
        "A drafter that declares a sliding window is refused, after the weights, with a backend that would ignore it.",
        "speculative:\n  attention_backend: qsa  # <-",
        "speculative:\n  attention_backend: trtllm_mha",
        "TokenSpeed 0.1.1 runtime/execution/drafter/dflash.py:186",
        _window,
    ),
)
