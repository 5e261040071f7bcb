"""Rules: each is documented, has a bad and a good file, and finds what it is for; the shipped recipes are clean."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from copy import deepcopy
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from beamdeploy.check import check_file
from beamdeploy.documents import Document
from beamdeploy.engines.catalog import catalog, catalogs
from beamdeploy.engines.traits import described, traits
from beamdeploy.errors import Problem
from beamdeploy.models import model_of, models
from beamdeploy.rules import RULES, recipe_problems
from beamdeploy.rules.pages import all_rules, near, rule_of
from beamdeploy.rules.parallel import heads_finding, sizes
from beamdeploy.rules.rule import Finding, Rule
from beamdeploy.rules.speculative import fitting
from tests.forked import beamdeploy

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "rules"
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
BASE: dict[str, Any] = yaml.safe_load((ROOT / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml").read_text("utf-8"))

NO_RULE = {"BD300"}
"""A literal that is the first of a range, and no rule."""
NEED_A_HOST = re.compile(r"BD2\d\d")
NEED_A_COMMAND = {
    "BD051",
    "BD052",
    "BD053",
    "BD055",
    "BD056",
    "BD060",
    "BD101",
    "BD115",
    "BD116",
    "BD117",
    "BD118",
    "BD120",
    "BD121",
    "BD306",
}
"""Found in the words of a command, in a template, or beside the files."""
NEED_A_FILE_OF_THEIR_OWN = {"BD001", "BD003"}
"""No such file; more than 16 MiB."""
NO_SCHEMA_ASKS = {"BD040", "BD042"}


def text_only(id: str) -> bool:
    """Whether the examples of a rule are text, since `validate FILE` alone cannot find it."""
    return bool(NEED_A_HOST.fullmatch(id)) or id in NEED_A_COMMAND | NEED_A_FILE_OF_THEIR_OWN | NO_SCHEMA_ASKS


def ids_in_the_package() -> Iterator[str]:
    for path in (ROOT / "beamdeploy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"BD\d{3}", node.value):
                yield node.value


def bad_files() -> list[Path]:
    return sorted(path for path in DATA.rglob("bad*.yaml") if not path.name.endswith(".lock.yaml"))


def found(path: Path) -> tuple[Problem, ...]:
    return check_file(str(path)) or ()


def changed(change: Mapping[str, Any], base: Mapping[str, Any] = BASE) -> dict[str, Any]:
    """`base` with `change` merged in; None removes."""
    merged = dict(base)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = changed(value, merged.get(key) or {})
        else:
            merged[key] = value
    return merged


def checked(change: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What is found in the shipped recipe with a change."""
    return recipe_problems(Document("-", deepcopy(changed(change)), {}, {}, ""))


def serious(change: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(problem.level, problem.rule) for problem in checked(change) if problem.level != "info"]


def of(change: Mapping[str, Any], rule: str) -> Problem:
    [problem] = [problem for problem in checked(change) if problem.rule == rule]
    return problem


# --- every rule has its page and its files


def test_every_rule_in_the_code_is_documented_and_every_documented_rule_is_in_the_code() -> None:
    assert set(ids_in_the_package()) - NO_RULE == {rule.id for rule in all_rules()}


def test_no_id_is_given_twice() -> None:
    ids = [rule.id for rule in all_rules()]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_every_page_is_complete(rule: Rule) -> None:
    assert rule.level in ("error", "warning", "info")
    assert all(text == text.strip() and text for text in (rule.title, rule.reason, rule.bad, rule.good))
    assert not rule.title.endswith(".")
    assert rule.reason.endswith(".")


def test_every_rule_has_files_but_those_that_need_more_than_a_file() -> None:
    assert {path.parent.name for path in bad_files()} == {rule.id for rule in all_rules() if not text_only(rule.id)}


@pytest.mark.parametrize("path", bad_files(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_bad_file_is_reported_at_its_line(path: Path) -> None:
    id = path.parent.name
    lines = path.read_text("utf-8", errors="replace").split("\n")
    marked = [number for number, line in enumerate(lines, 1) if f"# <- {id}" in line]
    assert len(marked) == 1
    assert marked[0] in [problem.line for problem in found(path) if problem.rule == id]


@pytest.mark.parametrize("path", bad_files(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_good_file_has_notes_at_most(path: Path) -> None:
    good = path.with_name(path.name.replace("bad", "good"))
    told = [(problem.rule, problem.level) for problem in found(good) if problem.level != "info"]
    assert (told, [problem.rule for problem in found(good) if problem.rule == path.parent.name]) == ([], [])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_finding_says_what_and_how_to_mend_it(rule: Rule) -> None:
    [problem] = [each for each in found(DATA / rule.id / "bad.yaml") if each.rule == rule.id][:1]
    assert problem.what == problem.what.strip()
    assert not problem.what.endswith(".")
    assert problem.remedy.endswith((".", "?", "INVENTORY"))


def test_the_page_of_all_rules_is_up_to_date() -> None:
    spec = spec_from_file_location("rules_script", ROOT / "scripts" / "rules.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (ROOT / "docs" / "rules.md").read_text("utf-8") == script.text(), "run: python scripts/rules.py"


def test_a_rule_is_found_by_its_id_in_any_case_and_a_misspelt_one_is_suggested() -> None:
    rule = rule_of("bd301")
    assert rule is not None
    assert rule.title == "The engine is not known"
    assert rule_of("BD999") is None
    assert "BD301" in near("BD3O1")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_shipped_recipes_have_notes_at_most(path: Path) -> None:
    assert [problem for problem in found(path) if problem.level != "info"] == []


# --- combinations that the engine refuses


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"engine": {"prefix_caching": False, "kvstore": True}}, [("error", "BD375")]),
        ({"engine": {"prefix_caching": False, "kvstore": None}}, [("error", "BD375")]),
        ({"engine": {"prefix_caching": False, "kvstore": False}}, []),
        ({"quantization": {"kv_cache": "fp8_e5m2"}}, [("error", "BD332")]),
        ({"engine": {"args": {"attn-tp-size": 4}}}, [("error", "BD312")]),
        ({"engine": {"args": {"tp": 4}}}, [("error", "BD312")]),
        ({"engine": {"args": {"model": "/weights/nvfp4"}}}, [("error", "BD312")]),
        ({"engine": {"args": {"port": 9000}}}, [("error", "BD312")]),
        ({"engine": {"args": {"speculative-num-steps": 7}}}, [("error", "BD312")]),
        ({"engine": {"args": {"disable-prefix-caching": True}}}, [("error", "BD312")]),
        ({"quantization": {"weights": "awq"}}, [("error", "BD332"), ("error", "BD361")]),
        ({"engine": {"args": {"trust-remote-code": "nvfp4-second-positional"}}}, [("error", "BD317")]),
        ({"engine": {"args": {"seed": [1, 2]}}}, [("error", "BD319")]),
        ({"engine": {"args": {"decode-context-parallel-size": 2}, "kvstore": True}}, [("error", "BD375")]),
        ({"engine": {"args": {"kvstore-ratio": 2.0}}}, [("error", "BD375")]),
        ({"engine": {"tensor_parallel": 2, "pipeline_parallel": 2}}, [("error", "BD375")]),
        ({"engine": {"tensor_parallel": 2, "data_parallel": 2}}, [("error", "BD375")]),
    ],
)
def test_settings_that_exclude_each_other(change: Mapping[str, Any], expected: list[tuple[str, str]]) -> None:
    assert serious(change) == expected


def test_settings_that_collide_are_both_named() -> None:
    caching = of({"engine": {"prefix_caching": False, "kvstore": True}}, "BD375").what
    assert "engine.prefix_caching: false" in caching
    assert "engine.kvstore: false" in caching
    argument = of({"engine": {"args": {"attn-tp-size": 4}}}, "BD312").what
    assert argument == "engine.args.attn-tp-size: 4 sets what engine.tensor_parallel: 4 sets"


# --- names that are checked only when the weights are loaded


def test_a_misspelt_parser_is_an_error_with_the_closest_name() -> None:
    problem = of({"parsers": {"tool_call": "beem"}}, "BD330")
    assert problem.level == "error"
    assert problem.remedy.startswith("Did you mean beam?")


def test_a_parser_that_resembles_none_is_a_warning_as_the_image_may_know_it() -> None:
    assert of({"parsers": {"tool_call": "somebody_elses"}}, "BD330").level == "warning"


def test_a_parser_that_is_meant_is_a_note() -> None:
    change = {"parsers": {"tool_call": "beem"}, "engine": {"unverified": ["parsers.tool_call"]}}
    assert serious(change) == []
    assert of(change, "BD330").what.endswith("it is checked only when the server has loaded")


def test_a_flag_of_vllm_is_named_with_its_counterpart() -> None:
    problem = of({"engine": {"args": {"max-num-batched-tokens": 8192}}}, "BD311")
    assert problem.level == "warning"
    assert "a flag of vllm 0.33.0, not of tokenspeed" in problem.what
    assert "engine.chunked_prefill_size (--chunked-prefill-size of tokenspeed)" in problem.remedy


def test_a_flag_that_is_meant_is_a_note() -> None:
    change = {"engine": {"args": {"max-prefil-tokens": 1}, "unverified": ["engine.args.max-prefil-tokens"]}}
    assert serious(change) == []


def test_a_flag_that_no_engine_knows_is_an_error_in_a_closed_catalog_and_a_warning_in_an_open_one() -> None:
    args = {"zzz": True}
    assert of({"engine": {"args": args}}, "BD310").level == "warning"
    assert of({"engine": {"args": args, "catalog": "0.1.1"}}, "BD310").level == "error"


def test_a_backend_of_another_build_is_refused_where_the_catalog_has_another_name() -> None:
    backends = {"catalog": "0.1.1", "attention_backend": "trtllm_mha"}
    problem = of({"engine": backends, "speculative": {"attention_backend": None}}, "BD331")
    assert (problem.level, problem.remedy.partition("?")[0]) == ("error", "Did you mean trtllm")


# --- heads


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "fits"),
    [(64, 8, 4, True), (64, 8, 3, False), (52, 52, 8, False), (64, 4, 8, True), (48, 6, 4, False), (48, 6, 12, True)],
)
def test_heads_against_tensor_parallel(heads: int, kv_heads: int, size: int, fits: bool) -> None:
    assert (heads_finding("it", heads, kv_heads, size, size) is None) is fits


def test_refused_heads_name_both_numbers_and_the_sizes_that_work() -> None:
    assert heads_finding("it", 48, 6, 4, 4) == Finding(
        "engine.tensor_parallel",
        "6 KV heads of it cannot be split over engine.tensor_parallel: 4, and 4 is no multiple of 6 either",
        "Within 4 GPUs these would work: 1, 2, 3.",
    )


def test_sixteen_gpus_fit_beam_and_not_its_drafter() -> None:
    change = {"engine": {"tensor_parallel": 16}, "hardware": {"count": 16}}
    assert serious(change) == [("error", "BD342")]
    assert (sizes(48, 8, 16), sizes(40, 8, 16)) == ((1, 2, 4, 8, 16), (1, 2, 4, 8))


# --- GPU, numbers, drafter


@pytest.mark.parametrize(
    ("gpu", "weights", "refused"),
    [("B300", "nvfp4", False), ("B200", "nvfp4", False), ("H200", "nvfp4", True), ("H200", "fp8", False)],
)
def test_number_formats_against_gpus(gpu: str, weights: str, refused: bool) -> None:
    change = {"hardware": {"gpu": gpu}, "quantization": {"weights": weights}}
    assert ("BD360" in [problem.rule for problem in checked(change)]) is refused


def test_a_gpu_that_is_too_old_comes_with_what_it_can_do() -> None:
    problem = of({"hardware": {"gpu": "H200"}}, "BD360")
    assert problem.what == (
        "quantization.weights: nvfp4 needs compute capability 10.0 in tokenspeed, H200 (hardware.gpu) has 9.0"
    )
    assert problem.remedy.startswith("On H200 use fp8 or mxfp4 or w8a8_fp8 or compressed-tensors;")


@pytest.mark.parametrize(("counts", "fits"), [("block", (16, 16)), ("drafts", (1, 15)), ("window", (2, 16))])
def test_speculative_tokens_as_each_engine_counts(counts: str, fits: tuple[int, int]) -> None:
    assert fitting(counts, 16) == fits


def test_the_number_of_another_engine_is_refused() -> None:
    problem = of({"speculative": {"num_speculative_tokens": 15}}, "BD382")
    assert problem.what.endswith(
        "(block_size 16): tokenspeed counts the anchor, so that it is the drafter's block_size exactly"
    )
    assert problem.remedy == "Write 16."


def test_dflash2_is_a_checkpoint_and_dflash_the_method() -> None:
    assert of({"speculative": {"method": "dflash2"}}, "BD380").remedy.startswith("Did you mean dflash?")


# --- secrets


@pytest.mark.parametrize(
    "change",
    [
        {"container": {"env": {"HF_TOKEN": "abcdefgh12345678"}}},
        {"container": {"env": {"NOTE": "hf_" + "a" * 24}}},
        {"container": {"env": {"PROXY": "http://me:abcdefgh12345678@proxy:3128"}}},
        {"engine": {"args": {"api-key": "abcdefgh12345678"}}},
        {"engine": {"args": {"oracle-password": "abcdefgh12345678"}}},
    ],
)
def test_a_secret_is_refused_and_never_repeated(change: Mapping[str, Any]) -> None:
    problem = of(change, "BD415")
    assert problem.level == "error"
    assert not any(secret in f"{problem.what} {problem.remedy}" for secret in ("abcdefgh12345678", "a" * 24))


def test_a_key_makes_an_open_port_a_matter_of_the_key_alone() -> None:
    change = {"container": {"publish": "0.0.0.0:8000"}, "engine": {"args": {"api-key": "abcdefgh12345678"}}}
    assert serious(change) == [("error", "BD415")]


# --- data


@pytest.mark.parametrize("engine", described())
def test_traits_name_flags_of_the_engine(engine: str) -> None:
    known, found_traits = catalog(engine, catalogs(engine)[0]), traits(engine)
    assert known is not None
    assert found_traits is not None
    flags = [flag for flags in found_traits.settings.values() for flag in flags]
    assert [flag for flag in flags if flag not in known.names or known.names[flag].name != flag] == []
    assert [flag for flag in found_traits.counterparts if flag in known.names] == []
    ours = [value for value in found_traits.counterparts.values() if value.startswith("--")]
    assert [value for value in ours if value not in known.names] == []
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_a_model_is_known_by_its_repositories_and_by_its_name(model: Any) -> None:
    for each in (*model.variants, *model.drafters):
        assert model_of(f"hf://{each.repo}@main", "other") == model
    assert model_of(None, model.name) == model
    assert model_of("hf://other/model", model.name) is None
    assert model.full_layers + model.sliding_layers == model.layers


def test_the_kv_cache_of_beam_in_fp8() -> None:
    [beam] = models()
    assert beam.kv_bytes(1) == (18 * 1024, 43 * 2048 * 512)


def test_an_unknown_model_has_fewer_rules_and_no_error() -> None:
    change = {
        "model": {"served_name": "mine", "weights": {"path": "mine", "source": None}},
        "speculative": None,
        "parsers": None,
    }
    assert serious(change) == []


# --- where people meet them


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return beamdeploy(*words, cwd=ROOT)


@pytest.mark.parametrize(
    ("gpu", "level", "remedy"),
    [
        ("B3000", "error", "Did you mean B300"),
        ("H9000", "error", "If there is such a GPU, say so: engine.unverified"),
        ("GTX Titan", "warning", "Check the name with nvidia-smi -L."),
    ],
)
def test_a_gpu_that_is_near_a_known_one_is_a_slip(gpu: str, level: str, remedy: str) -> None:
    found = of({"hardware": {"gpu": gpu}}, "BD363")
    assert (found.level, remedy in found.remedy) == (level, True)
    meant = of({"hardware": {"gpu": gpu}, "engine": {"unverified": ["hardware.gpu"]}}, "BD363")
    assert meant.level == "warning"


def test_explain_prints_the_page() -> None:
    told = run("explain", "BD382")
    assert told.returncode == 0
    assert told.stdout.startswith("BD382 (error) num_speculative_tokens does not fit the drafter\n")
    assert all(part in told.stdout for part in ("Bad:", "Good:", "Source: TokenSpeed 0.1.1"))


def test_explain_without_a_rule_lists_all() -> None:
    told = run("explain")
    assert told.returncode == 0
    assert len(told.stdout.splitlines()) == len(all_rules())


def test_explain_of_an_unknown_rule_suggests_and_ends_with_2() -> None:
    told = run("explain", "BD3O1")
    assert told.returncode == 2
    assert "Did you mean" in told.stderr


def test_plan_refuses_before_it_connects() -> None:
    told = run("plan", str(DATA / "BD382" / "bad.yaml"), "-i", "nobody@192.0.2.1,", "--model-dir", "/srv")
    assert told.returncode == 2
    assert "BD382" in told.stderr


def test_an_override_is_to_blame_by_its_own_name() -> None:
    told = run(
        "render",
        str(ROOT / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml"),
        "-e",
        "speculative.num_speculative_tokens=15",
    )
    assert told.returncode == 2
    assert "-e speculative.num_speculative_tokens=15: error BD382" in told.stderr


def test_warnings_are_shown_and_render_goes_on() -> None:
    told = run("render", str(DATA / "BD402" / "bad.yaml"))
    assert told.returncode == 0
    assert "warning BD402" in told.stderr
    assert told.stdout.startswith("docker run")


# --- whatever holds to the schema

ODD: Mapping[str, tuple[Any, ...]] = {
    "engine.tensor_parallel": (1, 3, 2**62),
    "engine.data_parallel": (1, 2, 2**62),
    "engine.expert_parallel": (1, 3, 2**62),
    "engine.max_model_len": (1, 2**62),
    "engine.name": ("vllm", "sglang", "x"),
    "engine.catalog": ("0.1.1", "0.33.0", ".."),
    "engine.unverified": (["engine.args.seed"], ["a.b", "engine.name"]),
    "engine.args": (
        {"seed": "9" * 5000, "hf-overrides": "[" * 100_000, "drain-timeout": "²", "nnodes": "9" * 5000},
        {"--x": 1, "tp": [1, 2], "kvstore-ratio": {"a": 1}, "data-parallel-size": {"a": 1}},
        {"drain-timeout": "9" * 5000, "engine-startup-timeout": -1, "dist-init-addr": False},
        {"cudagraph-capture-sizes": ["a", -1, "--b"], "enable-metrics": {"a": 1}, "ca-cert-paths": [1, 2]},
        {f"flag-{number}": True for number in range(2000)},
    ),
    "hardware.gpu": ("GT 710", "B300"),
    "hardware.min_driver": ("580", "100." + "9" * 5000),
    "container.shm_size": ("9" * 5000 + "g", "1b", None),
    "container.env": ({f"HF_HUB_OFFLIN{number}": "x" for number in range(2000)}, {"HF_HUB_OFFLINE": ""}, None),
    "model.weights.source": ("hf://a/b@c", "/srv", None),
    "quantization": ({"weights": "x", "dtype": "y", "kv_cache": "z"}, None),
    "speculative": ({"method": "mtp"}, {"method": "x", "drafter": {"path": "nvfp4"}}, None),
    "request": ({"temperature": 10**300, "max_tokens": 2**62, "chat_template_kwargs": {"a": [{}]}}, None),
}


@given(st.fixed_dictionaries({}, optional={path: st.sampled_from(values) for path, values in ODD.items()}))
@settings(max_examples=150, deadline=None)
def test_no_recipe_breaks_a_rule(odd: Mapping[str, Any]) -> None:
    data = deepcopy(BASE)
    for path, value in odd.items():
        change: Any = value
        for key in reversed(path.split(".")):
            change = {key: change}
        data = changed(change, data)
    assert all(isinstance(problem, Problem) for problem in recipe_problems(Document("-", data, {}, {}, "")))
