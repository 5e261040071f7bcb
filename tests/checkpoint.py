"""Builds tiny checkpoints (and large sparse ones) as real files, healthy unless a test breaks them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CONFIG = {
    "architectures": ["BeamForCausalLM"],
    "model_type": "beam",
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
HF_QUANT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
DRAFTER_CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "block_size": 16,
    "dflash_config": {"target_layer_ids": [1, 3, 5], "mask_token_id": 999},
}
SHARDS = {
    "model-00001-of-00002.safetensors": {"model.embed_tokens.weight": 64, "model.layers.0.w": 16},
    "model-00002-of-00002.safetensors": {"model.layers.5.w": 16, "lm_head.weight": 64},
}


def safetensors(tensors: Mapping[str, int], *, metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file of U8 tensors of these sizes, zeros as data."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


def lfs_pointer(size: int) -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4' * 64}\nsize {size}\n"


def write(folder: Path, files: Mapping[str, object]) -> None:
    """Write files: bytes and text as they are, None removes, anything else as JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink()
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))


def target(folder: Path) -> Path:
    """A healthy target checkpoint of two shards; the folder itself is returned."""
    weight_map = {tensor: shard for shard, tensors in SHARDS.items() for tensor in tensors}
    write(
        folder,
        {
            "config.json": CONFIG,
            "hf_quant_config.json": HF_QUANT,
            "tokenizer.json": {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}},
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
            "chat_template.jinja": TEMPLATE,
            "model.safetensors.index.json": {"metadata": {"total_size": 160}, "weight_map": weight_map},
            **{shard: safetensors(tensors) for shard, tensors in SHARDS.items()},
        },
    )
    return folder


def drafter(folder: Path) -> Path:
    """A healthy drafter: one file, no index, no tokenizer."""
    write(folder, {"config.json": DRAFTER_CONFIG, "model.safetensors": safetensors({"layers.0.w": 64})})
    return folder


def large(folder: Path, *, shards: int, tensors_a_shard: int, tensor_bytes: int) -> Path:
    """A checkpoint of the shape of a large mixture of experts; tensor data is sparse and takes no room."""
    target(folder)
    for name in SHARDS:
        (folder / name).unlink()
    weight_map: dict[str, str] = {}
    for number in range(1, shards + 1):
        shard = f"model-{number:05d}-of-{shards:05d}.safetensors"
        names = _expert_names(number, tensors_a_shard)
        weight_map |= dict.fromkeys(names, shard)
        _write_sparse(folder / shard, names, tensor_bytes)
    index = {"metadata": {"total_size": len(weight_map) * tensor_bytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return folder


def _expert_names(layer: int, count: int) -> list[str]:
    return [f"model.layers.{layer}.mlp.experts.{n // 4}.down_proj.weight_scale_{n % 4}" for n in range(count)]


def _write_sparse(path: Path, names: Sequence[str], tensor_bytes: int) -> None:
    header = {
        name: {"dtype": "U8", "shape": [tensor_bytes], "data_offsets": [n * tensor_bytes, (n + 1) * tensor_bytes]}
        for n, name in enumerate(names)
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + len(names) * tensor_bytes)
