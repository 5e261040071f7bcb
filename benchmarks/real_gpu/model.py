"""Write a small Qwen3 with random weights and a tokenizer trained on the spot, laid out as the hub's own cache is.

    python model.py FOLDER [--layers 20 --hidden 2048] [--device cuda:0]

FOLDER/hub/models--beamdeploy--random-qwen3/snapshots/REVISION then holds several safetensors shards with their index,
config, generation_config, tokenizer and chat template. With --measure it is loaded on a device once, and the memory
that its weights took is printed as JSON. The machine's own torch and transformers are used.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

NAME = "beamdeploy/random-qwen3"
REVISION = "0" * 39 + "1"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = """A server is right when the image is the pinned one, the weights are complete, the engine takes its
flags, and a real request is answered. What would fail after twenty minutes of loading should fail in seconds.
Count from one to thirty.
The old one is kept until the new one has answered; what is not known is not claimed. What is 17 + 25? It is 42."""


def snapshot(folder: Path) -> Path:
    """Where the files lie, as `transformers` looks for them below HF_HUB_CACHE."""
    home = folder / "hub" / f"models--{NAME.replace('/', '--')}"
    (home / "refs").mkdir(parents=True, exist_ok=True)
    (home / "refs" / "main").write_text(REVISION, encoding="utf-8")
    return home / "snapshots" / REVISION


def write(target: Path, layers: int, hidden: int, device: str) -> dict[str, object]:
    """Make it and save it; what was made."""
    import torch  # type: ignore[import-not-found]
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM  # type: ignore[import-not-found]

    vocabulary = tokenizer(target)
    heads = hidden // 128
    config = Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=128,
        max_position_embeddings=32768,
        tie_word_embeddings=False,
        eos_token_id=vocabulary["<|im_end|>"],
        bos_token_id=None,
        pad_token_id=vocabulary["<|endoftext|>"],
        dtype="bfloat16",
    )
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=vocabulary["<|im_end|>"],
        pad_token_id=vocabulary["<|endoftext|>"],
        do_sample=True,
        temperature=0.7,
        # random weights would end an answer anywhere: all are as long as they may be, so that times can be compared
        suppress_tokens=list(range(3)),
    )
    model.save_pretrained(target, max_shard_size="500MB")
    parameters = sum(each.numel() for each in model.parameters())
    return {"parameters": parameters, "bytes": sum(each.nbytes for each in model.parameters())}


def tokenizer(target: Path) -> dict[str, int]:
    """Train it on a few sentences, save it; its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXT.splitlines(), trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=alphabet)
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(target)
    vocabulary: dict[str, int] = fast.get_vocab()
    return vocabulary


def loaded(target: Path, device: str) -> dict[str, object]:
    """What the weights take on a GPU, and how long that lasts."""
    import torch
    from transformers import Qwen3ForCausalLM

    torch.cuda.init()
    before, began = torch.cuda.memory_allocated(), time.monotonic()
    model = Qwen3ForCausalLM.from_pretrained(target, device_map=device, dtype="auto")
    taken = torch.cuda.memory_allocated() - before
    assert model is not None
    return {"allocated": taken, "reserved": torch.cuda.memory_reserved(), "load_seconds": time.monotonic() - began}


def main() -> None:
    """Write it, and measure it where there is a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--measure", action="store_true")
    asked = parser.parse_args()
    target = snapshot(asked.folder)
    if asked.measure:
        sys.stdout.write(json.dumps(loaded(target, asked.device)) + "\n")
    else:
        target.mkdir(parents=True, exist_ok=True)
        sys.stdout.write(json.dumps(write(target, asked.layers, asked.hidden, asked.device)) + "\n")


if __name__ == "__main__":
    main()
