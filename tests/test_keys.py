"""A server's key that no header can carry is refused here, or on the host, and no character of it is said."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from beamdeploy import secrets
from beamdeploy.apikey import sendable
from beamdeploy.errors import InputError
from beamdeploy.recipe import Recipe, load_recipe
from beamdeploy.sandbox import lifetime
from tests.forked import beamdeploy

RECIPES = Path(__file__).parents[1] / "recipes"
Command = Callable[..., tuple[int, str]]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A recipe for vLLM, which guards its list of models, too."""
    recipe = yaml.safe_load((RECIPES / "gpt-oss-20b-vllm-1xh100.yaml").read_text(encoding="utf-8"))
    recipe["name"] = "keyed"
    recipe["container"]["secrets"] = {"VLLM_API_KEY": {"env": "MY_KEY"}, "HF_TOKEN": {"env": "MY_TOKEN"}}
    (tmp_path / "keyed.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return str(tmp_path / "keyed.yaml")


@pytest.fixture
def recipe(file: str) -> Recipe:
    return load_recipe(file)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}

    def run(*words: str) -> tuple[int, str]:
        env = {**os.environ, **cache, "BEAMDEPLOY_SANDBOX": "default", "MY_KEY": "key-31c7", "MY_TOKEN": "t"}
        done = beamdeploy(*words, "-i", "sandbox", env=env)
        assert "Traceback" not in done.stderr and "31c7" not in done.stdout + done.stderr
        return done.returncode, done.stdout + done.stderr

    yield run
    for folder in lifetime.all_of(cache):
        lifetime.down(folder)


@pytest.mark.parametrize("key", ["Q7ü", " ", " Q7", "Q7 ", "Q7\tb", "Q7\rb", "Q7\x00b", "Q7\x7fb", "Q7\udcff"])
def test_a_key_that_no_header_carries_is_refused(recipe: Recipe, key: str) -> None:
    with pytest.raises(InputError) as refused:
        secrets.given(recipe, {"MY_KEY": key, "MY_TOKEN": "t"})
    assert [problem.rule for problem in refused.value.problems] == ["BD052"]
    assert "Q7" not in str(refused.value.problems)


@pytest.mark.parametrize("token", ["", "a\nb", "a\udcff"])
def test_a_secret_that_an_env_file_cannot_hold_is_refused(recipe: Recipe, token: str) -> None:
    with pytest.raises(InputError, match="HF_TOKEN"):
        secrets.given(recipe, {"MY_KEY": "k", "MY_TOKEN": token})


def test_other_keys_and_other_secrets_are_taken_as_they_are(recipe: Recipe) -> None:
    given = secrets.given(recipe, {"MY_KEY": "a b~!", "MY_TOKEN": "tökén "})
    assert sorted(given.splitlines()) == ["HF_TOKEN=tökén ", "VLLM_API_KEY=a b~!"]
    assert sendable("x") and not sendable("")


def test_a_server_with_a_key_is_ready_and_doubts_are_said(file: str, command: Command, tmp_path: Path) -> None:
    code, said = command("apply", file)
    assert code == 0, said
    for words in (("status",), ("status", "--deep"), ("doctor",)):
        code, said = command(*words)
        assert (code, ", ready" in said) == (0, True), said

    env = next(tmp_path.rglob("secrets.env"))
    right = env.read_bytes()
    for wrong in (right.replace(b"key-31c7", b"other"), right.replace(b"key-31c7", "kéy-31c7".encode())):
        env.write_bytes(wrong)
        for words in (("status",), ("status", "--deep"), ("doctor",)):
            code, said = command(*words)
            assert (code, "key refused" in said and "loading" not in said) == (6, True), said
    code, said = command("smoke", file)
    assert (code, "printable ASCII" in said) == (1, True), said

    env.write_bytes(right)
    record = next(path for path in tmp_path.rglob("record.json") if '"beamdeploy.spec"' in path.read_text())
    text = record.read_text(encoding="utf-8")
    spec = json.loads(text)["Config"]["Labels"]["beamdeploy.spec"]
    record.write_text(text.replace(spec, base64.b64encode(b"garbage").decode()), encoding="utf-8")
    code, said = command("status")
    assert (code, "running" in said and "label unreadable" in said) == (6, True), said
