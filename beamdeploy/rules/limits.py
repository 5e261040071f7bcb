"""Rules on what an engine refuses of a model, on some GPUs, or in a step: `refuses` and `step` of its traits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from beamdeploy.documents import Place
from beamdeploy.rules.combinations import width_of
from beamdeploy.rules.rule import Finding, Rule, Subject, whole


def _refused(subject: Subject) -> Iterator[Finding]:
    for entry in subject.traits.refuses:
        if _holds(subject, entry):
            path = _place(subject, entry["at"])
            said = _said(subject, entry["at"])
            on = (
                f" on {subject.family.name}"
                if subject.family and _gpus(entry) and entry["at"] != "hardware.gpu"
                else ""
            )
            yield Finding(
                path, f"{said}{on}: {entry['why']}", f"{entry['remedy']}.", key=path[:2] == ("engine", "args")
            )


def _holds(subject: Subject, entry: Mapping[str, Any]) -> bool:
    model = entry.get("model")
    return (
        (model is None or (subject.model is not None and subject.model.name == model))
        and ("variants" not in entry or (subject.variant is not None and subject.variant.name in entry["variants"]))
        and _on_gpu(subject, entry)
        and all(subject.setting(path) in values for path, values in entry.get("when", {}).items())
        and all(subject.setting(path) not in (None, *values) for path, values in entry.get("other", {}).items())
        and all((subject.setting(path) or 1) > least for path, least in entry.get("above", {}).items())
        and all(_given(subject, name, values) for name, values in entry.get("flags", {}).items())
        and not any(_there(subject, name) for name in entry.get("without", ()))
    )


def _gpus(entry: Mapping[str, Any]) -> bool:
    return "gpus" in entry or "gpus_other_than" in entry


def _on_gpu(subject: Subject, entry: Mapping[str, Any]) -> bool:
    if not _gpus(entry):
        return True
    if subject.family is None:
        return False
    major = int(subject.family.compute_capability.partition(".")[0])
    return major in entry["gpus"] if "gpus" in entry else major not in entry["gpus_other_than"]


def _given(subject: Subject, name: str, values: tuple[str, ...] | None) -> bool:
    value = subject.argument(name)
    return value not in (None, False) and (values is None or str(value) in values)


def _there(subject: Subject, name: str) -> bool:
    return subject.argument(name) not in (None, False) if name.startswith("--") else subject.setting(name) is not None


def _place(subject: Subject, at: str) -> Place:
    """Where it is said: a setting, or a flag under the spelling of engine.args."""
    if not at.startswith("--"):
        return tuple(at.split("."))
    for key in subject.recipe.engine.args:
        flag = subject.flag(f"--{key}")
        if f"--{key}" == at or (flag is not None and flag.name == at):
            return ("engine", "args", key)
    return ("engine", "args")


def _said(subject: Subject, at: str) -> str:
    value = subject.argument(at) if at.startswith("--") else subject.setting(at)
    where = ".".join(map(str, _place(subject, at)))
    return where if value is True or isinstance(value, Mapping) else f"{where}: {value}"


def _tokens(subject: Subject) -> Iterator[Finding]:
    if subject.traits.step != "decode-counts":
        return
    engine = subject.recipe.engine
    chunk, seqs, length = engine.chunked_prefill_size, engine.max_num_seqs, engine.max_model_len
    if chunk is None:
        return
    where, what = "engine.chunked_prefill_size", f"engine.chunked_prefill_size: {chunk} tokens a step"
    counts = f"{engine.name} counts decoding requests in it"
    if chunk < 0:
        yield Finding(where, f"{what}: {engine.name} takes no {chunk}", "Add no-enable-chunked-prefill: true instead.")
    elif seqs is not None and chunk < seqs * width_of(subject):
        least = seqs * width_of(subject)
        yield Finding(
            where, f"{what} are less than {seqs} requests take ({least}): {counts}", f"Give at least {least}."
        )
    elif length is not None and chunk < length and _unchunked(subject):
        remedy = f"Give at least {length}, or leave chunked prefill on."
        yield Finding(where, f"{what} are less than engine.max_model_len: {length} without chunked prefill", remedy)


def _unchunked(subject: Subject) -> bool:
    return any(subject.recipe.engine.args.get(name) is True for name in _OFF)


_OFF = ("no-enable-chunked-prefill", "disable-chunked-prefill")


def _pages(subject: Subject) -> Iterator[Finding]:
    chunk = subject.recipe.engine.chunked_prefill_size
    page = whole(subject.argument("--page-size"))
    if subject.traits.step != "pages" or chunk is None or chunk < 1 or not page or chunk % page == 0:
        return
    what = f"engine.chunked_prefill_size: {chunk} is no multiple of engine.args.page-size: {page}"
    yield Finding("engine.chunked_prefill_size", what, f"Write {max(page, chunk - chunk % page)}.")


_BEAM_VLLM = (
    "image:\n  reference: vllm/vllm-openai:v0.33.0\n"
    'engine:\n  name: vllm\n  catalog: "0.33.0"\n  attention_backend: FLASHINFER\n  max_cudagraph_capture_size: 128\n'
    "  kvstore: null\n"
)
_DRAFTS = "speculative:\n  num_speculative_tokens: 15\n  attention_backend: FLASHINFER"
_BEAM_SGLANG = (
    'image:\n  reference: lmsysorg/sglang:v0.5.23\nengine:\n  name: sglang\n  catalog: "0.5.23"\n  kvstore: null\n'
)

RULES = (
    Rule(
        "BD377",
        "The engine refuses this of the model, or on this GPU",
        "error",
        "Each engine serves some models, number formats and GPUs with some kernels only, and ends its start with "
        "anything else.",
        f"{_BEAM_SGLANG}  moe_backend: triton  # <-",
        f"{_BEAM_SGLANG}  moe_backend: flashinfer_trtllm",
        "vLLM 0.33.0 models/beam/nvidia; SGLang 0.5.23 arg_groups, models/beam.py",
        _refused,
    ),
    Rule(
        "BD378",
        "A step has too few tokens for the requests in it",
        "error",
        "vLLM's --max-num-batched-tokens counts decoding requests as well, each with its drafted tokens, and must hold "
        "a whole prompt when chunked prefill is off.",
        f"{_BEAM_VLLM}  chunked_prefill_size: 64  # <-\n{_DRAFTS}",
        f"{_BEAM_VLLM}  chunked_prefill_size: 8192\n{_DRAFTS}",
        "vLLM 0.33.0 config/scheduler.py:317, config/vllm.py:2346",
        _tokens,
    ),
    Rule(
        "BD379",
        "A prefill chunk is no whole number of pages",
        "error",
        "SGLang's KV cache is kept in pages, and a chunk must end with one.",
        f"{_BEAM_SGLANG}  chunked_prefill_size: 8100  # <-\n  args:\n    page-size: 64",
        f"{_BEAM_SGLANG}  chunked_prefill_size: 8192\n  args:\n    page-size: 64",
        "SGLang 0.5.23 arg_groups/validation_hook.py:245",
        _pages,
    ),
)
