"""A complete, tiny checkpoint of Beam and its drafter: real file formats and facts, a few bytes of weights.

Sources of the facts: the Beam and DFlash2 model cards, transformers 5.24.0 models/beam, sglang 0.5.23 configs/beam.py.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path

CONFIG: Mapping[str, object] = {
    "architectures": ["BeamForCausalLM"],
    "model_type": "beam",
    "hidden_size": 5120,
    "intermediate_size": 20480,
    "num_hidden_layers": 52,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2560,
    "sliding_window": 512,
    "vocab_size": 151936,
    "max_position_embeddings": 1048576,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QUANTIZATION: Mapping[str, object] = {
    "producer": {"name": "modelopt"},
    "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16},
}
DRAFT_CONFIG: Mapping[str, object] = {
    "architectures": ["DFlash2BeamDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 5,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 1048576,
    "sliding_window": 4096,
    "layer_types": ["sliding_attention"] * 5,
    "block_size": 16,
    "dflash_config": {"target_layer_ids": [4, 16, 28, 40, 46], "mask_token_id": 151935},
    "torch_dtype": "bfloat16",
}
TOKENIZER: Mapping[str, object] = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}
CHAT_TEMPLATE = "{% for message in messages %}<|start|>{{ message.role }}<|end|>{{ message.content }}{% endfor %}"
BYTES = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""Name of a tensor → its dtype and shape."""


def safetensors(tensors: Tensors) -> bytes:
    """A safetensors file of zeros: header length, header, data."""
    header: dict[str, object] = {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


def shard_tensors(shards: int) -> Mapping[str, Tensors]:
    """File name → tensors, for a target checkpoint of so many shards."""
    names = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
    held: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
        name: {f"model.layers.{number}.w": ("U8", (64,))} for number, name in enumerate(names)
    }
    held[names[0]]["model.embed_tokens.weight"] = ("BF16", (4, 8))
    held[names[-1]]["lm_head.weight"] = ("BF16", (4, 8))
    return held


def write_target(folder: Path, *, shards: int = 3) -> Path:
    """Write the NVFP4 target checkpoint into `folder`."""
    files = shard_tensors(shards)
    total = sum(BYTES[dtype] * math.prod(shape) for held in files.values() for dtype, shape in held.values())
    index = {
        "metadata": {"total_size": total},
        "weight_map": {tensor: name for name, held in files.items() for tensor in held},
    }
    _write(folder, {"config.json": CONFIG, "hf_quant_config.json": QUANTIZATION, "tokenizer.json": TOKENIZER})
    _write(folder, {"model.safetensors.index.json": index, "generation_config.json": {"temperature": 0.7}})
    _write(folder, {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}})
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    for name, held in files.items():
        (folder / name).write_bytes(safetensors(held))
    return folder


def write_drafter(folder: Path) -> Path:
    """Write the DFlash2 drafter checkpoint into `folder`."""
    _write(folder, {"config.json": DRAFT_CONFIG})
    (folder / "model.safetensors").write_bytes(safetensors({"layers.0.w": ("BF16", (4, 8))}))
    return folder


def write(model_dir: Path) -> Path:
    """Write both, as a recipe for Beam expects them: `nvfp4` and `dflash2` below `model_dir`."""
    write_target(model_dir / "nvfp4")
    write_drafter(model_dir / "dflash2")
    return model_dir


def _write(folder: Path, files: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
