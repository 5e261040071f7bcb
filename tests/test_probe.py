"""What is asked in a new image before the old server is stopped, and what its answers mean for the recipe."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beamdeploy.errors import Problem
from beamdeploy.plan import plan_apply
from beamdeploy.probe import cuda, engine_words, probe_words, problems
from beamdeploy.probe.cuda import cuda_words
from beamdeploy.render import render
from beamdeploy.sandbox.furnish import PACKAGES, SHIMS
from tests.test_plan import SPEC_NOW, THREES, container, facts, spec_of

GOOD = {"tool_call": ["beam", "json"], "reasoning": ["beam"], "engine": None, "gateway": None, "unasked": []}


def test_the_probe_has_the_server_s_mounts_and_environment_and_no_gpu_name_or_port() -> None:
    words = probe_words(SPEC_NOW)
    start = words.index("-c")
    assert words[:start] == (
        "docker", "run", "--init", "--shm-size=64g", "--mount", "type=bind,src=/srv/models/beam,dst=/weights,readonly",
        "-e", "HF_HUB_OFFLINE=1", "-e", "TRANSFORMERS_OFFLINE=1", "--rm", "--network", "none",
        "--entrypoint", "python3", SPEC_NOW.image.word,
    )  # fmt: skip
    assert re.fullmatch(r"[ -~]+", words[start + 1]) and "\\" not in words[start + 1]
    assert words[start + 2 :] == engine_words(SPEC_NOW)
    assert engine_words(SPEC_NOW)[:2] == ("--host", "0.0.0.0")


def test_a_plan_asks_after_the_pull_and_before_a_stop_or_a_load() -> None:
    replaced = plan_apply(spec_of(digest=THREES), facts(container()))
    assert [step.kind for step in replaced.steps][:4] == ["pull", "probe", "try GPUs", "stop"]
    assert [step.kind for step in plan_apply(SPEC_NOW, facts()).steps] == ["probe", "try GPUs", "run", "settle"]
    # where the words are the same, nothing new is to be learnt
    assert [step.kind for step in plan_apply(SPEC_NOW, facts(container(state="exited"))).steps] == ["start", "settle"]


def test_a_plan_says_whether_the_image_or_only_its_words_are_new() -> None:
    new = plan_apply(spec_of(digest=THREES), facts(container()))
    words = plan_apply(spec_of(("engine.max_num_seqs", "16")), facts(container()))
    first = plan_apply(SPEC_NOW, facts())
    asked = [next(step.reason for step in plan.steps if step.kind == "probe") for plan in (new, words, first)]
    assert asked == [
        f"whether {which} image knows these parsers and takes these flags" for which in ("the new", "the same", "the")
    ]


def test_cuda_is_tried_with_the_server_s_gpus_and_without_memory_where_a_server_runs() -> None:
    beside = cuda.cuda_words(SPEC_NOW, contexts=False)
    start = beside.index("--rm")
    assert beside[:start] == (
        "docker", "run", "--init", "--gpus", '"device=0,1,2,3"', "--shm-size=64g",
        "--mount", "type=bind,src=/srv/models/beam,dst=/weights,readonly",
        "-e", "HF_HUB_OFFLINE=1", "-e", "TRANSFORMERS_OFFLINE=1",
    )  # fmt: skip
    assert beside[start:-1] == (
        "--rm", "--network", "none", "--entrypoint", "sh", SPEC_NOW.image.word, "-c", cuda.SHELL, "python3"
    )  # fmt: skip
    assert cuda.cuda_words(SPEC_NOW, contexts=True) == (*beside, "contexts")
    assert all(re.fullmatch(r"[ -~]+", word) and "\\" not in word for word in beside)
    running, empty = plan_apply(spec_of(digest=THREES), facts(container())), plan_apply(SPEC_NOW, facts())
    tried = [next(step.words[-1] for step in plan.steps if step.kind == "try GPUs") for plan in (running, empty)]
    assert [word == "contexts" for word in tried] == [False, True]


@pytest.mark.parametrize(
    ("out", "level", "said"),
    [
        ('{"call": null, "status": 0, "gpus": 4}\n', "", ""),
        ("GPU 0: NVIDIA B300 (UUID: GPU-0)\n" * 4, "", ""),
        (
            '{"call": "cuInit", "status": 802, "gpus": 0}\n',
            "error",
            f"CUDA does not start in the image {SPEC_NOW.image.word} on GPU 0, 1, 2, 3: cuInit says 802 "
            "(system not yet initialized)",
        ),
        ('{"call": "cuInit", "status": 7, "gpus": 0}\n', "error", "cuInit says 7 (see cuda.h)"),
        ('{"call": null, "status": 0, "gpus": 2}\n', "error", "sees 2 GPUs, and was given 4"),
        ('{"unasked": "libcuda.so.1: cannot open"}\n', "warning", "was not looked at: libcuda.so.1: cannot open"),
        ("nothing to ask\n", "warning", "whether CUDA starts in the image was not looked at: nothing to ask"),
        ("", "warning", "was not looked at: it said nothing"),
    ],
)
def test_what_a_container_with_the_gpus_says_of_cuda(out: str, level: str, said: str) -> None:
    found = list(cuda.problems(SPEC_NOW, out))
    assert [problem.level for problem in found] == ([level] if level else [])
    assert said in "".join(problem.what for problem in found)
    assert all(problem.remedy for problem in found)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "0,1,2,3"}, {"call": None, "status": 0, "gpus": 4}),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, {"call": "cuInit", "status": 100, "gpus": 0}),
        ({"NVIDIA_VISIBLE_DEVICES": "0", "STANDIN_CUDA": "803"}, {"call": "cuInit", "status": 803, "gpus": 0}),
    ],
)
def test_the_program_that_tries_cuda_beside_the_stand_in_s_driver(
    tmp_path: Path, env: Mapping[str, str], told: Mapping[str, Any]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SHIMS["sitecustomize.py"], encoding="utf-8")
    words = cuda.cuda_words(SPEC_NOW, contexts=True)
    inside = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), PACKAGES)), **env}
    line = ("sh", *words[words.index("-c") :])
    done = subprocess.run(line, env=inside, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == told


def test_where_an_image_holds_nothing_to_ask_with_that_is_said(tmp_path: Path) -> None:
    line = ("/bin/sh", "-c", cuda.SHELL, "python3", "print()")
    done = subprocess.run(line, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert [problem.level for problem in cuda.problems(SPEC_NOW, done.stdout)] == ["warning"]


def test_an_image_that_knows_everything_is_no_problem() -> None:
    assert list(problems(SPEC_NOW, GOOD)) == []


@pytest.mark.parametrize(
    ("told", "where", "what", "remedy"),
    [
        (
            {
                "tool_call": ["json"],
                "gateway": "smg launch: error: argument --tool-call-parser: invalid choice: 'beam'",
            },
            "parsers.tool_call",
            f"parsers.tool_call: the image {SPEC_NOW.image.word} knows no tool-call parser 'beam'",
            "It knows: json.",
        ),
        (
            {"engine": "engine: error: argument --kv-cache-dtype: invalid choice: 'fp8_e4m3'"},
            "quantization.kv_cache",
            f"quantization.kv_cache: the engine in the image {SPEC_NOW.image.word} refuses its words: "
            "engine: error: argument --kv-cache-dtype: invalid choice: 'fp8_e4m3'",
            "Correct it in the recipe, or use the image that it was written for.",
        ),
        (
            {"gateway": "smg launch: error: unrecognized arguments: --nosuch 1"},
            "",
            f"the gateway in the image {SPEC_NOW.image.word} refuses its words: "
            "smg launch: error: unrecognized arguments: --nosuch 1",
            "Correct it in the recipe, or use the image that it was written for.",
        ),
    ],
)
def test_what_an_image_refuses_is_said_of_the_recipe_s_field(
    told: Mapping[str, Any], where: str, what: str, remedy: str
) -> None:
    assert list(problems(SPEC_NOW, {**GOOD, **told})) == [Problem(what, remedy, where=where, rule="BD266")]


def test_what_could_not_be_asked_is_a_warning() -> None:
    (problem,) = problems(SPEC_NOW, {"unasked": ["parsers: ModuleNotFoundError(\"No module named 'smg'\")"]})
    assert (problem.level, "No module named 'smg'" in problem.what) == ("warning", True)


def answer(tmp_path: Path, *words: str) -> Mapping[str, Any]:
    """What the probe's program prints beside the stand-in's packages."""
    for name, text in SHIMS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    start = probe_words(SPEC_NOW)[probe_words(SPEC_NOW).index("-c") + 1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), PACKAGES))}
    done = subprocess.run([sys.executable, "-c", start, *words], env=env, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_the_program_takes_the_page_s_words(tmp_path: Path) -> None:
    told = answer(tmp_path, *engine_words(SPEC_NOW), "--drain-timeout", "30", "--control-port=9")
    assert (told["engine"], told["gateway"], told["unasked"]) == (None, None, [])
    assert list(problems(SPEC_NOW, told)) == []


@pytest.mark.parametrize(
    ("words", "program", "said"),
    [
        (("--max-num-seqs", "many"), "engine", "--max-num-seqs"),
        (("--nosuch-flag", "1"), "gateway", "unrecognized arguments: --nosuch-flag"),
    ],
)
def test_the_program_tells_who_refuses_what(tmp_path: Path, words: tuple[str, ...], program: str, said: str) -> None:
    assert said in answer(tmp_path, *engine_words(SPEC_NOW), *words)[program]


def test_the_program_names_what_the_image_lacks() -> None:
    start = probe_words(SPEC_NOW)[probe_words(SPEC_NOW).index("-c") + 1]
    done = subprocess.run([sys.executable, "-S", "-c", start], capture_output=True, text=True, check=True, cwd="/")
    assert [each.partition(":")[0] for each in json.loads(done.stdout)["unasked"]] == [
        "parsers",
        "engine's flags",
        "gateway's flags",
    ]
    assert b"LAUNCHER" in base64.b64decode(start.split("'")[3])


@pytest.mark.parametrize("access", ["cdi", "devices"])
def test_gpus_given_as_devices_are_given_to_cudas_trial_and_not_to_the_probe(access: str) -> None:
    odd = replace(SPEC_NOW.host, gpu_access=access, docker_args=("-v", "/lib:/lib:ro"))
    spec = render(SPEC_NOW.recipe, odd, None)
    given = [word for word in spec.words if word == "--device"]
    assert [word for word in probe_words(spec) if word == "--device"] == []
    assert [word for word in cuda_words(spec, contexts=False) if word == "--device"] == given
    assert "-v" in probe_words(spec) and "-v" in cuda_words(spec, contexts=False)
