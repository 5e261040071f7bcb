"""Import of commands that are there already: the same words come back, and what is lost is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from beamdeploy import schema
from beamdeploy.composefile import read_compose
from beamdeploy.dockerrun import Run, read, read_text
from beamdeploy.engines.catalog import catalog
from beamdeploy.errors import InputError
from beamdeploy.exporting import compose
from beamdeploy.importing import imported
from beamdeploy.inventory import Host
from beamdeploy.label import without_labels
from beamdeploy.recipe import build
from beamdeploy.render import render
from beamdeploy.report.paste import paste
from beamdeploy.vllmrecipe import read_vllm
from tests.forked import beamdeploy
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


@pytest.mark.parametrize(
    ("volume", "model", "path", "model_dir"),
    [("/srv/m:/w:ro", "/w/a", "a", "/srv/m"), ("/srv/m/a:/w:ro", "/w", "a", "/srv/m"), ("/a:/w", "/w", "a", "/")],
)
def test_it_says_which_model_dir_the_inventory_needs(volume: str, model: str, path: str, model_dir: str) -> None:
    recipe, notes = imported(read_text(f"docker run -v {volume} vllm/vllm-openai:v0.33.0 --model {model}"))
    assert recipe["model"]["weights"] == {"path": path}
    assert [note for note in notes if f"model_dir: {model_dir} in the inventory" in note] != [], notes


def test_the_command_prints_a_recipe_that_validates() -> None:
    told = beamdeploy("import", "docker-run", "-", "--gpu", "B200", text=VENDOR, cwd=ROOT)
    assert told.returncode == 0
    assert yaml.safe_load(told.stdout)["engine"]["name"] == "vllm"
    assert "--ipc host has no place in a recipe" in told.stderr


# --- compose files


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_is_exported_to_compose_gives_the_same_words(path: Path) -> None:
    words = json.loads(path.read_text("utf-8"))
    run, grace, notes = read_compose(compose(read(words), 70))
    assert (again(run), grace, notes) == (words, 70, ())


COMPOSE = """\
services:
  cache: {image: redis}
  llm:
    image: vllm/vllm-openai:${TAG:-v0.33.0}
    command: --model Qwen/Qwen3-8B --served-model-name q --max-model-len 4096
    ports: ["8000:8000"]
    volumes: ["~/.cache/huggingface:/root/.cache/huggingface"]
    environment: [HF_TOKEN, VLLM_LOGGING_LEVEL=DEBUG, "KEY=${NOWHERE}"]
    ipc: host
    shm_size: 16gb
    healthcheck: {test: curl -f http://localhost:8000/health}
    depends_on: [cache]
    stop_grace_period: 1m30s
    deploy:
      replicas: 1
      resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}
"""


def test_a_compose_service_becomes_a_recipe_and_says_what_is_lost() -> None:
    run, grace, lost = read_compose(COMPOSE)
    recipe, notes = imported(run, gpu="H200")
    assert (recipe["name"], recipe["hardware"], grace) == ("llm", {"gpu": "H200", "count": 2}, 90)
    assert recipe["image"]["reference"] == "vllm/vllm-openai:v0.33.0"
    assert recipe["model"]["served_name"] == "q" and recipe["engine"]["max_model_len"] == 4096
    assert recipe["container"]["publish"] == "127.0.0.1:8000" and recipe["container"]["shm_size"] == "16g"
    assert recipe["container"]["secrets"] == {"HF_TOKEN": {"env": "HF_TOKEN"}}
    text = "\n".join((*lost, *notes))
    for said in (
        "healthcheck",
        "depends_on",
        "deploy.replicas",
        "${NOWHERE} is a variable",
        "--ipc host",
        "every interface",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("text", "service", "what"),
    [
        ("a: [", None, "no YAML"),
        ("a: 1", None, "no services"),
        ("services: {a: {image: redis}}", None, "0 services look like an engine"),
        ("services: {a: {image: vllm/x}, b: {image: vllm/y}}", None, "2 services look like an engine: a, b"),
        ("services: {a: {image: vllm/x}}", "c", "there is no service c"),
        ("services: {a: {build: vllm, command: vllm serve x}}", None, "names no image"),
    ],
)
def test_what_is_no_such_compose_file_is_refused(text: str, service: str | None, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_compose(text, service)


# --- vLLM's own files


@pytest.mark.parametrize("path", [each for each in GOLDEN if "-vllm-" in each.stem], ids=lambda path: path.stem)
def test_the_flags_of_a_config_file_give_the_same_words(path: Path) -> None:
    words = json.loads(path.read_text("utf-8"))
    at = words.index("serve")
    run, _ = read_vllm(config_of(words[at + 1 :]), image=words[at - 1], variant="default", gpu="H200", count=None)
    recipe, _ = imported(run, gpu="H200")
    rendered = list(
        without_labels(render(build(schema.defaults(recipe, "recipe")), Host("-", model_dir="/m"), None).words)
    )
    assert rendered[rendered.index("serve") :] == words[at:]


def config_of(words: list[str]) -> str:
    """The words after `vllm serve` as its file."""
    found: dict[str, object] = {"model": words[0]}
    for at, word in enumerate(words[1:], start=1):
        if word.startswith("--"):
            following = words[at + 1 : at + 2]
            found[word[2:]] = True if not following or following[0].startswith("--") else _typed(following[0])
    return yaml.safe_dump(found, sort_keys=False)


def _typed(word: str) -> object:
    return json.loads(word) if word.startswith("{") else int(word) if word.isdigit() else word


PROJECT = """\
meta: {title: M, slug: m, date_updated: 2026-05-18}
model:
  model_id: org/M
  min_vllm_version: "0.33.0"
  base_args: [--trust-remote-code]
  base_env: {A: "1"}
features:
  tool_calling: {args: [--tool-call-parser, minimax_m2, --enable-auto-tool-choice]}
  reasoning: {args: [--reasoning-parser, minimax_m2]}
  drafting: {args: [--speculative-config, '{"method":"mtp","num_speculative_tokens":1}']}
opt_in_features: [drafting]
variants:
  default: {precision: fp8, vram_minimum_gb: 276}
  nvfp4: {model_id: nvidia/M-NVFP4, extra_args: [--kv-cache-dtype, fp8], extra_env: {B: "1"}}
hardware_overrides:
  hopper: {extra_args: [--max-num-seqs, "512"], extra_env: {C: "0"}}
strategy_overrides: {single_node_tp: {tp: 4}}
guide: text
"""


def of_the_project(variant: str = "default", gpu: str | None = "H200", count: int | None = None) -> tuple[Run, str]:
    run, notes = read_vllm(PROJECT, image=None, variant=variant, gpu=gpu, count=count)
    return run, "\n".join(notes)


def test_a_recipe_of_the_vllm_project_is_its_parts_together() -> None:
    run, notes = of_the_project()
    recipe, _ = imported(run, gpu="H200")
    assert recipe["model"]["weights"]["source"] == "hf://org/M"
    assert recipe["engine"]["tensor_parallel"] == recipe["hardware"]["count"] == 4
    assert recipe["engine"]["max_num_seqs"] == 512 and recipe["engine"]["args"] == {"trust-remote-code": True}
    assert recipe["parsers"] == {"tool_call": "minimax_m2", "reasoning": "minimax_m2"}
    assert recipe["container"]["env"] == {"A": "1", "C": "0"} and "speculative" not in recipe
    assert recipe["image"]["reference"] == "vllm/vllm-openai:v0.33.0"
    assert "the feature drafting" in notes and "names no image" in notes


def test_a_variant_and_another_generation_of_gpus_are_other_words() -> None:
    run, _ = of_the_project("nvfp4", "B200")
    recipe, _ = imported(run, gpu="B200")
    assert recipe["model"]["weights"]["source"] == "hf://nvidia/M-NVFP4"
    assert recipe["quantization"] == {"kv_cache": "fp8"} and "max_num_seqs" not in recipe["engine"]
    assert recipe["container"]["env"] == {"A": "1", "B": "1"}
    assert "hardware_overrides (hopper) were left out" in of_the_project(gpu=None)[1]


@pytest.mark.parametrize(
    ("text", "what"),
    [("a: [", "no YAML"), ("a: 1", "neither a file"), ("[]", "neither a file"), (PROJECT, "no variant x")],
)
def test_what_is_no_file_of_vllm_is_refused(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_vllm(text, image=None, variant="x", gpu=None, count=None)


@pytest.mark.parametrize(("command", "text"), [("compose", COMPOSE), ("vllm-recipe", PROJECT)])
def test_what_is_imported_of_a_file_is_printed(command: str, text: str) -> None:
    told = beamdeploy("import", command, "-", "--gpu", "H200", text=text, cwd=ROOT)
    assert told.returncode == 0, told.stderr
    assert yaml.safe_load(told.stdout)["engine"]["name"] == "vllm"
    assert "warning" in told.stderr


# --- published commands, as far as their flags are public: each comes back under the engine's own name for it

_VLLM = (
    "docker run --gpus all --ipc=host --shm-size=32g -p 8000:8000 -v /m:/weights vllm/vllm-openai:v0.33.0 /weights/w "
)
_TOKENSPEED = (
    "docker run --gpus all -v /m:/weights --entrypoint tokenspeed lightseekorg/tokenspeed:0.1.1 serve /weights/w "
)
PUBLISHED = {
    "kimi-k2.5-nvfp4-dflash, lightseekorg/tokenspeed test/ci/eval": _TOKENSPEED
    + "--tp 4 --attention-backend tokenspeed_mla --moe-backend flashinfer_trtllm --quantization nvfp4 "
    "--kv-cache-dtype fp8_e4m3 --speculative-algorithm DFLASH --speculative-draft-model-path /weights/d "
    "--speculative-num-draft-tokens 8 --speculative-num-steps 7 --drafter-attention-backend trtllm --disable-kvstore "
    "--engine-startup-timeout 2400",
    "minimax-m3-nvfp4, lightseekorg/tokenspeed docs/recipes/models.md": _TOKENSPEED
    + "--tensor-parallel-size 4 --gpu-memory-utilization 0.95 --block-size 128 --kv-cache-dtype fp8 "
    "--disable-cuda-graph-padding",
    "glm-5.2-nvfp4-reap, 0xSero/glm-5.2-sm120": _VLLM
    + "--tensor-parallel-size 4 --quantization modelopt_fp4 --kv-cache-dtype fp8 --gpu-memory-utilization 0.95 "
    "--max-num-batched-tokens 8192 --load-format fastsafetensors "
    """--speculative-config '{"method":"mtp","num_speculative_tokens":3}'""",
    "glm-5.3-flash-nvfp4-dflash2, tonyd2wild": _VLLM
    + "--tensor-parallel-size 2 --load-format instanttensor --gpu-memory-utilization 0.85 --max-model-len 262144 "
    "--moe-backend marlin --enforce-eager --kv-cache-dtype fp8_e4m3 "
    """--speculative-config '{"method":"dflash","model":"/weights/d","num_speculative_tokens":7}'""",
}
OF_OURS = {"--host", "--port", "--served-model-name"}
WIDTHS = (
    "--speculative-algorithm",
    "--speculative-draft-model-path",
    "--speculative-num-draft-tokens",
    "--speculative-num-steps",
)


def flags_of(words: list[str], engine: str, version: str) -> dict[str, str]:
    """Flag, by the catalog's name → its value, "" for a switch."""
    known = catalog(engine, version)
    assert known is not None
    found = {}
    for at, word in enumerate(words):
        if word.startswith("--"):
            flag = known.names.get(word)
            value = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else ""
            found[flag.name if flag else word] = value
    return found


@pytest.mark.parametrize("text", PUBLISHED.values(), ids=PUBLISHED)
def test_a_published_commands_flags_come_back_one_by_one(text: str) -> None:
    run = read_text(text)
    engine, version = ("vllm", "0.33.0") if "vllm" in run.image else ("tokenspeed", "0.1.1")
    words = again(run)
    given = flags_of(list(run.words), engine, version)
    rendered = flags_of(words[words.index("serve") :], engine, version)
    if "--speculative-algorithm" in given:  # TokenSpeed takes the same as one word of JSON
        said = json.loads(rendered.pop("--speculative-config"))
        assert said == {"method": "dflash", "model": "/weights/d", "num_speculative_tokens": 8}
        given = {name: value for name, value in given.items() if name not in WIDTHS}
    assert {name: value for name, value in rendered.items() if name not in OF_OURS} == given


@pytest.mark.parametrize(
    ("flags", "number"),
    [
        ("--speculative-algorithm DFLASH --speculative-num-steps 7", 8),
        ("--speculative-algorithm DFLASH --speculative-num-draft-tokens 8", 8),
        ("--speculative-num-steps 3 --speculative-algorithm EAGLE3 --speculative-num-draft-tokens 4", 3),
        ("--speculative-algorithm MTP --speculative-num-draft-tokens 4", 3),
    ],
)
def test_tokenspeeds_two_widths_are_one_number(flags: str, number: int) -> None:
    recipe, _ = imported(read_text(_TOKENSPEED + flags), gpu="B200")
    assert recipe["speculative"]["num_speculative_tokens"] == number


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
