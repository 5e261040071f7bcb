"""Real checkpoints, looked at by the real script, against the check of the staged weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from beamdeploy.errors import Problem
from beamdeploy.weights.staging import Folder, check
from tests import checkpoint
from tests.checkpoint import lfs_pointer, safetensors, write
from tests.look_script import weights

INDEX = "model.safetensors.index.json"
FIRST, SECOND = checkpoint.SHARDS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A model_dir with a healthy target in nvfp4 and a healthy drafter in dflash2."""
    checkpoint.target(tmp_path / "nvfp4")
    checkpoint.drafter(tmp_path / "dflash2")
    return tmp_path


def staged(root: Path, path: str = "nvfp4", quantization: str | None = "nvfp4") -> tuple[Problem, ...]:
    folder = Folder(path, f"{root}/{path}", "model.weights.path", quantization=quantization)
    return check(folder, weights(root, path))


def said(root: Path, path: str = "nvfp4", quantization: str | None = "nvfp4") -> list[tuple[str, str, str]]:
    """(rule, level, what) of every finding, with the model_dir written as M."""
    return [(p.rule, p.level, p.what.replace(str(root), "M")) for p in staged(root, path, quantization)]


def drafted(root: Path, tokens: int, engine: str = "tokenspeed", method: str = "dflash") -> list[tuple[str, str]]:
    folder = Folder(
        "dflash2",
        f"{root}/dflash2",
        "speculative.drafter.path",
        role="drafter",
        num_speculative_tokens=tokens,
        method=method,
        engine=engine,
    )
    return [(problem.level, problem.what) for problem in check(folder, weights(root, "dflash2"))]


def test_a_healthy_checkpoint_has_no_findings(root: Path) -> None:
    assert staged(root) == ()
    assert drafted(root, 16) == []


def test_a_misspelt_folder_is_named_with_its_field_and_is_not_created(root: Path) -> None:
    assert staged(root, "nvfp5") == (
        Problem(
            f"there is no folder {root}/nvfp5 (`model.weights.path: nvfp5` below the host's `model_dir`)",
            "correct `model.weights.path` in the recipe or `model_dir` in the inventory, or stage the weights there",
            rule="BD201",
        ),
    )
    assert weights(root / "modles", "nvfp4") is None
    assert sorted(path.name for path in root.iterdir()) == ["dflash2", "nvfp4"]


def test_all_lfs_pointers_are_named_in_one_run_with_their_real_size(root: Path) -> None:
    write(root / "nvfp4", {SECOND: lfs_pointer(42949672960), "tokenizer.json": lfs_pointer(17209920)})
    assert said(root) == [
        (
            "BD204",
            "error",
            f"M/nvfp4/{SECOND} is a Git-LFS pointer text, not the file itself; "
            "the real file has 42949672960 bytes (40.0 GiB)",
        ),
        (
            "BD204",
            "error",
            "M/nvfp4/tokenizer.json is a Git-LFS pointer text, not the file itself; "
            "the real file has 17209920 bytes (16.4 MiB)",
        ),
    ]
    assert all("git lfs pull" in problem.remedy for problem in staged(root))


def test_pointers_in_place_of_config_and_index_are_called_nothing_else(root: Path) -> None:
    write(root / "nvfp4", {"config.json": lfs_pointer(1), INDEX: lfs_pointer(2)})
    assert [rule for rule, _, _ in said(root)] == ["BD204", "BD204"]


def test_a_shard_of_the_index_that_is_not_there_is_named_with_its_tensors(root: Path) -> None:
    write(root / "nvfp4", {SECOND: None})
    assert said(root) == [
        ("BD203", "error", f"M/nvfp4/{SECOND} is not there, but {INDEX} needs it for 2 tensors"),
    ]


@pytest.mark.parametrize(("change", "difference"), [(-5, "5 bytes short"), (1, "1 byte too many")])
def test_a_shard_of_another_size_than_its_header_says(root: Path, change: int, difference: str) -> None:
    whole = safetensors(checkpoint.SHARDS[FIRST])
    write(root / "nvfp4", {FIRST: whole[:change] if change < 0 else whole + bytes(change)})
    size = len(whole)
    assert said(root) == [
        ("BD205", "error", f"M/nvfp4/{FIRST} has {size + change} bytes where its header says {size}: {difference}"),
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"abc", b"\xff" * 64, (99).to_bytes(8, "little") + b"{}", (40).to_bytes(8, "little") + b"x" * 40],
    ids=["empty", "no-length", "huge-length", "cut-in-header", "no-json"],
)
def test_a_shard_without_a_readable_header(root: Path, content: bytes) -> None:
    write(root / "nvfp4", {FIRST: content})
    assert said(root) == [
        ("BD206", "error", f"M/nvfp4/{FIRST} has no readable safetensors header ({len(content)} bytes)"),
    ]


def test_a_header_length_that_cuts_the_header_is_unreadable(root: Path) -> None:
    whole = safetensors(checkpoint.SHARDS[FIRST])
    write(root / "nvfp4", {FIRST: (60).to_bytes(8, "little") + whole[8:]})
    assert [rule for rule, _, _ in said(root)] == ["BD206"]


def test_a_shard_of_another_revision_is_found_by_its_tensor_names(root: Path) -> None:
    write(root / "nvfp4", {SECOND: safetensors({"model.layers.5.w": 16, "other.weight": 64})})
    assert said(root) == [
        ("BD207", "error", f"M/nvfp4/{SECOND} lacks 1 tensor that the index puts there (lm_head.weight)"),
        ("BD207", "error", f"M/nvfp4/{SECOND} holds 1 tensor that the index does not put there (other.weight)"),
    ]


def test_braces_in_metadata_do_not_hide_tensors(root: Path) -> None:
    metadata = {"format": "pt", "quant": '{"a": {"b": [1, 2]}, "data": "}{"}', "last": "x"}
    write(root / "nvfp4", {FIRST: safetensors(checkpoint.SHARDS[FIRST], metadata=metadata)})
    assert staged(root) == ()


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("metadata_last", [True, False])
def test_an_index_is_read_however_it_is_laid_out(root: Path, indent: int | None, metadata_last: bool) -> None:
    index = json.loads((root / "nvfp4" / INDEX).read_text())
    metadata = {"format": "pt", "lm_head.weight": "not-a-shard", "total_size": 160}
    places = {"weight_map": index["weight_map"], "metadata": metadata}
    write(
        root / "nvfp4", {INDEX: json.dumps(places if metadata_last else dict(reversed(places.items())), indent=indent)}
    )
    assert staged(root) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"weight_map": {"a": "model-0', "it ends in the middle"),
        ("{}", "it holds no weight_map"),
        ("", "it holds no weight_map"),
    ],
)
def test_an_index_that_cannot_be_used(root: Path, text: str, reason: str) -> None:
    write(root / "nvfp4", {INDEX: text})
    assert said(root) == [("BD203", "error", f"M/nvfp4/{INDEX} cannot be used: {reason}")]


def test_a_single_file_needs_no_index(root: Path) -> None:
    single = safetensors({"w": 64})
    write(root / "nvfp4", {INDEX: None, FIRST: None, SECOND: None, "model.safetensors": single})
    assert staged(root) == ()


def test_a_folder_without_weights(root: Path) -> None:
    write(root / "nvfp4", {INDEX: None, FIRST: None, SECOND: None})
    assert said(root) == [("BD202", "error", "M/nvfp4 holds no weights (no *.safetensors and no index)")]


@pytest.mark.parametrize(
    ("content", "what"),
    [(None, "M/nvfp4 has no config.json"), ("{", "M/nvfp4/config.json is no JSON object (or is cut)")],
)
def test_a_config_that_is_missing_or_broken(root: Path, content: str | None, what: str) -> None:
    write(root / "nvfp4", {"config.json": content})
    assert said(root) == [("BD213", "error", what)]


def test_links_that_leave_the_mounted_folder_are_refused_with_one_and_its_target(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--beam"
    checkpoint.target(repository / "blobs")
    snapshot = repository / "snapshots" / "abc123"
    (snapshot / "nvfp4").mkdir(parents=True)
    for blob in (repository / "blobs").iterdir():
        (snapshot / "nvfp4" / blob.name).symlink_to(f"../../../blobs/{blob.name}")
    (problem,) = staged(snapshot)
    assert (problem.rule, problem.level, problem.what) == (
        "BD208",
        "error",
        f"links in {snapshot}/nvfp4 lead out of the mounted folder: chat_template.jinja → "
        f"{repository}/blobs/chat_template.jinja (and 7 more). "
        "They open on the host, but in the container they would dangle",
    )
    assert "stage real files" in problem.remedy
    assert "models--" in problem.remedy
    assert said(repository, "snapshots/abc123/nvfp4") == []


@pytest.mark.parametrize("link", ["absolute", "climbing", "folder"])
def test_a_link_that_only_resolves_at_the_hosts_path_is_refused(root: Path, link: str) -> None:
    (root / "blob").write_text(checkpoint.TEMPLATE)
    template = root / "nvfp4" / "chat_template.jinja"
    template.unlink()
    if link == "absolute":
        template.symlink_to(root / "blob")
    elif link == "climbing":
        template.symlink_to(f"../../{root.name}/blob")
    else:
        write(root / "nvfp4", {"chat_template.jinja": checkpoint.TEMPLATE})
        (root / "nvfp4").rename(root.parent / "elsewhere")
        (root / "nvfp4").symlink_to("../elsewhere")
    assert [rule for rule, _, _ in said(root)] == ["BD208"]


def test_a_dangling_link_is_no_present_file(root: Path) -> None:
    write(root / "nvfp4", {SECOND: None})
    (root / "nvfp4" / SECOND).symlink_to("blob-that-is-gone")
    assert said(root) == [
        ("BD208", "error", f"M/nvfp4/{SECOND} is a link to M/nvfp4/blob-that-is-gone, which is not there"),
    ]


LEFTOVER = f".cache/huggingface/download/{SECOND}.8f3c.incomplete"


def test_a_leftover_beside_whole_files_is_a_warning(root: Path) -> None:
    write(root / "nvfp4", {LEFTOVER: bytes(77)})
    assert said(root) == [
        (
            "BD210",
            "warning",
            f"M/nvfp4/{LEFTOVER} (77 bytes) is left over from an unfinished download; "
            "the file that it belongs to is not missing",
        ),
    ]


def test_a_leftover_of_a_missing_file_is_connected_with_it(root: Path) -> None:
    write(root / "nvfp4", {LEFTOVER: bytes(77), SECOND: None})
    assert said(root) == [
        (
            "BD210",
            "error",
            f"M/nvfp4/{SECOND} is not there, but {INDEX} needs it for 2 tensors. "
            f"Its download was not finished: {LEFTOVER} (77 bytes) is left over",
        ),
    ]


def test_an_empty_lock_file_is_normal(root: Path) -> None:
    write(root / "nvfp4", {f".cache/huggingface/download/{SECOND}.lock": b""})
    assert staged(root) == ()


ASKED = "the recipe asks for `quantization.weights: nvfp4`, but in M/nvfp4"


@pytest.mark.parametrize(
    ("config", "hf_quant", "what"),
    [
        (
            {"quantization_config": {"quant_method": "fp8"}},
            None,
            f"{ASKED} config.json says quantization_config.quant_method: fp8",
        ),
        (
            {"torch_dtype": "bfloat16"},
            None,
            "the recipe asks for `quantization.weights: nvfp4`, but the checkpoint in M/nvfp4 looks unquantised: "
            "neither config.json (quantization_config, compression_config) nor hf_quant_config.json names a method; "
            "its weights take 463 bytes (0.0 GiB)",
        ),
        (
            {"a": 1},
            {"quantization": {"quant_algo": "FP8"}},
            f"{ASKED} hf_quant_config.json says quantization.quant_algo: FP8",
        ),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            {"quantization": {"quant_algo": "NVFP4"}},
            f"{ASKED} config.json says quantization_config.quant_method: fp8 "
            "and hf_quant_config.json says quantization.quant_algo: NVFP4",
        ),
        (
            {"quantization_config": {"quant_method": "awq"}},
            None,
            f"{ASKED} config.json says quantization_config.quant_method: awq",
        ),
    ],
    ids=["fp8-in-config", "none-at-all", "fp8-in-hf-quant", "contradiction", "awq"],
)
def test_another_quantization_than_the_recipes(root: Path, config: object, hf_quant: object, what: str) -> None:
    write(root / "nvfp4", {"config.json": config, "hf_quant_config.json": hf_quant})
    assert said(root) == [("BD214", "error", what)]


@pytest.mark.parametrize(
    ("wanted", "section"),
    [
        ("nvfp4", {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
        ("nvfp4", {"quant_method": "modelopt_fp4"}),
        ("nvfp4", {"quant_algo": "NVFP4"}),
        ("fp8", {"quant_method": "fp8"}),
        ("fp8", {"quant_method": "modelopt", "quant_algo": "FP8"}),
        ("fp8", {"quant_method": "compressed-tensors", "format": "float-quantized"}),
        ("compressed-tensors", {"quant_method": "compressed-tensors", "format": "pack-quantized"}),
        ("mxfp4", {"quant_method": "mxfp4"}),
    ],
)
def test_the_names_by_which_checkpoints_call_a_method(root: Path, wanted: str, section: object) -> None:
    write(root / "nvfp4", {"config.json": {"quantization_config": section}, "hf_quant_config.json": None})
    assert said(root, quantization=wanted) == []


def test_a_recipe_that_names_no_quantization_takes_what_is_there(root: Path) -> None:
    assert said(root, quantization=None) == []


def test_without_a_chat_template_it_is_said_where_was_looked(root: Path) -> None:
    write(root / "nvfp4", {"chat_template.jinja": None})
    finding = (
        "BD212",
        "warning",
        "no chat template was found in M/nvfp4: looked in chat_template.jinja, chat_template.json, "
        "tokenizer_config.json, and for one in the recipe. The server would start, and chat requests would fail",
    )
    assert said(root) == [finding]
    write(root / "nvfp4", {"chat_template.jinja": ""})
    assert said(root) == [finding]


def test_a_chat_template_in_the_tokenizers_config_is_enough(root: Path) -> None:
    config = {"tokenizer_class": "X", "chat_template": "{{ messages }}"}
    write(root / "nvfp4", {"chat_template.jinja": None, "tokenizer_config.json": config})
    assert staged(root) == ()


def test_a_chat_template_that_is_a_pointer_is_refused_as_such(root: Path) -> None:
    write(root / "nvfp4", {"chat_template.jinja": lfs_pointer(15204)})
    assert [rule for rule, _, _ in said(root)] == ["BD204"]


def test_without_a_tokenizer_the_engine_cannot_start(root: Path) -> None:
    write(root / "nvfp4", {"tokenizer.json": None})
    assert [(rule, level) for rule, level, _ in said(root)] == [("BD211", "error")]


@pytest.mark.parametrize("names", [("tokenizer.model",), ("vocab.json", "merges.txt"), ("qwen.tiktoken",)])
def test_other_kinds_of_tokenizers(root: Path, names: tuple[str, ...]) -> None:
    write(root / "nvfp4", {"tokenizer.json": None, **dict.fromkeys(names, "x")})
    assert staged(root) == ()


def refused(tokens: int, block: int, engine: str, values: str) -> list[tuple[str, str]]:
    field = f"`speculative.num_speculative_tokens: {tokens}`"
    return [("error", f"{field} does not fit the drafter's block_size {block}: {engine} takes {values}")]


@pytest.mark.parametrize("tokens", [17, 15, 8, 1, 0])
def test_tokenspeed_wants_exactly_the_block_size(root: Path, tokens: int) -> None:
    assert drafted(root, tokens) == refused(tokens, 16, "tokenspeed", "16")


def test_vllm_counts_without_the_anchor(root: Path) -> None:
    assert [drafted(root, tokens, "vllm") for tokens in (1, 15)] == [[], []]
    assert drafted(root, 16, "vllm") == refused(16, 16, "vllm", "1 to 15")
    assert drafted(root, 0, "vllm") == refused(0, 16, "vllm", "1 to 15")


def test_sglang_counts_the_anchor(root: Path) -> None:
    assert [drafted(root, tokens, "sglang") for tokens in (2, 16)] == [[], []]
    assert drafted(root, 17, "sglang") == refused(17, 16, "sglang", "2 to 16")
    assert drafted(root, 1, "sglang") == refused(1, 16, "sglang", "2 to 16")


def test_the_nested_block_size_is_read_first(root: Path) -> None:
    nested = {"block_size": 8, "target_layer_ids": [1], "mask_token_id": 9}
    write(root / "dflash2", {"config.json": {"block_size": 16, "dflash_config": nested}})
    assert drafted(root, 8) == []
    assert drafted(root, 16) == refused(16, 8, "tokenspeed", "8")


def test_without_a_block_size_there_is_nothing_to_compare_with(root: Path) -> None:
    write(root / "dflash2", {"config.json": {**checkpoint.DRAFTER_CONFIG, "block_size": None}})
    assert [level for level, _ in drafted(root, 12)] == ["info"]


def test_another_method_has_no_block_size(root: Path) -> None:
    assert drafted(root, 5, method="eagle3") == []


def limited(root: Path, *, tp: int | None = None, length: int | None = None, config: object) -> list[tuple[str, str]]:
    write(root / "nvfp4", {"config.json": config})
    folder = Folder("nvfp4", f"{root}/nvfp4", "model.weights.path", tensor_parallel=tp, gpus=tp, max_model_len=length)
    return [(p.level, f"{p.what} | {p.remedy}".replace(str(root), "M")) for p in check(folder, weights(root, "nvfp4"))]


@pytest.mark.parametrize(("heads", "kv_heads", "tp"), [(64, 8, 4), (64, 4, 8), (48, 6, 12), (64, None, 8)])
def test_heads_that_divide_or_are_copied_evenly(root: Path, heads: int, kv_heads: int | None, tp: int) -> None:
    config = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    assert limited(root, tp=tp, config=config) == []
    assert limited(root, tp=tp, config={"text_config": config}) == []


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tp", "what", "sizes"),
    [
        (64, 8, 3, "64 attention heads, which do not divide by", "1, 2"),
        (52, 52, 8, "52 attention heads, which do not divide by", "1, 2, 4"),
        (48, 6, 4, "6 KV heads, which neither divide by nor divide", "1, 2, 3"),
    ],
)
def test_heads_that_do_not_divide(root: Path, heads: int, kv_heads: int, tp: int, what: str, sizes: str) -> None:
    config = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    assert limited(root, tp=tp, config=config) == [
        (
            "error",
            f"M/nvfp4/config.json has {what} `engine.tensor_parallel: {tp}` "
            f"| set `engine.tensor_parallel` to one of {sizes}",
        )
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"max_position_embeddings": 131072},
        {"max_position_embeddings": 32768, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"text_config": {"max_position_embeddings": 131072}},
    ],
    ids=["equal", "rope-scaled", "text-config"],
)
def test_a_context_that_the_model_has(root: Path, config: object) -> None:
    assert limited(root, length=131072, config=config) == []


def test_a_context_longer_than_the_models(root: Path) -> None:
    assert limited(root, length=131072, config={"max_position_embeddings": 65536}) == [
        (
            "error",
            "`engine.max_model_len: 131072` is longer than M/nvfp4/config.json allows: max_position_embeddings 65536. "
            "The engine refuses this at start unless told otherwise by its own override "
            "(TOKENSPEED_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1) | set `engine.max_model_len: 65536` or less",
        )
    ]
    scaled = {"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
    assert [level for level, _ in limited(root, length=131073, config=scaled)] == ["error"]


def test_a_context_of_a_model_that_names_none_is_a_note(root: Path) -> None:
    assert [level for level, _ in limited(root, length=131072, config={"model_type": "beam"})] == ["info"]


def test_an_engine_that_quantizes_while_it_loads_takes_an_unquantized_checkpoint(root: Path) -> None:
    config = json.loads((root / "nvfp4" / "config.json").read_text())
    config.pop("quantization_config", None)
    write(root / "nvfp4", {"config.json": json.dumps(config)})
    (root / "nvfp4" / "hf_quant_config.json").unlink(missing_ok=True)
    plain = Folder("nvfp4", f"{root}/nvfp4", "model.weights.path", quantization="fp8")
    facts = weights(root, "nvfp4")
    assert [problem.rule for problem in check(plain, facts)] == ["BD214"]
    assert check(replace(plain, quantizes=True), facts) == ()
