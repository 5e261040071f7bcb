"""Three engines, one vocabulary: the words that each gets, and what bites between them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamdeploy import schema
from beamdeploy.documents import Document
from beamdeploy.engines import engine_facts, names
from beamdeploy.errors import Problem
from beamdeploy.inventory import Host
from beamdeploy.label import without_labels
from beamdeploy.recipe import build
from beamdeploy.render import render
from beamdeploy.rules import recipe_problems

ROOT = Path(__file__).parents[1]
BEAM: Mapping[str, Any] = yaml.safe_load((ROOT / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml").read_text("utf-8"))
HOST = Host("gpu-a", model_dir="/srv/models/beam")
VLLM = {
    "image": {"reference": "vllm/vllm-openai:v0.33.0", "unpinned": "a test"},
    "engine": {
        "name": "vllm",
        "catalog": "0.33.0",
        "attention_backend": "FLASHINFER",
        "max_cudagraph_capture_size": 128,
    },
    "speculative": {"num_speculative_tokens": 15, "attention_backend": "FLASHINFER"},
    "container": {"stop_timeout": None},
}
SGLANG = {
    "image": {"reference": "lmsysorg/sglang:v0.5.23", "unpinned": "a test"},
    "engine": {"name": "sglang", "catalog": "0.5.23"},
    "container": {"stop_timeout": None},
}
RUN = ("docker", "run", "--detach", "--init", "--name", "beam", "--gpus", '"device=0,1,2,3"', "--shm-size=64g")
MOUNT = ("--mount", "type=bind,src=/srv/models/beam,dst=/weights,readonly")
OFFLINE = ("-e", "HF_HUB_OFFLINE=1", "-e", "TRANSFORMERS_OFFLINE=1")


def merged(base: Mapping[str, Any], *changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the changes merged in; None removes."""
    out = deepcopy(dict(base))
    for change in changes:
        for key, value in change.items():
            if value is None:
                out.pop(key, None)
            else:
                out[key] = merged(out.get(key) or {}, value) if isinstance(value, Mapping) else value
    return out


def words(*changes: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of `docker run` for Beam with these changes."""
    return without_labels(
        render(
            build(schema.defaults(Document("-", merged(BEAM, *changes), {}, {}, "").data, "recipe")), HOST, None
        ).words
    )


def after(found: tuple[str, ...], flag: str) -> str:
    return found[found.index(flag) + 1]


def told(*changes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(level, rule) of all that is more than a note."""
    return [(problem.level, str(problem.rule)) for problem in problems(*changes) if problem.level != "info"]


def problems(*changes: Mapping[str, Any]) -> tuple[Problem, ...]:
    return recipe_problems(Document("-", merged(BEAM, *changes), {}, {}, ""))


def one(rule: str, *changes: Mapping[str, Any]) -> Problem:
    [problem] = [problem for problem in problems(*changes) if problem.rule == rule]
    return problem


# --- the whole command


def test_beam_in_vllm() -> None:
    drafting = {"method": "dflash", "model": "/weights/dflash2", "num_speculative_tokens": 15}
    assert words(VLLM) == (
        *RUN, "-p", "127.0.0.1:8000:8000", *MOUNT, *OFFLINE,
        "--entrypoint", "vllm", "vllm/vllm-openai:v0.33.0", "serve", "/weights/nvfp4",
        "--host", "0.0.0.0", "--port", "8000", "--served-model-name", "Beam-1.0-501B-A23B",
        "--tensor-parallel-size", "4", "--dtype", "bfloat16", "--kv-cache-dtype", "fp8_e4m3",
        "--max-model-len", "131072", "--max-num-seqs", "8", "--gpu-memory-utilization", "0.9",
        "--max-num-batched-tokens", "8192", "--max-cudagraph-capture-size", "128",
        "--attention-backend", "FLASHINFER", "--moe-backend", "flashinfer_trtllm", "--enable-prefix-caching",
        "--enable-auto-tool-choice", "--tool-call-parser", "beam", "--reasoning-parser", "beam",
        "--speculative-config", json.dumps({**drafting, "attention_backend": "FLASHINFER"}, separators=(",", ":")),
    )  # fmt: skip
    assert told(VLLM) == []


def test_beam_in_sglang() -> None:
    assert words(SGLANG) == (
        *RUN, "-p", "127.0.0.1:8000:30000", *MOUNT, *OFFLINE,
        "--entrypoint", "sglang", "lmsysorg/sglang:v0.5.23", "serve", "--model-path", "/weights/nvfp4",
        "--host", "0.0.0.0", "--port", "30000", "--served-model-name", "Beam-1.0-501B-A23B",
        "--tp-size", "4", "--dtype", "bfloat16", "--kv-cache-dtype", "fp8_e4m3",
        "--context-length", "131072", "--max-running-requests", "8", "--mem-fraction-static", "0.9",
        "--chunked-prefill-size", "8192", "--cuda-graph-max-bs-decode", "8",
        "--attention-backend", "trtllm_mha", "--moe-runner-backend", "flashinfer_trtllm",
        "--tool-call-parser", "beam", "--reasoning-parser", "beam",
        "--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "/weights/dflash2",
        "--speculative-num-draft-tokens", "16", "--speculative-draft-attention-backend", "trtllm_mha",
    )  # fmt: skip
    assert told(SGLANG) == []


def test_every_engine_has_its_facts() -> None:
    facts = {name: engine_facts(name) for name in ("sglang", "tokenspeed", "vllm")}
    assert {name: (each.port, each.ready, each.reasoning_field, each.stop_timeout) for name, each in facts.items()} == {
        "sglang": (30000, "/ready", "reasoning_content", 120),
        "tokenspeed": (8000, "/readiness", "reasoning_content", 70),
        "vllm": (8000, "/v1/models", "reasoning", 15),
    }
    assert set(facts) <= set(names())


# --- what bites


@pytest.mark.parametrize(
    ("engine", "tokens", "rule"),
    [
        ({}, 16, []),
        ({}, 15, [("error", "BD382")]),
        (VLLM, 15, []),
        (VLLM, 7, []),
        (VLLM, 16, [("error", "BD382")]),
        (SGLANG, 16, []),
        (SGLANG, 8, []),
        (SGLANG, 17, [("error", "BD382")]),
        (SGLANG, 1, [("error", "BD382")]),
    ],
)
def test_the_drafters_width_is_counted_as_the_engine_counts(
    engine: Mapping[str, Any], tokens: int, rule: list[tuple[str, str]]
) -> None:
    assert told(engine, {"speculative": {"num_speculative_tokens": tokens}}) == rule


def test_vllm_has_no_default_for_the_drafters_width() -> None:
    assert told(VLLM, {"speculative": {"num_speculative_tokens": None}}) == [("error", "BD383")]


def test_a_cuda_graph_counts_tokens_in_vllm_and_requests_elsewhere() -> None:
    eight = {"engine": {"max_cudagraph_capture_size": 8}}
    assert [each.rule for each in problems(eight) if each.rule == "BD376"] == []
    assert [each.rule for each in problems(SGLANG, eight) if each.rule == "BD376"] == []
    assert one("BD376", VLLM, eight).remedy == "vllm counts tokens: write 128, unless another number is meant."


@pytest.mark.parametrize("engine", [VLLM, SGLANG], ids=["vllm", "sglang"])
@pytest.mark.parametrize(
    ("weights", "passed"),
    [("nvfp4", False), ("mxfp4", False), ("compressed-tensors", False), ("modelopt_fp4", True), ("fp8", True)],
)
def test_quantization_is_left_out_where_the_checkpoint_says_it(
    engine: Mapping[str, Any], weights: str, passed: bool
) -> None:
    found = words(engine, {"quantization": {"weights": weights}})
    assert ("--quantization" in found, weights in found) == (passed, passed)


def test_tokenspeed_is_told_the_quantization() -> None:
    assert after(words(), "--quantization") == "nvfp4"


def test_beams_fp8_is_compressed_tensors_for_every_engine() -> None:
    fp8 = {"model": {"weights": {"source": "hf://reflection/Beam-1.0-501B-A23B-FP8"}}, "hardware": {"count": 8}}
    wide = {"engine": {"tensor_parallel": 8, "moe_backend": None}}
    for engine in ({}, VLLM, SGLANG):
        assert one("BD361", engine, fp8, wide, {"quantization": {"weights": "fp8"}}).remedy.startswith(
            "Write compressed-tensors"
        )
        assert told(engine, fp8, wide, {"quantization": {"weights": "compressed-tensors"}}) == []


def test_a_tool_parser_needs_two_flags_in_vllm_and_none_without_it() -> None:
    assert "--enable-auto-tool-choice" not in words()
    assert "--enable-auto-tool-choice" not in words(SGLANG)
    without = words(VLLM, {"parsers": {"tool_call": None}})
    assert not {"--enable-auto-tool-choice", "--tool-call-parser"} & set(without)


@pytest.mark.parametrize(
    ("engine", "caching", "said"),
    [
        ({"engine": {"kvstore": False}}, True, "--enable-prefix-caching"),
        ({"engine": {"kvstore": False}}, False, "--disable-prefix-caching"),
        (VLLM, True, "--enable-prefix-caching"),
        (VLLM, False, "--disable-prefix-caching"),
        (SGLANG, True, None),
        (SGLANG, False, "--disable-radix-cache"),
    ],
)
def test_prefix_caching(engine: Mapping[str, Any], caching: bool, said: str | None) -> None:
    found = words(engine, {"engine": {"prefix_caching": caching}})
    flags = ("--enable-prefix-caching", "--disable-prefix-caching", "--disable-radix-cache")
    assert [word for word in found if word in flags] == ([said] if said else [])


@pytest.mark.parametrize(
    ("engine", "kvstore", "said"),
    [
        ({}, False, ["--disable-kvstore"]),
        ({}, True, []),
        (VLLM, False, []),
        (VLLM, True, []),
        (SGLANG, False, []),
        (SGLANG, True, ["--enable-hierarchical-cache"]),
    ],
)
def test_host_memory_for_the_kv_cache(engine: Mapping[str, Any], kvstore: bool, said: list[str]) -> None:
    found = words(engine, {"engine": {"kvstore": kvstore}})
    assert [word for word in found if word in ("--disable-kvstore", "--enable-hierarchical-cache")] == said


def test_host_memory_has_no_default_size_in_vllm() -> None:
    assert told(VLLM, {"engine": {"kvstore": True}}) == [("error", "BD375")]
    assert told(VLLM, {"engine": {"kvstore": True, "args": {"kv-offloading-size": 64}}}) == []
    assert told(VLLM, {"engine": {"args": {"kv-offloading-size": 64}}}) == [("error", "BD375")]


def test_experts_have_no_number_in_vllm() -> None:
    spread = {"engine": {"expert_parallel": 4}}
    assert "--enable-expert-parallel" in words(VLLM, spread)
    assert "--enable-expert-parallel" not in words(VLLM, {"engine": {"expert_parallel": 1}})
    assert after(words(SGLANG, spread), "--ep-size") == "4"
    assert after(words(spread), "--expert-parallel-size") == "4"


def test_the_attention_backend_of_another_engine_is_refused() -> None:
    assert [rule for _, rule in told(VLLM, {"engine": {"attention_backend": "trtllm_mha"}})] == ["BD331"]


@pytest.mark.parametrize("seconds", ["600", None])
def test_vllms_own_limit_counts_with_several_api_servers(seconds: str | None) -> None:
    replicas: dict[str, Any] = {"engine": {"tensor_parallel": 2, "data_parallel": 2}, "container": {"env": {}}}
    if seconds is not None:
        replicas["container"]["env"] = {"VLLM_ENGINE_READY_TIMEOUT_S": seconds}
    assert one("BD407", VLLM, replicas).what == (
        "ready.timeout: 45m is longer than the engine waits for itself (VLLM_ENGINE_READY_TIMEOUT_S 600 s)"
    )
    assert [each for each in problems(VLLM) if each.rule == "BD407"] == []


def test_the_stop_grace_is_the_engines_own() -> None:
    for engine, seconds in (({"container": {"stop_timeout": None}}, 70), (VLLM, 15), (SGLANG, 120)):
        data = schema.defaults(merged(BEAM, engine), "recipe")
        assert render(build(data), HOST, None).stop_timeout == seconds


# --- what each engine refuses


@pytest.mark.parametrize(
    ("engine", "change"),
    [
        (VLLM, {"engine": {"args": {"enable-eplb": True}}}),
        (VLLM, {"engine": {"args": {"enable-lora": True}}}),
        (VLLM, {"engine": {"tensor_parallel": 2, "data_parallel": 2, "expert_parallel": 4}}),
        (VLLM, {"speculative": {"attention_backend": "TRITON_ATTN"}}),
        (VLLM, {"quantization": {"dtype": "float16"}}),
        (SGLANG, {"hardware": {"gpu": "L40S"}}),
        (SGLANG, {"hardware": {"gpu": "RTX PRO 6000"}}),
        (SGLANG, {"hardware": {"gpu": "H200"}, "quantization": {"kv_cache": "mxfp8"}}),
        (SGLANG, {"quantization": {"kv_cache": "nvfp4"}}),
        (SGLANG, {"engine": {"tensor_parallel": 2, "pipeline_parallel": 2}}),
        (SGLANG, {"engine": {"args": {"enable-dp-attention": True}}}),
        (SGLANG, {"engine": {"moe_backend": "triton"}}),
        (SGLANG, {"engine": {"args": {"enable-lora": True}}}),
        (SGLANG, {"engine": {"args": {"enable-eplb": True}}}),
        (SGLANG, {"engine": {"args": {"moe-dense-tp-size": 1}}}),
    ],
)
def test_what_the_engine_refuses_is_refused_before(engine: Mapping[str, Any], change: Mapping[str, Any]) -> None:
    assert "BD377" in [problem.rule for problem in problems(engine, change)]


def test_nvfp4_in_sglang_needs_compute_capability_10() -> None:
    problem = one("BD377", SGLANG, {"hardware": {"gpu": "H200"}})
    assert problem.what.startswith("hardware.gpu: H200: SGLang serves Beam's NVFP4 weights on compute")


def test_a_step_in_vllm_holds_the_requests_with_their_drafts() -> None:
    assert told(VLLM, {"engine": {"chunked_prefill_size": 127}}) == [("error", "BD378")]
    assert told(VLLM, {"engine": {"chunked_prefill_size": 128}}) == []
    assert told(VLLM, {"engine": {"chunked_prefill_size": -1}})[-1] == ("error", "BD378")
    off = {"engine": {"args": {"no-enable-chunked-prefill": True}}}
    assert told(VLLM, off) == [("error", "BD378")]


def test_a_chunk_in_sglang_is_whole_pages() -> None:
    assert told(SGLANG, {"engine": {"chunked_prefill_size": 8100, "args": {"page-size": 64}}}) == [("error", "BD379")]


def test_sglang_takes_no_colon_in_the_served_name() -> None:
    assert ("error", "BD352") in told(SGLANG, {"model": {"served_name": "beam:latest"}})


def test_flags_of_other_engines_are_named_with_their_counterpart() -> None:
    problem = one("BD311", SGLANG, {"engine": {"args": {"max-num-batched-tokens": 8192}}})
    assert "engine.chunked_prefill_size (--chunked-prefill-size of sglang)" in problem.remedy
    problem = one("BD311", VLLM, {"engine": {"args": {"mem-fraction-static": 0.8}}})
    assert "engine.gpu_memory_utilization (--gpu-memory-utilization of vllm)" in problem.remedy
