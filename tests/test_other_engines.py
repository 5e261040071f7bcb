"""Servers that beamdeploy does not know, and engines that somebody adds as a folder."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamdeploy import schema
from beamdeploy.inventory import Host
from beamdeploy.label import without_labels
from beamdeploy.recipe import build
from beamdeploy.render import render
from beamdeploy.served import served_by
from tests.forked import beamdeploy
from tests.test_engines import merged

ROOT = Path(__file__).parents[1]
LLAMA: Mapping[str, Any] = {
    "apiVersion": "beamdeploy/v1",
    "name": "qwen",
    "hardware": {"gpu": "H100", "count": 1},
    "image": {"reference": "ghcr.io/ggml-org/llama.cpp:server-cuda", "unpinned": "a test"},
    "model": {"served_name": "qwen3-8b", "weights": {"path": "qwen3-8b"}},
    "engine": {
        "name": "openai",
        "command": ["--model", "/weights/qwen3-8b/q4.gguf", "--host", "0.0.0.0", "--port", 8080, "-ngl", 99],
        "port": 8080,
        "ready": "/health",
    },
    "container": {
        "publish": "127.0.0.1:8000",
        "env": {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
    },
}
ENGINE = """\
name: tinyserve
entrypoint: tinyserve
port: 7000
ready: /healthz
reasoning_field: reasoning_content
stop_timeout: 10
"""
WORDS = """\
run
/weights/{{ recipe.model.weights.path }}
--gpus
{{ recipe.engine.tensor_parallel }}
{% for word in arguments %}
{{ word }}
{% endfor %}
"""
RULES = """\
from beamdeploy.rules.rule import Finding, Rule

def _even(subject):
    if subject.recipe.engine.tensor_parallel % 2:
        yield Finding("engine.tensor_parallel", "tinyserve wants an even number of GPUs", "Give an even number.")

RULES = (Rule("TS001", "An even number of GPUs", "error", "It is so.", "bad", "good", "", _even),)
"""
TINY = {
    "name": "tiny",
    "image": {"reference": "example.org/tinyserve:1", "unpinned": "a test"},
    "engine": {"name": "tinyserve", "command": None, "port": None, "ready": None, "tensor_parallel": 1},
}


def run(*words: str, recipe: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("BEAMDEPLOY_")}
    return beamdeploy(*words, text=yaml.safe_dump(dict(recipe)), cwd=ROOT, env=env)


def rules_of(done: subprocess.CompletedProcess[str], *levels: str) -> list[str]:
    return [each["rule"] for each in json.loads(done.stdout)["problems"] if each["level"] in levels]


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    """A folder with one engine, that has rules, a catalog, and no traits."""
    folder = tmp_path / "engines" / "tinyserve"
    folder.mkdir(parents=True)
    flags = [{"flag": "--batch", "type": "int", "takes_value": True}]
    for name, text in {
        "engine.yaml": f'{ENGINE}catalog: "1"\n',
        "words.j2": WORDS,
        "rules.py": RULES,
        "flags-1.json": json.dumps({"engine": "tinyserve", "version": "1", "flags": flags}),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder.parent


# --- any other OpenAI-compatible server


def test_a_server_of_any_kind_is_its_command() -> None:
    recipe = build(schema.defaults(LLAMA, "recipe"))
    spec = render(recipe, Host("gpu-a", model_dir="/srv/models"), None)
    assert without_labels(spec.words) == (
        *("docker", "run", "--detach", "--init", "--name", "qwen", "--gpus", '"device=0"'),
        *("-p", "127.0.0.1:8000:8080", "--mount", "type=bind,src=/srv/models,dst=/weights,readonly"),
        *("-e", "HF_HUB_OFFLINE=1", "-e", "TRANSFORMERS_OFFLINE=1"),
        *("ghcr.io/ggml-org/llama.cpp:server-cuda", "--model", "/weights/qwen3-8b/q4.gguf"),
        *("--host", "0.0.0.0", "--port", "8080", "-ngl", "99"),
    )
    assert (spec.engine.ready, spec.engine.port, served_by(recipe).engine) == ("/health", 8080, spec.engine)


def test_its_entrypoint_may_be_another() -> None:
    data = merged(LLAMA, {"engine": {"entrypoint": "/app/llama-server"}})
    words = render(build(schema.defaults(data, "recipe")), Host("-", model_dir="/m"), None).words
    assert words[words.index("--entrypoint") + 1] == "/app/llama-server"


def test_it_is_valid_without_a_catalog() -> None:
    told = run("validate", "-", "-o", "json", "--strict", recipe=LLAMA)
    assert (told.returncode, rules_of(told, "error", "warning")) == (0, [])


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ({"engine": {"max_num_seqs": 8}}, ["BD305"]),
        ({"parsers": {"tool_call": "hermes"}}, ["BD305"]),
        ({"speculative": {"method": "mtp"}}, ["BD305"]),
        ({"engine": {"command": None}}, ["BD305"]),
        ({"engine": {"name": "vllm", "tensor_parallel": 1}}, ["BD305"] * 3),
        ({"engine": {"name": "vllm", "command": None, "port": None, "ready": None}}, ["BD305"]),
        ({"engine": {"comand": ["a"]}}, ["BD030"]),
        ({"engine": {"port": 0}}, ["BD036"]),
        ({"engine": {"ready": "health"}}, ["BD035"]),
    ],
)
def test_what_would_reach_nothing_is_refused(change: Mapping[str, Any], rules: list[str]) -> None:
    told = run("validate", "-", "-o", "json", recipe=merged(LLAMA, change))
    assert (told.returncode, rules_of(told, "error")) == (2, rules)


# --- an engine from a folder


def test_an_engine_is_added_by_its_folder(engines: Path) -> None:
    recipe = merged(LLAMA, TINY, {"engine": {"args": {"batch": 4}}})
    told = run("--engines", str(engines), "render", "-", "-o", "json", recipe=recipe)
    assert told.returncode == 0, told.stderr
    words = json.loads(told.stdout)["hosts"]["-"]["words"]
    assert words[words.index("--entrypoint") :] == [
        *("--entrypoint", "tinyserve", "example.org/tinyserve:1", "run", "/weights/qwen3-8b"),
        *("--gpus", "1", "--batch", "4"),
    ]


def test_its_catalog_is_asked(engines: Path) -> None:
    recipe = merged(LLAMA, TINY, {"engine": {"args": {"bath": 4}}})
    told = run("--engines", str(engines), "validate", "-", "-o", "json", recipe=recipe)
    assert (told.returncode, rules_of(told, "error")) == (2, ["BD310"])


def test_without_the_folder_it_is_not_known() -> None:
    told = run("validate", "-", "-o", "json", recipe=merged(LLAMA, TINY))
    assert (told.returncode, rules_of(told, "error")) == (2, ["BD301"])


def test_its_rules_run_only_when_it_is_trusted(engines: Path) -> None:
    recipe = merged(LLAMA, TINY)
    words = ("validate", "-", "-o", "json")
    unasked = run("--engines", str(engines), *words, recipe=recipe)
    assert (unasked.returncode, rules_of(unasked, "error")) == (0, [])
    assert "BD306" in rules_of(unasked, "info")
    trusted = run("--engines", str(engines), "--trust-engines", *words, recipe=recipe)
    assert (trusted.returncode, rules_of(trusted, "error")) == (2, ["TS001"])


def test_rules_that_raise_are_said_with_their_file(engines: Path) -> None:
    (engines / "tinyserve" / "rules.py").write_text("raise RuntimeError('no')\n", encoding="utf-8")
    told = run("--engines", str(engines), "--trust-engines", "render", "-", recipe=merged(LLAMA, TINY))
    assert told.returncode == 2
    assert "rules.py: RuntimeError: no" in told.stderr


def test_what_is_no_folder_holds_no_engines(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    for place in ("/dev/zero", str(tmp_path / "pipe"), str(tmp_path / "file"), str(tmp_path / "none")):
        told = beamdeploy("render", "-", text=json.dumps(LLAMA), env={**os.environ, "BEAMDEPLOY_ENGINES": place})
        assert (told.returncode, f"{place} is no folder" in told.stderr) == (2, True), told.stderr
        assert run("--engines", place, "render", "-", recipe=LLAMA).returncode == 2
    told = run("--engines", "", "render", "-", recipe=LLAMA)
    assert (told.returncode, "'' does not exist" in told.stderr) == (2, True), told.stderr


def test_an_engine_of_ours_is_not_replaced(engines: Path) -> None:
    (engines / "tinyserve").rename(engines / "vllm")
    recipe = merged(LLAMA, TINY, {"engine": {"name": "vllm"}})
    told = run("--engines", str(engines), "render", "-", "-o", "json", recipe=recipe)
    assert "--tensor-parallel-size" in json.loads(told.stdout)["hosts"]["-"]["words"]


def test_a_broken_engine_yaml_is_said(engines: Path) -> None:
    (engines / "tinyserve" / "engine.yaml").write_text("name: tinyserve\nprot: 1\n", encoding="utf-8")
    told = run("--engines", str(engines), "render", "-", recipe=merged(LLAMA, TINY))
    assert told.returncode == 2
    assert "engine.yaml does not describe an engine" in told.stderr
