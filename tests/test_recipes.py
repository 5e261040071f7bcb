"""The recipe library: each is clean, says where it comes from, and gives the words that were committed; variants."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from beamdeploy.check import check_all, check_file
from beamdeploy.engines.catalog import catalog
from beamdeploy.errors import InputError
from beamdeploy.library import Entry, entries, file_of, folder
from beamdeploy.recipe import load_recipe
from tests.forked import beamdeploy

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "data" / "golden"
ALL = entries()
VLLM = file_of("beam-nvfp4-vllm-4xb200")


def script(name: str) -> ModuleType:
    spec = spec_from_file_location(f"{name}_script", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return beamdeploy(*words, cwd=ROOT)


def label(entry: Entry) -> str:
    return f"{entry.name}+{entry.variant}" if entry.variant else entry.name


def test_the_readmes_own_recipe_is_clean(tmp_path: Path) -> None:
    shown = (ROOT / "README.md").read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "recipe.yaml").write_text(shown, encoding="utf-8")
    report = check_all([str(tmp_path / "recipe.yaml")])
    assert [each.rule for each in report.problems if each.level != "info"] == []


def test_all_are_clean_also_where_warnings_are_errors() -> None:
    report = check_all([str(folder())], strict=True)
    assert [(each.file, each.rule, each.what) for each in report.problems if each.level == "error"] == []


def test_the_words_are_those_that_were_committed() -> None:
    found = dict(script("golden").golden())
    held = {path.name: path.read_text("utf-8") for path in GOLDEN.glob("*.json")}
    assert found == held, "read what differs; if it is meant, run: python scripts/golden.py"


@pytest.mark.parametrize("entry", ALL, ids=label)
def test_every_flag_is_in_the_catalog_of_its_engine(entry: Entry) -> None:
    recipe = load_recipe(str(file_of(entry.name)), [("--variant", entry.variant)] if entry.variant else [])
    name = f"{label(entry)}.json"
    words = json.loads((GOLDEN / name).read_text("utf-8"))
    known = catalog(entry.engine, str(recipe.engine.catalog))
    assert known is not None
    flags = [word for word in words[words.index("serve") :] if re.match(r"--[a-z]", word)]
    assert [flag for flag in flags if flag not in known.names] == []


@pytest.mark.parametrize("path", sorted(folder().glob("*.yaml")), ids=lambda path: path.stem)
def test_each_says_where_it_comes_from_and_what_was_seen_of_it(path: Path) -> None:
    text = path.read_text("utf-8")
    recipe = load_recipe(str(path))
    assert recipe.source["verified"] in ("published", "sandbox")
    assert recipe.image.pinned or recipe.unpinned
    if recipe.engine.name != "tokenspeed":
        assert re.search(r"^# Sources?: ", text, re.MULTILINE)
        assert re.search(r"20\d\d", text)


def test_beam_is_there_for_every_engine_and_ten_other_models_are() -> None:
    assert {entry.engine for entry in ALL if entry.model.startswith("Beam")} == {"tokenspeed", "vllm", "sglang"}
    assert len({entry.model for entry in ALL if not entry.model.startswith("Beam")}) >= 10


def test_the_page_of_all_recipes_is_up_to_date() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    assert page == script("recipes").text(), "run: python scripts/recipes.py"


# --- the command


def test_the_list_is_filtered_by_model_engine_and_gpu() -> None:
    told = run("recipes", "list", "--model", "beam", "--engine", "vllm", "--gpu", "h200", "-o", "json")
    assert told.returncode == 0
    found = [(each["name"], each["variant"]) for each in json.loads(told.stdout)["recipes"]]
    assert found == [("beam-fp8-vllm-8xh200", ""), ("beam-fp8-vllm-8xh200", "dflash2")]


def test_a_copy_is_the_recipe_and_replaces_nothing(tmp_path: Path) -> None:
    assert run("recipes", "copy", VLLM.stem, str(tmp_path)).returncode == 0
    copied = tmp_path / VLLM.name
    assert copied.read_text("utf-8") == VLLM.read_text("utf-8")
    again = run("recipes", "copy", VLLM.stem, str(copied))
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    shown = run("recipes", "show", VLLM.stem)
    assert shown.stdout == VLLM.read_text("utf-8")


def test_a_misspelt_name_is_suggested() -> None:
    told = run("recipes", "show", "beam-nvfp4-vlm-4xb200")
    assert told.returncode == 2
    assert "Did you mean beam-nvfp4-vllm-4xb200?" in told.stderr


# --- variants

RECIPE = """\
apiVersion: beamdeploy/v1
name: ab
hardware: {gpu: H100, count: 1}
image: {reference: vllm/vllm-openai:v0.33.0, unpinned: a test}
model: {served_name: A, weights: {path: a}}
engine: {name: vllm, catalog: "0.33.0", tensor_parallel: 1, max_num_seqs: 8}
container: {publish: "127.0.0.1:8000", shm_size: 16g, env: {HF_HUB_OFFLINE: "1", TRANSFORMERS_OFFLINE: "1"}}
variants:
  wide:
    hardware: {count: 2}
    engine:
      tensor_parallel: 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_a_variant_changes_what_it_says_and_nothing_else(file: Path) -> None:
    plain, wide = load_recipe(str(file)), load_recipe(str(file), [("--variant", "wide")])
    assert (plain.engine.tensor_parallel, wide.engine.tensor_parallel) == (1, 2)
    assert (wide.hardware.count, wide.hardware.gpu, wide.engine.max_num_seqs) == (2, "H100", 8)
    assert "variants" not in plain.source
    assert "variants" not in wide.source


def test_an_override_comes_after_the_variant(file: Path) -> None:
    wide = load_recipe(str(file), [("engine.max_num_seqs", "4"), ("--variant", "wide")])
    assert (wide.engine.max_num_seqs, wide.engine.tensor_parallel) == (4, 2)


def test_a_variant_that_is_not_there_is_said_with_those_that_are(file: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(str(file), [("--variant", "long")])
    assert caught.value.problems[0].remedy == "The recipe has: wide."


@pytest.mark.parametrize(
    ("old", "new", "rule", "line"),
    [
        ("tensor_parallel: 2", "tensor_parallel: 3", "BD340", 12),
        ("tensor_parallel: 2", "tensor_paralel: 2", "BD030", 12),
        ("hardware: {count: 2}", "hardware: 2", "BD033", 10),
        ("  wide:", "  Wide:", "BD039", 9),
        ("hardware: {count: 2}", "variants: {count: {}}", "BD039", 10),
    ],
)
def test_what_is_wrong_in_a_variant_is_told_at_its_line(file: Path, old: str, new: str, rule: str, line: int) -> None:
    head, _, tail = RECIPE.partition("variants:")
    file.write_text(f"{head}variants:{tail.replace(old, new)}", encoding="utf-8")
    assert (rule, line) in [(each.rule, each.line) for each in check_file(str(file)) or ()]


def test_a_resolved_recipe_is_a_recipe(file: Path, tmp_path: Path) -> None:
    told = run("render", str(file), "--variant", "wide", "--resolved")
    assert told.returncode == 0
    again = tmp_path / "b.yaml"
    again.write_text(told.stdout, encoding="utf-8")
    assert load_recipe(str(again)).source == load_recipe(str(file), [("--variant", "wide")]).source
