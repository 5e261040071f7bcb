"""Export: the words as files of docker compose, systemd and quadlet, each read by its own tool where that is there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from beamdeploy.dockerrun import read
from beamdeploy.exporting import shown
from tests.integration.command import beamdeploy

ROOT = Path(__file__).parents[1]
GOLDEN = sorted((ROOT / "tests" / "data" / "golden").glob("*.json"))
BEAM = tuple(json.loads((ROOT / "tests" / "data" / "golden" / "beam-nvfp4-tokenspeed-4xb300.json").read_text("utf-8")))
QUADLET = {
    "Unit": {"Description"},
    "Container": {"ContainerName", "Image", "Entrypoint", "Exec", "RunInit", "ShmSize", "AddDevice", "PublishPort"}
    | {"Mount", "Volume", "Environment", "EnvironmentFile", "Label"},
    "Service": {"TimeoutStopSec", "TimeoutStartSec"},
    "Install": {"WantedBy"},
}
"""Keys of podman-systemd.unit(5) and systemd.service(5)."""


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_compose_says_what_the_words_say(path: Path) -> None:
    words = tuple(json.loads(path.read_text("utf-8")))
    run = read(words)
    [(name, service)] = yaml.safe_load(shown(words, "compose", 70))["services"].items()
    assert name == service["container_name"] == run.last("--name")
    assert tuple(service["command"]) == tuple(word.replace("$", "$$") for word in run.words)
    assert [f"{key}={value}" for key, value in service["environment"].items()] == list(run.all("--env"))
    assert service["stop_grace_period"] == "70s"
    assert service["volumes"] == [
        {"type": "bind", "source": "/srv/models", "target": "/weights", "read_only": True},
    ]


def test_compose_is_read_by_docker_compose(tmp_path: Path) -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip("docker-compose is not installed")
    file = tmp_path / "compose.yaml"
    file.write_text(shown(BEAM, "compose", 70), encoding="utf-8")
    told = subprocess.run(["docker-compose", "-f", str(file), "config"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr


def test_a_unit_of_systemd_holds_the_words() -> None:
    text = shown(BEAM, "systemd", 70)
    start = text.partition("ExecStart=")[2].partition("\nExecStop")[0].replace("\\\n", " ")
    unescaped = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(start)]
    assert unescaped == ["/usr/bin/docker", *(word for word in BEAM[1:] if word != "--detach")]
    assert "ExecStop=/usr/bin/docker stop --time 70 beam" in text
    assert "TimeoutStopSec=100" in text


def test_a_unit_is_accepted_by_systemd_analyze(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    file = tmp_path / "beam.service"
    # the check wants the program to be there
    file.write_text(shown(BEAM, "systemd", 70).replace("/usr/bin/docker", "/bin/true"), encoding="utf-8")
    told = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert not re.search(r"beam\.service:\d+", told.stderr), told.stderr


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_quadlet_has_documented_keys_only(path: Path) -> None:
    words = tuple(json.loads(path.read_text("utf-8")))
    section = ""
    for line in shown(words, "quadlet", 70).splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            assert line.partition("=")[0] in QUADLET[section]
    assert f"Image=docker.io/{read(words).image}" in shown(words, "quadlet", 70)


@pytest.mark.parametrize(
    "devices", [("nvidia.com/gpu=0", "nvidia.com/gpu=1"), ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")]
)
def test_gpus_that_are_devices_stay_devices(devices: tuple[str, ...]) -> None:
    at = BEAM.index("--gpus")
    given = tuple(word for device in devices for word in ("--device", device))
    words = (*BEAM[:at], *given, "-v", "/usr/local/nvidia:/usr/local/nvidia:ro", *BEAM[at + 2 :])
    [service] = yaml.safe_load(shown(words, "compose", 70))["services"].values()
    assert (service["devices"], "deploy" in service) == (list(devices), False)
    assert service["volumes"][-1] == "/usr/local/nvidia:/usr/local/nvidia:ro"
    unit = shown(words, "quadlet", 70).splitlines()
    assert [line for line in unit if line.startswith("AddDevice=")] == [f"AddDevice={device}" for device in devices]
    assert "Volume=/usr/local/nvidia:/usr/local/nvidia:ro" in unit


def nowhere(form: str, tmp_path: Path) -> str:
    """The Beam recipe with a secret, for a server that is not known yet."""
    recipe = yaml.safe_load((ROOT / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml").read_text("utf-8"))
    recipe["container"]["secrets"] = {"HF_TOKEN": {"host_file": "/etc/hf-token"}}
    (tmp_path / "beam.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    done = beamdeploy("render", str(tmp_path / "beam.yaml"), "-o", form)
    assert (done.exit, done.err) == (0, "")
    return done.out


def test_a_unit_for_no_known_server_has_one_line_to_set_and_no_relative_path(tmp_path: Path) -> None:
    text = nowhere("systemd", tmp_path)
    assert "\nEnvironment=MODEL_DIR=/srv/models\n" in text and "$$" not in text
    start = text.partition("ExecStart=")[2].partition("\nExecStop")[0].replace("\\\n", " ")
    words = shlex.split(start)
    assert words[words.index("--mount") + 1] == "type=bind,src=${MODEL_DIR},dst=/weights,readonly"
    assert words[words.index("--env-file") + 1] == "%h/.local/state/beamdeploy/beam/secrets.env"


def test_a_quadlet_for_no_known_server_likewise(tmp_path: Path) -> None:
    lines = nowhere("quadlet", tmp_path).splitlines()
    assert {
        "Mount=type=bind,src=${MODEL_DIR},dst=/weights,readonly",
        "EnvironmentFile=%h/.local/state/beamdeploy/beam/secrets.env",
        "Environment=MODEL_DIR=/srv/models",
    } <= set(lines)


def test_compose_takes_the_folder_from_its_environment_and_refuses_to_go_without(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(nowhere("compose", tmp_path), encoding="utf-8")
    if shutil.which("docker-compose") is None:
        pytest.skip("docker-compose is not installed")
    home = tmp_path / "home"
    secrets = home / ".local/state/beamdeploy/beam/secrets.env"
    secrets.parent.mkdir(parents=True)
    secrets.write_text("HF_TOKEN=hf_123\n", encoding="utf-8")

    def config(**environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker-compose", "-f", str(file), "config"],
            capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"], "HOME": str(home), **environ},
        )  # fmt: skip

    told = config(MODEL_DIR="/srv/models/a b")
    [service] = yaml.safe_load(told.stdout)["services"].values()
    assert service["environment"]["HF_TOKEN"] == "hf_123"
    assert "/srv/models/a b:/weights:ro" in str(service["volumes"]) or "'source': '/srv/models/a b'" in str(
        service["volumes"]
    )
    assert (config().returncode == 0, "the folder of the weights" in config().stderr) == (False, True)


def test_a_file_for_one_host_is_not_made_for_two() -> None:
    recipe = str(ROOT / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")
    done = beamdeploy("render", recipe, "-i", "a,b,", "--model-dir", "/srv/m", "-o", "compose")
    assert (done.exit, done.out, "Name one of them with -l" in done.err) == (2, "", True)
    assert beamdeploy("render", recipe, "-i", "a,b,", "--model-dir", "/srv/m", "-o", "compose", "-l", "b").exit == 0


def test_what_a_tool_would_expand_in_a_folders_name_stays_as_it_is() -> None:
    at = BEAM.index("--mount")
    words = (*BEAM[:at], "--mount", "type=bind,src=/srv/$A%h,dst=/weights,readonly", *BEAM[at + 2 :])
    [service] = yaml.safe_load(shown(words, "compose", 70))["services"].values()
    assert service["volumes"][0]["source"] == "/srv/$$A%h"
    for form in ("systemd", "quadlet"):
        assert "type=bind,src=/srv/$$A%%h,dst=/weights,readonly" in shown(words, form, 70)
