"""Rendering: the Beam recipe gives the published command word for word, and bad templates are refused."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from beamdeploy.errors import InputError
from beamdeploy.inventory import Host
from beamdeploy.label import read_labels, without_labels
from beamdeploy.lock import Lock
from beamdeploy.recipe import Folder, Recipe, Speculative, load_recipe
from beamdeploy.render import Spec, digest_of_words, mount_word, nowhere, render, render_again
from beamdeploy.report.paste import paste

ROOT = Path(__file__).parents[1]
BEAM = str(ROOT / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")
DIGEST = "sha256:" + "1" * 64
LOCK = Lock("beam.lock.yaml", "lightseekorg/tokenspeed:beam", DIGEST)
HOST = Host("gpu-a", model_dir="/srv/models/beam")

# The published command (Reflection, "Serve with TokenSpeed"), as a shell splits it.
PAGE = shlex.split(f"""
docker run --rm --init --name beam --gpus '"device=0,1,2,3"' --shm-size=64g -p 127.0.0.1:8000:8000
--mount "type=bind,src=/srv/models/beam,dst=/weights,readonly" -e HF_HUB_OFFLINE=1 -e TRANSFORMERS_OFFLINE=1
--entrypoint tokenspeed "lightseekorg/tokenspeed@{DIGEST}" serve /weights/nvfp4 --host 0.0.0.0 --port 8000
--served-model-name Beam-1.0-501B-A23B --tensor-parallel-size 4 --dtype bfloat16 --quantization nvfp4
--kv-cache-dtype fp8_e4m3 --max-model-len 131072 --max-num-seqs 8 --gpu-memory-utilization 0.9
--chunked-prefill-size 8192 --max-cudagraph-capture-size 8 --attention-backend trtllm_mha
--moe-backend flashinfer_trtllm --enable-prefix-caching --disable-kvstore --tool-call-parser beam
--reasoning-parser beam --drafter-attention-backend trtllm_mha
--speculative-config '{{"method":"dflash","model":"/weights/dflash2","num_speculative_tokens":16}}'
""")


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe(BEAM)


def rendered(recipe: Recipe, host: Host = HOST) -> Spec:
    return render(recipe, host, LOCK)


def test_the_beam_recipe_is_the_published_command_word_for_word(recipe: Recipe) -> None:
    words = list(without_labels(rendered(recipe).words))
    assert words == ["--detach" if word == "--rm" else word for word in PAGE]


def test_the_gpu_list_is_one_element_with_dockers_own_quotes(recipe: Recipe) -> None:
    words = rendered(recipe).words
    assert words[words.index("--gpus") + 1] == '"device=0,1,2,3"'
    assert len(words[words.index("--gpus") + 1]) == 16


@pytest.mark.parametrize(
    ("access", "given"),
    [
        ("cdi", "--device nvidia.com/gpu=2 --device nvidia.com/gpu=3"),
        ("devices", "--device /dev/nvidia2 --device /dev/nvidia3 --device /dev/nvidiactl --device /dev/nvidia-uvm"),
    ],
)
def test_gpus_may_be_given_as_devices(recipe: Recipe, access: str, given: str) -> None:
    two = replace(recipe, hardware=replace(recipe.hardware, count=2))
    usual = list(without_labels(rendered(two, replace(HOST, gpus=(2, 3))).words))
    at = usual.index("--gpus")
    words = list(without_labels(rendered(two, replace(HOST, gpus=(2, 3), gpu_access=access)).words))
    assert words == [*usual[:at], *given.split(), *usual[at + 2 :]]


def test_what_an_odd_host_needs_is_among_the_settings_and_is_rendered_again(recipe: Recipe) -> None:
    odd = replace(HOST, gpu_access="cdi", docker_args=("--ulimit", "memlock=-1"))
    spec = rendered(recipe, odd)
    words = spec.words
    deployed = read_labels(dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--label"))
    assert deployed is not None
    assert {path: value for path, value in deployed.settings.items() if path.startswith("inventory.")} == {
        "inventory.model_dir": "/srv/models/beam",
        "inventory.gpus": [0, 1, 2, 3],
        "inventory.gpu_access": "cdi",
        "inventory.docker_args": ["--ulimit", "memlock=-1"],
    }
    again = render_again(deployed, HOST)
    assert (again.words, again.host.gpu_access, again.host.docker_args) == (spec.words, "cdi", odd.docker_args)


def test_the_settings_of_an_ordinary_host_are_what_they_were(recipe: Recipe) -> None:
    settings = rendered(recipe).settings
    assert [path for path in settings if path.startswith("inventory.")] == ["inventory.model_dir", "inventory.gpus"]


def test_labels_hold_the_name_the_digest_and_the_whole_spec(recipe: Recipe) -> None:
    spec = rendered(recipe)
    labels = dict(
        word.split("=", 1) for word, before in zip(spec.words[1:], spec.words, strict=False) if before == "--label"
    )
    deployed = read_labels(labels)
    assert deployed is not None
    assert (deployed.name, deployed.digest, deployed.words) == ("beam", spec.digest, without_labels(spec.words))
    assert deployed.recipe == recipe.source
    assert deployed.settings == json.loads(json.dumps(spec.settings))


def test_the_digest_is_taken_over_the_words_without_labels(recipe: Recipe) -> None:
    spec = rendered(recipe)
    assert spec.digest == digest_of_words(without_labels(spec.words))
    assert rendered(recipe) == spec


def test_speculative_settings_arrive_as_one_json_word(recipe: Recipe) -> None:
    drafter = Folder("d flash's 2")
    odd = replace(recipe, speculative=Speculative("dflash", drafter, 16))
    words = rendered(odd).words
    assert json.loads(words[words.index("--speculative-config") + 1]) == {
        "method": "dflash",
        "model": "/weights/d flash's 2",
        "num_speculative_tokens": 16,
    }
    assert shlex.split(shlex.join(words)) == list(words)


def test_without_a_drafter_no_speculative_word_is_left(recipe: Recipe) -> None:
    words = rendered(replace(recipe, speculative=None)).words
    assert not [word for word in words if "specul" in word or "drafter" in word]


def test_environment_values_reach_the_words_unchanged(recipe: Recipe) -> None:
    env = {
        "PLAIN": "1",
        "BLANKS": "a b  c",
        "SHELL": "x; touch /tmp/beamdeploy-pwned; $(touch /tmp/beamdeploy-pwned)",
        "QUOTES": 'it\'s "quoted"',
        "EQUALS": "k=v=w",
        "EMPTY": "",
        "JSON": '{"a": [1, 2]}',
        "BRACES": "{{ 7 * 7 }}",
    }
    words = rendered(replace(recipe, container=replace(recipe.container, env=env))).words
    assert [word for word, before in zip(words[1:], words, strict=False) if before == "-e"] == [
        f"{name}={value}" for name, value in env.items()
    ]


@pytest.mark.parametrize("value", ["two\nlines", "a trailing blank ", "\ttab"])
def test_a_value_that_is_not_one_word_is_refused(recipe: Recipe, value: str) -> None:
    with pytest.raises(InputError):
        rendered(replace(recipe, model=replace(recipe.model, served_name=value)))


def test_braces_in_a_value_are_data(recipe: Recipe) -> None:
    name = "{{ cycler.__init__.__globals__.os.popen('id').read() }}"
    words = rendered(replace(recipe, model=replace(recipe.model, served_name=name))).words
    assert words[words.index("--served-model-name") + 1] == name


def test_a_comma_in_the_folder_does_not_become_a_mount_option() -> None:
    assert mount_word("/srv/models,dst=/etc") == 'type=bind,"src=/srv/models,dst=/etc",dst=/weights,readonly'


@pytest.mark.parametrize(
    ("template", "line", "name"),
    [
        ("docker\nrun\n{{ recipe.nmae }}\n", 3, "nmae"),
        ("docker\n{% if recipe.engine.kvstoer %}\n--x\n{% endif %}\n", 2, "kvstoer"),
        ("docker\nrun\n{{ recipe.speculative.model }}\n", 3, "model"),
        ("docker\n{% if %}\n", 2, ""),
    ],
)
def test_a_name_that_does_not_exist_is_said_with_file_line_and_name(
    recipe: Recipe, tmp_path: Path, template: str, line: int, name: str
) -> None:
    file = tmp_path / "docker-run.j2"
    file.write_text(template, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        render(recipe, HOST, LOCK, templates=str(tmp_path))
    problem = caught.value.problems[0]
    assert (problem.file, problem.line) == (str(file), line)
    assert name in problem.what


def test_a_users_template_is_looked_in_first_and_named(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "docker-run.j2").write_text(
        "docker\nrun\n--name\n{{ recipe.name }}\n{{ image.word }}\n", encoding="utf-8"
    )
    spec = render(recipe, HOST, LOCK, templates=str(tmp_path))
    assert without_labels(spec.words) == ("docker", "run", "--name", "beam", f"lightseekorg/tokenspeed@{DIGEST}")
    assert spec.templates[0] == str(tmp_path / "docker-run.j2")


def test_an_empty_word_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "docker-run.j2").write_text("docker\nrun\n\n--name\n", encoding="utf-8")
    with pytest.raises(InputError, match="empty word"):
        render(recipe, HOST, LOCK, templates=str(tmp_path))


def test_without_an_inventory_the_shells_own_model_dir_is_used(recipe: Recipe) -> None:
    text = paste(render(recipe, nowhere(None, None), LOCK).words, expand=True)
    assert '"type=bind,src=$MODEL_DIR,dst=/weights,readonly"' in text
    assert "$MODEL_DIR" not in text.replace('src=$MODEL_DIR,dst=/weights,readonly"', "")


def test_a_literal_dollar_of_a_known_host_is_not_expanded(recipe: Recipe) -> None:
    text = paste(rendered(recipe, replace(HOST, model_dir="/srv/$MODEL_DIR")).words, expand=False)
    assert "'type=bind,src=/srv/$MODEL_DIR,dst=/weights,readonly'" in text


def test_what_is_printed_gives_the_same_words_in_a_shell(recipe: Recipe) -> None:
    spec = rendered(recipe)
    assert shlex.split(paste(spec.words, expand=False).replace("\\\n", " ")) == list(spec.words)


def test_a_host_without_model_dir_or_with_other_gpus_is_refused_in_one_run(recipe: Recipe) -> None:
    with pytest.raises(InputError) as caught:
        rendered(recipe, Host("gpu-a", gpus=(0, 1)))
    assert [problem.what for problem in caught.value.problems] == [
        "model_dir is not set for gpu-a",
        "hardware.count is 4, the inventory lists 2 GPUs for gpu-a",
    ]


def test_extra_flags_are_words_of_their_kind(recipe: Recipe) -> None:
    args = {"enable-metrics": True, "seed": 7, "cudagraph-capture-sizes": [1, 2, 4], "x": {"a": 1}, "off": False}
    words = rendered(replace(recipe, engine=replace(recipe.engine, args=args))).words
    assert words[-9:] == (
        "--enable-metrics",
        "--seed",
        "7",
        "--cudagraph-capture-sizes",
        "1",
        "2",
        "4",
        "--x",
        '{"a":1}',
    )


def test_an_override_is_checked_like_the_file(recipe: Recipe) -> None:
    assert load_recipe(BEAM, [("engine.max_num_seqs", "16")]).engine.max_num_seqs == 16
    with pytest.raises(InputError) as caught:
        load_recipe(BEAM, [("engine.max_num_seq", "16")])
    assert caught.value.problems[0].where == "-e engine.max_num_seq=16"
