"""Import of commands that are there already: the same words come back, and what is lost is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from beamdeploy import schema
from beamdeploy.dockerrun import Run, read, read_text
from beamdeploy.errors import InputError
from beamdeploy.importing import imported
from beamdeploy.inventory import Host
from beamdeploy.label import without_labels
from beamdeploy.recipe import build
from beamdeploy.render import render
from beamdeploy.report.paste import paste
from tests.test_render import PAGE

ROOT = Path(__file__).parents[1]
GOLDEN = sorted((ROOT / "tests" / "data" / "golden").glob("*.json"))


def again(run: Run, model_dir: str = "/srv/models") -> list[str]:
    """The words of the recipe that was made of a command."""
    recipe, _ = imported(run, gpu="H200")
    return list(
        without_labels(render(build(schema.defaults(recipe, "recipe")), Host("-", model_dir=model_dir), None).words)
    )


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_render_prints_gives_the_same_words(path: Path) -> None:
    words = json.loads(path.read_text("utf-8"))
    assert again(read_text(paste(words, expand=False))) == words


def test_the_publishers_page_gives_its_own_words() -> None:
    words = ["--detach" if word == "--rm" else word for word in PAGE]
    assert again(read(PAGE), "/srv/models/beam") == words


VENDOR = """\
# as it stands on many pages
export HF_TOKEN=hf_x
docker run -it --gpus all -p 8000:8000 --ipc=host -v ~/.cache/huggingface:/root/.cache/huggingface \\
  --env "HF_TOKEN=$HF_TOKEN" vllm/vllm-openai:v0.33.0 \\
  --model Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 --max-model-len 131072 --enable-expert-parallel -tp 4 \\
  --enable-auto-tool-choice --tool-call-parser qwen3_coder --no-such-flag 3 && echo done
"""


def test_a_vendors_command_becomes_a_recipe_and_says_what_is_lost() -> None:
    recipe, notes = imported(read_text(VENDOR))
    assert recipe["engine"] == {
        "name": "vllm",
        "catalog": "0.33.0",
        "max_model_len": 131072,
        "expert_parallel": 4,
        "tensor_parallel": 4,
        "args": {"no-such-flag": "3"},
        "unverified": ["engine.args.no-such-flag"],
    }
    assert recipe["model"]["weights"]["source"] == "hf://Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"
    assert recipe["container"]["publish"] == "127.0.0.1:8000"
    assert recipe["container"]["secrets"] == {"HF_TOKEN": {"env": "HF_TOKEN"}}
    assert "env" not in recipe["container"]
    assert "hf_x" not in str(recipe)
    text = "\n".join(notes)
    for said in ("--ipc host", "--no-such-flag", "came from the hub", "every interface", "hardware.gpu", "--init"):
        assert said in text


def test_sglang_is_known_by_its_module() -> None:
    text = (
        "docker run --gpus all -p 127.0.0.1:30000:30000 -v /m:/models lmsysorg/sglang:latest python3 -m "
        "sglang.launch_server --model-path /models/a --tp-size 8 --context-length 4096 --disable-radix-cache"
    )
    engine = imported(read_text(text), gpu="H200")[0]["engine"]
    assert engine == {
        "name": "sglang",
        "catalog": "0.5.23",
        "tensor_parallel": 8,
        "max_model_len": 4096,
        "prefix_caching": False,
    }


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("echo hello", "there is no `docker run` in it"),
        ("docker run 'a", "cannot be split into words"),
        ("docker run --rm", "names no image"),
        ("docker run nginx", "which engine"),
        ("docker run vllm/vllm-openai:v0.33.0", "names no model"),
    ],
)
def test_what_is_no_such_command_is_refused(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        imported(read_text(text))


def test_the_command_prints_a_recipe_that_validates() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "beamdeploy", "import", "docker-run", "-", "--gpu", "B200"],
        input=VENDOR,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert told.returncode == 0
    assert yaml.safe_load(told.stdout)["engine"]["name"] == "vllm"
    assert "--ipc host has no place in a recipe" in told.stderr


@pytest.mark.parametrize(
    ("words", "count", "access"),
    [
        ("--device nvidia.com/gpu=0 --device nvidia.com/gpu=1", 2, "cdi"),
        ("--device nvidia.com/gpu=all", 4, "cdi"),
        ("--device /dev/nvidia3 --device /dev/nvidiactl --device /dev/nvidia-uvm", 1, "devices"),
        ("--gpus '\"device=0,1,2\"'", 3, None),
        ("--gpus all", 4, None),
    ],
)
def test_gpus_are_counted_however_they_are_given(words: str, count: int, access: str | None) -> None:
    recipe, notes = imported(
        read_text(f"docker run {words} --device /dev/fuse vllm/vllm-openai:v0.33.0 --model a/b -tp 4")
    )
    assert recipe["hardware"]["count"] == count
    assert [note for note in notes if "gpu_access" in note] == (
        [f"the GPUs are given by --device: say gpu_access: {access} in the inventory"] if access else []
    )
    assert [note for note in notes if note.startswith("--device")] == [
        "--device /dev/fuse has no place in a recipe (docker_args of a host)"
    ]
