"""What TokenSpeed checks and prints while it starts, as values: the checks of a launch and the lines of its log.

Sources: TokenSpeed 0.1.1 configs/model_config.py, utils/spec_block_geometry.py, layers/attention/registry.py,
model_loader/, execution/device.py, engine/event_loop.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from beamdeploy.sandbox.arguments import Flag
from beamdeploy.sandbox.rendezvous import meeting

Parsed = Mapping[str, object]

ARCHITECTURES = ("DeepseekV3ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "LlamaForCausalLM")
OURS = {"beam": ("BeamForCausalLM",)}
CACHE_TOKENS = 1_310_720
MEMORY_GB = 267.69
RAISED = -10


class Died(Exception):
    """The engine's end while it starts: its exit status and the lines that it prints last."""

    def __init__(self, status: int, lines: Sequence[str]) -> None:
        self.status = status
        self.lines = tuple(lines)
        super().__init__("; ".join(lines))


@dataclass(frozen=True)
class Launch:
    """What a start is about. `drafter`: None without speculation."""

    model: Path
    config: Mapping[str, object]
    drafter: Path | None
    draft_config: Mapping[str, object]
    engine: Parsed
    served_name: str
    context: int

    @property
    def ranks(self) -> int:
        return _int(self.engine.get("tensor_parallel_size"), 1)

    @property
    def ranks_here(self) -> int:
        """Those of this node."""
        here = meeting(self.engine)
        return -(-self.ranks // here.nodes) if here and self.engine.get("nnodes") else self.ranks


def configure(model: str, engine: Parsed, environ: Mapping[str, str]) -> Launch:
    """Read the checkpoints and check what TokenSpeed checks before it reads weights. Died: the launch is wrong."""
    _check_caching(engine)
    folder = Path(model)
    config = read_config(folder)
    _check_quantization(folder, config, engine)
    context = _context(config, engine, environ)
    drafting = speculative(engine)
    drafter = Path(str(drafting["model"])) if "model" in drafting else None
    draft_config = read_config(drafter) if drafter else {}
    _check_width(drafting, draft_config)
    name = str(engine.get("served_model_name") or model)
    return Launch(folder, config, drafter, draft_config, engine, name, context)


def _traceback(error: str) -> tuple[str, ...]:
    return ("Traceback (most recent call last):", '  File "tokenspeed/cli/serve_smg.py", line 1, in main', error)


def _value_error(text: str) -> Died:
    return Died(1, _traceback(f"ValueError: {text}"))


def rank_died(error: str) -> Died:
    """An error inside a rank: the engine's parent tells which rank is dead and ends with minus ten."""
    lines = (
        "[TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "tokenspeed/runtime/engine/event_loop.py", line 1, in run_event_loop',
        error,
        "Rank 0 scheduler is dead. Please check if there are relevant logs.",
        f"Exit code: {RAISED}",
    )
    return Died(RAISED, lines)


def _check_caching(engine: Parsed) -> None:
    if engine.get("disable_prefix_caching") and not engine.get("disable_kvstore"):
        raise _value_error("--disable-prefix-caching requires --disable-kvstore")


def read_config(folder: Path) -> Mapping[str, object]:
    """config.json. Died: it is missing or broken."""
    if not folder.is_dir():
        what = f"Incorrect path_or_model_id: '{folder}'. Please provide either the path to a local folder"
        raise Died(1, _traceback(f"OSError: {what} or the repo_id of a model on the Hub."))
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Died(1, _traceback(f"OSError: {folder} does not appear to have a file named config.json.")) from None
    except ValueError:
        what = f"OSError: It looks like the config file at '{folder}/config.json' is not a valid JSON file."
        raise Died(1, _traceback(what)) from None
    assert isinstance(config, dict)
    return config


def quantized_as(folder: Path, config: Mapping[str, object]) -> str | None:
    """How the checkpoint says that it is quantized; None: it does not."""
    for key in ("quantization_config", "compression_config"):
        held = config.get(key)
        if isinstance(held, dict):
            algorithm = str(held.get("quant_algo", "")).lower()
            return algorithm if held.get("quant_method") == "modelopt" else str(held.get("quant_method"))
    path = folder / "hf_quant_config.json"
    if not path.is_file():
        return None
    return str(json.loads(path.read_text(encoding="utf-8"))["quantization"]["quant_algo"]).lower()


def _check_quantization(folder: Path, config: Mapping[str, object], engine: Parsed) -> None:
    asked, found = engine.get("quantization"), quantized_as(folder, config)
    alike = {"w8a8_fp8", "compressed-tensors"}
    if asked and found and asked != found and {asked, found} != alike:
        what = f"Quantization method specified in the model config ({found}) does not match the quantization method"
        raise _value_error(f"{what} specified in the `quantization` argument ({asked}).")


def _context(config: Mapping[str, object], engine: Parsed, environ: Mapping[str, str]) -> int:
    own = _int(config.get("max_position_embeddings"), 8192)
    asked = _int(engine.get("max_model_len"), own)
    if asked > own and environ.get("TOKENSPEED_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN") != "1":
        what = f"User-specified context_length ({asked}) is greater than the derived context_length ({own})."
        raise _value_error(f"{what} This may lead to incorrect model outputs or CUDA errors.")
    return asked


def speculative(engine: Parsed) -> Mapping[str, object]:
    """The JSON of --speculative-config; empty without one. Died: it is none."""
    text = engine.get("speculative_config")
    if not text:
        return {}
    try:
        settings = json.loads(str(text))
    except ValueError as error:
        raise _value_error(f"--speculative-config is not valid JSON: {error}") from None
    if not isinstance(settings, dict):
        raise _value_error("--speculative-config must be a JSON object")
    return settings


def _check_width(speculative: Mapping[str, object], draft: Mapping[str, object]) -> None:
    """A DFlash drafter's block width is the number of tokens, exactly; without a number it is taken."""
    nested = draft.get("dflash_config")
    block = nested.get("block_size") if isinstance(nested, dict) else None
    block = block or draft.get("block_size")
    asked = speculative.get("num_speculative_tokens")
    if str(speculative.get("method", "")).upper() != "DFLASH" or not isinstance(block, int) or asked is None:
        return
    if asked != block:
        what = f"DFLASH checkpoint block_size={block} requires --speculative-num-steps {block - 1}"
        raise _value_error(f"{what} and --speculative-num-draft-tokens {block}, got {asked}.")


def check_layers(launch: Launch, catalog: str, environ: Mapping[str, str]) -> None:
    """What fails while layers are built, before weights are read. Died: as a rank."""
    found = launch.config.get("architectures")
    known = (*ARCHITECTURES, *OURS.get(catalog, ()))
    if not isinstance(found, list) or not set(found) & set(known):
        raise rank_died(f"ValueError: Model architectures {found} are not supported for now.")
    visible = environ.get("NVIDIA_VISIBLE_DEVICES", "all")
    if visible not in ("all", "", "void") and len(visible.split(",")) < launch.ranks_here:
        raise rank_died("torch.AcceleratorError: CUDA error: invalid device ordinal")
    for config in (launch.config, launch.draft_config):
        heads = _int(config.get("num_attention_heads"), launch.ranks)
        if heads % launch.ranks:
            raise rank_died(f"AssertionError: {heads} is not divisible by {launch.ranks}")


def check_backends(launch: Launch, catalog: Sequence[Flag]) -> None:
    """What TokenSpeed looks up only after the weights: the names of the attention backends. Died: as a rank."""
    known = {flag.names[0]: flag.known_values for flag in catalog}
    for flag in ("--attention-backend", "--drafter-attention-backend"):
        name = launch.engine.get(flag[2:].replace("-", "_"))
        if name is not None and name not in known["--attention-backend"]:
            available = ", ".join(known["--attention-backend"])
            raise rank_died(f"ValueError: Unknown {flag} '{name}'; available: {available}")


def shards(folder: Path) -> tuple[Path, ...]:
    """The files that the index names, in order; without an index, all that lie there."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return tuple(sorted(folder.glob("*.safetensors")))
    names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return tuple(folder / name for name in sorted(names))


def read_shard(path: Path) -> None:
    """Read a shard's header as safetensors does. Died: it is missing or cut short."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length < 100_000_000 else None
    except FileNotFoundError:
        raise rank_died(f"FileNotFoundError: No such file or directory: {str(path)!r}") from None
    except ValueError:
        header = None
    if header is None:
        raise rank_died("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge")
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    if path.stat().st_size != 8 + length + max(ends, default=0):
        what = "Error while deserializing header: incomplete metadata, file not fully covered"
        raise rank_died(f"safetensors_rust.SafetensorError: {what}")


def shard_line(done: int, total: int) -> str:
    """The progress line after so many shards."""
    percent = 100 * done // total
    return f"Loading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{total} [00:{done:02d}<00:00]"


def loaded_line(config: Mapping[str, object], free: float) -> str:
    """What each rank says when a checkpoint is in memory."""
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else "Model"
    return f"Load weight end. type={name}, dtype=torch.bfloat16, avail mem={free:.2f} GB"


def capture_lines(launch: Launch) -> Iterator[str]:
    """CUDA graph capture: a list, and a bar that is redrawn with carriage returns in one burst."""
    largest = _int(launch.engine.get("max_cudagraph_capture_size"), 80)
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 80, 160) if size <= largest]
    yield f"Kernel startup tuning with {_int(launch.engine.get('chunked_prefill_size'), 8192)} tokens"
    yield f"Capturing batches: {sizes}"
    bars = (
        f"Capturing batches (bs={size} avail_mem=34.20 GB): {100 * (done + 1) // len(sizes):3d}%|{'#' * done}|"
        for done, size in enumerate(reversed(sizes))
    )
    yield "\r".join(bars)


def memory_lines(launch: Launch, cache: int) -> Iterator[str]:
    """From the token limit to the engine's own ready line. The context is shortened in silence to what fits."""
    effective = min(cache, launch.context)
    limit = f"cache={cache} model={launch.context} effective={effective} max_input={effective - 1}"
    yield f"Single-request token limit: {limit}"
    yield "Device memory summary (rank 0, GB):"
    yield from ("  weights        73.90", "  kv cache      150.12", "  free           34.20")
    yield f"TokenSpeed engine ready: max_total_num_tokens={cache} max_req_input_len={effective - 1}"
    yield "Warmup generation succeeded"
    yield "health status -> SERVING"


def _int(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
