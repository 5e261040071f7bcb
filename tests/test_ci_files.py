"""What others include in their CI: the hook and the action, run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
RECIPE = (ROOT / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml").read_text(encoding="utf-8")
HOOK: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))[0]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def run(words: tuple[str, ...], cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=env, check=False)


def step(name: str) -> str:
    script: str = next(each["run"] for each in ACTION["runs"]["steps"] if each.get("name") == name)
    return script


def faulty(folder: Path) -> Path:
    (folder / "my recipes").mkdir()
    (folder / "recipes").mkdir()
    (folder / "recipes" / "a.yaml").write_text(RECIPE.replace("name: beam\n", "name: 7\n"), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("file", "hooked"),
    [
        ("recipes/beam.yaml", True),
        ("deploy/recipes/beam.lock.yml", True),
        ("inventories/default.yaml", True),
        ("inventories/group_vars/all.yaml", False),
        ("recipes/notes.md", False),
        ("compose.yaml", False),
    ],
)
def test_the_hook_takes_recipes_locks_and_inventories(file: str, hooked: bool) -> None:
    assert bool(re.search(HOOK["files"], file)) == hooked


def test_the_hook_runs_on_the_files_that_it_is_given() -> None:
    files = ("recipes/beam-nvfp4-tokenspeed-4xb300.yaml", "inventories/example.yaml")
    assert run((*shlex.split(HOOK["entry"]), "--strict", *files), ROOT).returncode == 0


def test_the_action_annotates_problems_and_fails(tmp_path: Path) -> None:
    done = run(
        ("bash", "-e", "-o", "pipefail", "-c", step("Validate")), faulty(tmp_path), PATHS="recipes\n", STRICT="false"
    )
    assert (done.returncode, done.stdout) == (
        2,
        "::error file=recipes/a.yaml,line=3,col=7,title=BD033::name: text is expected, this is a number: 7"
        '%0Aquote it: "7"\n',
    )


@pytest.mark.parametrize("strict", ["true", "false"])
def test_the_action_passes_clean_files(strict: str) -> None:
    done = run(("bash", "-e", "-c", step("Validate")), ROOT, PATHS="recipes\n  inventories", STRICT=strict)
    assert done.returncode == 0


def test_the_action_runs_nothing_that_an_input_says(tmp_path: Path) -> None:
    done = run(("bash", "-e", "-c", step("Validate")), tmp_path, PATHS="$(touch owned) ; touch owned", STRICT="x")
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])


def test_the_action_collects_sarif_and_goes_on_to_the_upload(tmp_path: Path) -> None:
    script = step("Collect problems for code scanning")
    done = run(("bash", "-e", "-c", script), faulty(tmp_path), PATHS="recipes", STRICT="true")
    assert (done.returncode, (tmp_path / "beamdeploy.sarif").read_text(encoding="utf-8")[:1]) == (0, "{")


def test_no_script_of_the_action_holds_an_expression() -> None:
    assert [each["run"] for each in ACTION["runs"]["steps"] if "${{" in each.get("run", "")] == []


def test_every_input_that_the_action_uses_is_declared() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])
