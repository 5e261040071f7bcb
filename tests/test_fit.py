"""What a model needs of each GPU, against figures that were worked out by hand from its published shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from beamdeploy.fit import GIB, MARGIN, Fit, fit, margin
from beamdeploy.fit.shape import Shape, of_config, of_model, without_windows
from beamdeploy.hardware import family
from beamdeploy.look.facts import Gpu, Gpus, Shard, Weights
from beamdeploy.models import models
from beamdeploy.preflight import checks
from beamdeploy.recipe import Recipe, load_recipe
from beamdeploy.sizing import bar, on_family, with_gpus
from tests.test_plan import SPEC_NOW, facts, weights

BEAM = str(Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")
GB = 10**9
H200 = Path(__file__).parent / "data" / "h200"
(MODEL,) = [model for model in models() if model.name == "Beam-1.0-501B-A23B"]


def beam(*overrides: tuple[str, str]) -> Recipe:
    return load_recipe(BEAM, overrides)


def on(recipe: Recipe, gpu: str) -> Fit:
    known = family(gpu)
    assert known is not None
    found = fit(recipe, known.memory_gb * GB)
    assert found is not None
    return found


def variant(name: str, count: int, share: str) -> Recipe:
    """Another checkpoint of Beam, without a drafter, on so many GPUs."""
    source = ("model.weights.source", f"hf://reflection/Beam-1.0-501B-A23B{name}")
    return replace(with_gpus(beam(source, ("engine.gpu_memory_utilization", share)), "B300", count), speculative=None)


def test_the_cache_of_the_page_s_shape() -> None:
    # 9 full layers at 18 KiB a token, 43 sliding ones at 43 MiB a sequence, over four GPUs
    shape = of_model(MODEL)
    assert 8 * shape.kv_bytes(131072, 1, 1) / GB == pytest.approx(19.7, abs=0.05)
    assert 8 * shape.kv_bytes(131072, 1, 4) / GB == pytest.approx(4.9, abs=0.05)
    assert 8 * without_windows(shape).kv_bytes(131072, 1, 1) / GB == pytest.approx(111.7, abs=0.05)
    assert 8 * without_windows(shape).kv_bytes(131072, 1, 4) / GB == pytest.approx(27.9, abs=0.05)
    # eight KV heads are copied beyond eight GPUs
    assert shape.kv_bytes(131072, 1, 16) == shape.kv_bytes(131072, 1, 8)


@pytest.mark.parametrize(
    ("name", "count", "memory", "share", "each", "left"),
    [
        ("-NVFP4", 4, 96 * GB, "0.9", 74, 12),
        ("-NVFP4", 4, 180 * GB, "0.9", 74, 88),
        ("-NVFP4", 4, 268 * GIB, "0.9", 74, 185),
        ("-FP8", 8, 80 * GB, "0.9", 63, 9),
        ("-FP8", 8, 141 * GB, "0.9", 63, 64),
        ("", 8, 141 * GB, "0.9", 125, 2),
        ("", 8, 141 * GB, "0.96", 125, 10),
    ],
)
def test_weights_on_each_gpu_and_what_they_leave(
    name: str, count: int, memory: int, share: str, each: float, left: float
) -> None:
    found = fit(variant(name, count, share), memory)
    assert found is not None
    assert found.weights / GB == pytest.approx(each, abs=1)
    assert (found.usable - found.weights) / GB == pytest.approx(left, abs=1.5)
    assert not found.exact


def test_the_page_s_recipe_fits_with_much_to_spare() -> None:
    found = on(beam(), "B300")
    assert (found.verdict, found.context, found.sequences) == ("fits", 131072, 8)
    assert found.drafter / GB == pytest.approx(1, abs=0.05)
    assert found.drafter_kv == 8 * 131072 * 5 * 2048 * 2 // 4
    assert found.most_context == 1048576
    assert found.margin == margin(beam(), of_model(MODEL))
    assert found.needed < found.usable


def test_what_is_asked_for_at_most_fits() -> None:
    found = on(beam(), "RTX PRO 6000")
    assert found.verdict == "less"
    longest = on(beam(("engine.max_model_len", str(found.most_context))), "RTX PRO 6000")
    more = on(beam(("engine.max_model_len", str(found.most_context + 64))), "RTX PRO 6000")
    assert (longest.verdict, more.verdict) == ("fits", "less")
    fewer = on(beam(("engine.max_num_seqs", str(found.most_sequences))), "RTX PRO 6000")
    assert fewer.verdict == "fits"
    assert on(beam(("engine.max_num_seqs", str(found.most_sequences + 1))), "RTX PRO 6000").verdict == "less"


@pytest.mark.parametrize(
    ("gpu", "count", "exit", "outcome"),
    [("B300", 4, 0, "fits"), ("RTX PRO 6000", 4, 0, "tight"), ("H100", 4, 0, "tight"), ("H100", 2, 3, "blocked")],
)
def test_only_weights_that_cannot_fit_block(gpu: str, count: int, exit: int, outcome: str) -> None:
    report = on_family(beam(), gpu, count)
    assert (report.exit, report.hosts[0].outcome) == (exit, outcome)


def staged(size: int, config: Mapping[str, object]) -> Weights:
    shards = (
        Shard("a.safetensors", size, size + 90, 2, 0, tensor_bytes=size),
        Shard("b.safetensors", 8, 8, 0, 0, tensor_bytes=0),
    )
    return Weights("nvfp4", (), {"config.json": json.dumps(config)}, None, "", shards, ())


def test_staged_files_say_it_exactly() -> None:
    config = {
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "hidden_size": 512,
    }
    recipe = replace(beam(), speculative=None)
    found = fit(recipe, 100 * GIB, {"nvfp4": staged(40 * GIB, config)})
    assert found is not None
    assert (found.weights, found.exact, found.notes) == (10 * GIB, True, ())
    assert found.kv == 8 * 131072 * 4 * (2 * 4 * 64) // 4


def test_a_config_that_leaves_its_layers_to_the_model_s_code_is_completed() -> None:
    # the published config.json names the window, and not which layers have it
    found = fit(beam(), 268 * GIB, weights())
    assert found is not None
    assert found.kv == 8 * of_model(MODEL).kv_bytes(131072, 1, 4)


def test_a_real_load_takes_what_was_predicted() -> None:
    """A checkpoint of 39.9 GiB and the cache of 8 x 32768 tokens, as torch allocated them on an H200."""
    predicted = json.loads((H200 / "fit.json").read_text())["hosts"]["h200"]["fit"]
    measured = json.loads((H200 / "load.json").read_text())
    assert predicted["exact"]
    assert predicted["weights"] == pytest.approx(measured["weights_allocated"], rel=0.05)
    assert predicted["kv"] == pytest.approx(measured["cache_allocated"], rel=0.05)
    assert predicted["weights"] + predicted["kv"] == pytest.approx(measured["cache_mib"] * 2**20, rel=0.05)
    assert measured["context_mib"] * 2**20 < MARGIN
    config = {
        "num_hidden_layers": 24,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_size": 5120,
    }
    shape = of_config(json.dumps(config))
    assert shape is not None
    assert 8 * shape.kv_bytes(32768, 2, 1) == predicted["kv"]


def test_an_unknown_model_that_is_not_staged_has_no_fit() -> None:
    recipe = beam(("model.weights.source", "hf://someone/else"), ("model.served_name", "other"))
    assert fit(recipe, 100 * GIB) is None


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 512}, Shape(4, 0, 0, 1024, 8, 512)),
        (
            {
                "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
                "sliding_window": 512, "max_position_embeddings": 4096,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            },
            Shape(1, 2, 512, 64, 2, 0, 4096),
        ),
        ({"text_config": {"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}}, Shape(2, 0, 0, 64, 4)),
        (
            {"num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64},
            Shape(61, 0, 0, 576, 1),
        ),
        ({"num_hidden_layers": 4}, None),
    ],
    ids=["plain", "sliding", "nested", "latent", "silent"],
)  # fmt: skip
def test_shapes_of_config_json(config: dict[str, object], shape: Shape | None) -> None:
    assert of_config(json.dumps(config)) == shape


def test_a_plan_is_told_when_not_even_the_weights_fit() -> None:
    small = Gpus("580.95.05", tuple(Gpu(i, "NVIDIA B300", f"GPU-{i}", 40_000, 4, "10.3") for i in range(4)))
    large = {**weights(), "nvfp4": staged(400 * GIB, {})}
    (check,) = [each for each in checks(SPEC_NOW, facts(gpus=small, weights=large)) if each.subject == "fit"]
    assert (check.verdict, check.saw) == (
        "block",
        "the weights alone take 100.0 GiB of 35.2 GiB usable on each GPU (0.9 of 39.1 GiB)",
    )


def test_the_bar_of_a_gpu() -> None:
    parts = {"weights": 50, "drafter": 2, "KV cache": 20, "drafter's cache": 0, "margin": 10}
    assert bar(parts, 100, 90) == "[#########################d==========~~~~~....|.....]"
