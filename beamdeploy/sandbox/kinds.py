"""How vLLM and SGLang read their words, and what each compares before it reads a weight.

Sources: vllm 0.33.0 config/, entrypoints/cli; sglang 0.5.23 srt/server_args.py, srt/arg_groups.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from beamdeploy.sandbox import startup
from beamdeploy.sandbox.arguments import CATALOGS, ArgumentsRefused, Flag, add_flag, flags
from beamdeploy.sandbox.rendezvous import meeting
from beamdeploy.sandbox.startup import Died, Launch, Parsed

CHECKPOINT_MAY_SAY: Mapping[str, frozenset[str]] = {
    "modelopt_fp4": frozenset({"nvfp4"}),
    "modelopt": frozenset({"fp8", "nvfp4"}),
    "fp8": frozenset({"fp8"}),
}


@dataclass(frozen=True)
class Kind:
    """One engine. `renamed`: its names of what TokenSpeed calls otherwise. `crash`: the status of a failed start."""

    name: str
    catalog: str
    port: int
    host: str
    fields: str
    abbreviates: bool
    crash: int
    dead_while_serving: int
    renamed: Mapping[str, str]


KINDS: Mapping[str, Kind] = {
    "vllm": Kind("vllm", "0.33.0", 8000, "0.0.0.0", "reasoning", False, 1, 0, {}),
    # its host is its default: 127.0.0.1 is reached by no published port
    "sglang": Kind(
        "sglang",
        "0.5.23",
        30000,
        "127.0.0.1",
        "reasoning_content",
        True,
        137,
        137,
        {
            "tensor_parallel_size": "tp_size",
            "max_model_len": "context_length",
            "max_num_seqs": "max_running_requests",
            "max_cudagraph_capture_size": "cuda_graph_max_bs_decode",
        },
    ),
}


def parsed(kind: Kind, words: Sequence[str]) -> tuple[str, Mapping[str, object]]:
    """(model, values) of the words after `serve`. ArgumentsRefused (2): what argparse refuses, at once."""
    parser = argparse.ArgumentParser(prog=f"{kind.name} serve", usage="", allow_abbrev=kind.abbreviates)
    parser.add_argument("model_tag", nargs="?")
    for flag in catalog_of(kind):
        if not flag.names[0].startswith("--"):
            continue
        add_flag(parser, flag)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            values = vars(parser.parse_args([_dashed(word) for word in words]))
    except SystemExit as end:
        raise ArgumentsRefused(int(end.code or 0), printed.getvalue().splitlines()) from None
    model = values.get("model_tag") or values.get("model") or values.get("model_path")
    if not model:
        raise ArgumentsRefused(2, (f"{kind.name} serve: error: the following arguments are required: model",))
    renamed = {ours: values.get(theirs) for ours, theirs in kind.renamed.items()}
    return str(model), {**values, **renamed}


def catalog_of(kind: Kind) -> Iterator[Flag]:
    """All flags of this engine."""
    return iter(flags(kind.catalog, CATALOGS.parent / kind.name))


def _dashed(word: str) -> str:
    """Underscores in a flag's name are taken as dashes (vllm utils/argparse_utils.py)."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else word


def configured(kind: Kind, model: str, engine: Parsed, environ: Mapping[str, str]) -> Launch:
    """What is read and compared before any weight. Died: the launch is wrong."""
    folder = Path(model)
    config = startup.read_config(folder)
    _check_quantization(startup.quantized_as(folder, config), engine)
    _check_numbers(kind, engine, environ)
    context = _context(kind, config, engine, environ)
    drafter = _drafter(kind, engine)
    draft_config = startup.read_config(drafter) if drafter else {}
    name = engine.get("served_model_name") or model
    served = str(name[0] if isinstance(name, list) else name)
    return Launch(folder, config, drafter, draft_config, engine, served, context)


def died(error: str) -> Died:
    """The end of a start with this error, as Python shows it."""
    return Died(1, ("Traceback (most recent call last):", '  File "serve.py", line 1, in main', error))


def _check_quantization(found: str | None, engine: Parsed) -> None:
    asked = engine.get("quantization")
    if asked and found and asked != found and found not in CHECKPOINT_MAY_SAY.get(str(asked), ()):
        what = f"Quantization method specified in the model config ({found}) does not match the quantization method"
        raise died(f"ValueError: {what} specified in the `quantization` argument ({asked}).")


def _check_numbers(kind: Kind, engine: Parsed, environ: Mapping[str, str]) -> None:
    ranks = 1
    for size in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "pp_size", "dp_size"):
        ranks *= whole(engine.get(size), 1)
    here = meeting(engine)
    ranks = -(-ranks // here.nodes) if here else ranks
    visible = environ.get("NVIDIA_VISIBLE_DEVICES", "all")
    if visible not in ("all", "", "void") and len(visible.split(",")) < ranks:
        there = len(visible.split(","))
        raise died(f"ValueError: World size ({ranks}) is larger than the number of available GPUs ({there}).")
    if kind.name == "sglang":
        chunk, page = whole(engine.get("chunked_prefill_size"), 0), whole(engine.get("page_size"), 1)
        if chunk > 0 and chunk % page:
            raise died("AssertionError: chunked_prefill_size must be divisible by page_size")
        return
    if engine.get("enable_auto_tool_choice") and not engine.get("tool_call_parser"):
        raise died("TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser")
    parser, known = engine.get("tool_call_parser"), known_values(kind, "--tool-call-parser")
    if parser is not None and parser not in known:
        raise died(f"KeyError: 'invalid tool call parser: {parser} (chose from {{ {','.join(known)} }})'")
    batched, seqs = whole(engine.get("max_num_batched_tokens"), 8192), whole(engine.get("max_num_seqs"), 1)
    if batched < seqs:
        what = f"max_num_batched_tokens ({batched}) must be greater than or equal to max_num_seqs ({seqs})."
        raise died(f"ValueError: {what}")


def _context(kind: Kind, config: Mapping[str, object], engine: Parsed, environ: Mapping[str, str]) -> int:
    own = whole(config.get("max_position_embeddings"), 8192)
    asked = whole(engine.get("max_model_len"), own)
    variable, name = {
        "vllm": ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "max_model_len"),
        "sglang": ("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "context_length"),
    }[kind.name]
    if asked > own and environ.get(variable) != "1":
        what = f"User-specified {name} ({asked}) is greater than the derived {name} ({own})."
        raise died(f"ValueError: {what}")
    return asked


def _drafter(kind: Kind, engine: Parsed) -> Path | None:
    if kind.name == "sglang":
        path = engine.get("speculative_draft_model_path")
        return Path(str(path)) if path else None
    settings = startup.speculative(engine)
    known = {
        "method",
        "model",
        "num_speculative_tokens",
        "attention_backend",
        "quantization",
        "draft_tensor_parallel_size",
    }
    unknown = sorted(set(settings) - known)
    if unknown:
        raise died(f"pydantic_core.ValidationError: SpeculativeConfig: {unknown[0]}: Extra inputs are not permitted")
    if settings.get("method") == "dflash" and "num_speculative_tokens" not in settings:
        raise died("ValueError: num_speculative_tokens must be provided for method dflash")
    return Path(str(settings["model"])) if "model" in settings else None


def known_values(kind: Kind, name: str) -> tuple[str, ...]:
    """The values of a flag that the engine looks up later."""
    return next(flag.known_values for flag in catalog_of(kind) if flag.names[0] == name)


def whole(value: object, default: int) -> int:
    """A number, or what holds without one."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default
