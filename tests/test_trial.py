"""`beamdeploy test` from outside: what passes, what fails and how it is told, and that nothing is left of any of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from beamdeploy import trial
from beamdeploy.errors import InputError
from beamdeploy.lock import Lock, LockedFolder
from beamdeploy.recipe import load_recipe
from beamdeploy.sandbox import lifetime
from beamdeploy.trial_files import recipe_files
from tests import forked

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "recipes"
BEAM = str(SHIPPED / "beam-nvfp4-tokenspeed-4xb300.yaml")
PARTS = 6
STEPS = ["apply", "apply again", "smoke", "destroy"]
SECRET = """\
apiVersion: beamdeploy/v1
name: small
hardware: {gpu: H200, count: 8}
image: {reference: "lightseekorg/tokenspeed:0.1.1", unpinned: a test}
model: {served_name: Small, weights: {path: small}}
engine: {name: tokenspeed, tensor_parallel: 8, max_model_len: 8192}
container:
  publish: "127.0.0.1:8100"
  secrets: {HF_TOKEN: {env: NOBODY_SET_THIS}, KEY: {host_file: /etc/not-there}}
"""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A cache folder of its own, in which nothing may be left."""
    yield tmp_path / "cache"
    left = lifetime.all_of({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    for folder in left:
        lifetime.down(folder)
    assert left == ()
    lines = subprocess.run(("ps", "-eo", "stat=,args="), capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line for line in lines if str(tmp_path) in line and not line.startswith("Z")] == []


def start(cache: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-m", "beamdeploy", "test", *words),
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def beamdeploy_test(cache: Path, *words: str, timeout: float = 240) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    done = forked.beamdeploy("test", *words, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


def passed(cache: Path, *files: Path) -> None:
    code, out, err = beamdeploy_test(cache, *map(str, files), "-o", "json", "--jobs", "2")
    report = json.loads(out)
    assert code == 0, err
    worse = [problem for problem in report["problems"] if problem["level"] == "error"]
    assert (report["kind"], report["exit"], worse) == ("TestReport", 0, [])
    verdicts = {
        file: [(step["check"], step["verdict"]) for step in told["checks"]] for file, told in report["hosts"].items()
    }
    assert verdicts == {str(file): [(step, "pass") for step in STEPS] for file in files}


# In parts, so that no worker of the tests has all of it.
@pytest.mark.parametrize("part", range(PARTS))
def test_every_shipped_recipe_passes(cache: Path, part: int) -> None:
    recipes = sorted(path for path in SHIPPED.glob("*.yaml") if not path.name.endswith(".lock.yaml"))
    passed(cache, *recipes[part::PARTS])


def test_a_recipe_with_secrets_passes(cache: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.yaml"
    small.write_text(SECRET, encoding="utf-8")
    passed(cache, small)


def test_a_failed_step_is_a_failure_in_junit_and_the_rest_is_skipped(cache: Path) -> None:
    code, out, _ = beamdeploy_test(cache, BEAM, "--profile", "1xh200", "-o", "junit")
    cases = [
        (case.get("classname"), case.get("name"), [child.tag for child in case])
        for case in ElementTree.fromstring(out).iter("testcase")
    ]
    skipped = [(BEAM, step, ["skipped", "system-out"]) for step in STEPS[1:]]
    assert (code, cases) == (1, [(BEAM, "apply", ["failure", "system-out"]), *skipped])
    assert "hardware.gpu is B300, the host has NVIDIA H200" in out


def test_a_recipe_that_renders_otherwise_each_time_fails_at_the_second_apply(cache: Path, tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    templates.mkdir()
    text = (ROOT / "beamdeploy" / "templates" / "docker-run.j2").read_text(encoding="utf-8")
    changing = text.replace("--detach\n", "--detach\n--env=RUN={{ range(99999) | random }}\n")
    assert changing != text
    (templates / "docker-run.j2").write_text(changing, encoding="utf-8")
    code, out, _ = beamdeploy_test(cache, BEAM, "--templates", str(templates))
    assert code == 1
    rows = [line.removeprefix(BEAM).split()[:3] for line in out.splitlines()[1:5]]
    assert rows[0][:2] == ["apply", "pass"] and rows[1] == ["apply", "again", "fail"], out
    assert "it would change something: " in out


def test_what_is_wrong_with_any_recipe_is_said_before_anything_starts(cache: Path, tmp_path: Path) -> None:
    wrong, unknown = tmp_path / "wrong.yaml", tmp_path / "unknown.yaml"
    wrong.write_text(SECRET.replace("count: 8", "count: 0"), encoding="utf-8")
    code, out, err = beamdeploy_test(cache, str(wrong), BEAM)
    assert (code, out, f"{wrong}:3:30: error" in err) == (2, "", True), err
    unknown.write_text(SECRET.replace("H200", "T4"), encoding="utf-8")
    code, out, err = beamdeploy_test(cache, str(unknown), BEAM)
    assert (code, out) == (2, "")
    assert (
        f"{unknown}: error: no sandbox profile is a server with 8 T4 GPUs\n    remedy: Name one with --profile" in err
    )
    assert not lifetime.home({"XDG_CACHE_HOME": str(cache)}).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_sandbox(number: signal.Signals, cache: Path) -> None:
    process = start(cache, BEAM)
    assert process.stderr is not None
    for line in process.stderr:
        if ": apply: run" in line:
            break
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_of_a_folder_its_recipes_are_taken_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("below/one.yaml", ".hidden/two.yaml", "three.yml"):
        shutil.copy(BEAM, tmp_path / name)
    (tmp_path / "hosts.yaml").write_text("all: {hosts: {gpu-a: {address: 192.0.2.1}}}\n", encoding="utf-8")
    (tmp_path / "three.lock.yaml").write_text("apiVersion: beamdeploy/v1\nkind: Lock\n", encoding="utf-8")
    (tmp_path / "values.yaml").write_text("replicas: 2\n", encoding="utf-8")
    files = (str(tmp_path / "below" / "one.yaml"), str(tmp_path / "three.yml"))
    assert recipe_files([str(tmp_path), files[0], "-"]) == (*files, "-")
    with pytest.raises(InputError) as raised:
        recipe_files([str(tmp_path / ".hidden" / ".."), str(tmp_path / "below"), str(tmp_path.parent / "none")])
        recipe_files([str(_empty(tmp_path))])
    assert [problem.what for problem in raised.value.problems] == ["there is no recipe in this folder"]


def _empty(folder: Path) -> Path:
    made = folder / "empty"
    made.mkdir()
    return made


def test_a_lock_holds_for_the_image_and_not_for_the_weights_of_a_sandbox() -> None:
    recipe = load_recipe(BEAM, [("hardware.count", "3")])
    lock = Lock("beam.lock.yaml", "a/b:c", "sha256:" + "0" * 64, weights={"nvfp4": LockedFolder(None, None, {})})
    (made,) = trial.trials([(recipe, lock, "")], None)
    assert (made.lock, made.profile) == (Lock("beam.lock.yaml", "a/b:c", "sha256:" + "0" * 64), "4xb300")
    assert (made.recipe.ready.timeout, recipe.ready.timeout) == (trial.PATIENCE, 45 * 60)


def test_every_variant_is_tested_and_one_can_be_chosen(cache: Path) -> None:
    recipe = str(SHIPPED / "beam-fp8-vllm-8xh200.yaml")
    _, told, _ = beamdeploy_test(cache, recipe, "--all-variants", "-j", "2", "-o", "json")
    hosts = json.loads(told)["hosts"]
    assert {name: host["outcome"] for name, host in hosts.items()} == {
        recipe: "ok",
        f"{recipe} --variant dflash2": "ok",
    }
    _, told, _ = beamdeploy_test(cache, recipe, "--variant", "dflash2", "-o", "json")
    assert list(json.loads(told)["hosts"]) == [f"{recipe} --variant dflash2"]
    code, _, err = beamdeploy_test(cache, recipe, "--variant", "no-such")
    assert (code, "there is no variant 'no-such'" in err) == (2, True)


def test_a_model_on_several_nodes_is_no_case_for_a_sandbox() -> None:
    wanted = load_recipe(BEAM, [("engine.nodes", "2"), ("engine.tensor_parallel", "8"), ("container.network", "host")])
    with pytest.raises(InputError, match="a sandbox is one server"):
        trial.trials([(wanted, None, "")], None)
