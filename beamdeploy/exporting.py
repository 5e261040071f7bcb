"""The words of `docker run` → a file of docker compose, of systemd, or of podman's quadlet that says the same.

`unknown` stands in the words for a folder that is not known yet, as `$MODEL_DIR`; "": there is none. An env file below
the home of the user that beamdeploy logs in as is named by the home of who runs the file: no relative path would do.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from yaml import safe_dump

from beamdeploy.dockerrun import Run, read
from beamdeploy.gpu_access import given

FORMATS = ("compose", "systemd", "quadlet")


def compose(run: Run, grace: int, unknown: str = "") -> str:
    """A compose file with one service. `grace`: seconds that it gets to end."""
    service: dict[str, Any] = {"image": run.image, "container_name": run.last("--name")}
    if run.last("--entrypoint"):
        service["entrypoint"] = [run.last("--entrypoint")]
    service |= {"command": [_dollar(word) for word in run.words], "init": "--init" in run.options}
    if run.last("--restart"):
        service["restart"] = run.last("--restart")
    if run.last("--shm-size"):
        service["shm_size"] = run.last("--shm-size")
    service |= {
        "ports": list(run.all("--publish")),
        "volumes": [
            *(_volume(word, unknown) for word in run.all("--mount")),
            *(_dollar(word) for word in run.all("--volume")),
        ],
        "environment": dict(_pair(pair) for pair in run.all("--env")),
        "labels": dict(_pair(pair) for pair in run.all("--label")),
        "stop_grace_period": f"{grace}s",
        **_devices(run),
    }
    if run.last("--env-file"):
        service["env_file"] = [_at_home("${HOME}", _dollar(file)) for file in run.all("--env-file")]
    held = {key: value for key, value in service.items() if value not in ({}, [], None)}
    return safe_dump({"services": {run.last("--name"): held}}, sort_keys=False, width=120)


def _pair(pair: str) -> tuple[str, str]:
    name, _, value = pair.partition("=")
    return name, _dollar(value)


def _dollar(word: str) -> str:
    """compose reads $NAME in a value."""
    return word.replace("$", "$$")


def _fields(word: str) -> dict[str, str]:
    return {key: value for key, _, value in (field.partition("=") for field in next(csv.reader([word])))}


def _volume(word: str, unknown: str) -> dict[str, Any]:
    said = _fields(word)
    source = _dollar(said["src"])
    if unknown:
        needed = "${" + unknown.removeprefix("$") + ":?the folder of the weights}"
        source = source.replace(_dollar(unknown), needed)
    return {"type": said["type"], "source": source, "target": said["dst"], "read_only": "readonly" in said}


def _at_home(home: str, file: str) -> str:
    """An absolute path: docker over SSH starts in the home of its user, and nothing else does."""
    return file if file.startswith("/") else f"{home}/{file}"


def gpus(run: Run) -> tuple[str, ...]:
    """The indices of `--gpus "device=0,1"`; none where the GPUs are given as devices."""
    return given(run.last("--gpus"), ()).names


def _devices(run: Run) -> dict[str, Any]:
    """The GPUs, by the runtime or as devices, and other devices."""
    told: dict[str, Any] = {"devices": list(run.all("--device"))}
    if gpus(run):
        device = {"driver": "nvidia", "device_ids": list(gpus(run)), "capabilities": ["gpu"]}
        told["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return told


def systemd(run: Run, words: tuple[str, ...], grace: int, unknown: str = "", docker: str = "/usr/bin/docker") -> str:
    """A unit that runs docker in the foreground: systemd sees the server's end, and stops it with its grace."""
    name = str(run.last("--name"))
    start = " \\\n    ".join([docker, *_foreground(words, unknown)])
    return "\n".join(
        (
            *_home_note(run),
            "[Unit]",
            f"Description={name}, a large language model server",
            "Requires=docker.service",
            "After=docker.service network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
            *_folder(unknown),
            f"ExecStartPre=-{docker} rm --force {name}",
            f"ExecStart={start}",
            f"ExecStop={docker} stop --time {grace} {name}",
            f"TimeoutStopSec={grace + 30}",
            "TimeoutStartSec=infinity",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        )
    )


def _foreground(words: tuple[str, ...], unknown: str) -> Iterator[str]:
    for before, word in pairwise(words):
        if before == "--env-file":
            yield _quoted(_at_home("%h", _escaped(word)))
        elif word != "--detach":
            yield _unit_word(word, unknown)


def _home_note(run: Run) -> tuple[str, ...]:
    """For a system unit %h is root's home, whoever beamdeploy logs in as."""
    if all(file.startswith("/") for file in run.all("--env-file")):
        return ()
    return (
        "# %h is the home of who runs this, root's in a system unit. Where beamdeploy logs in as another user, name",
        "# the env file by its whole path, or set state_dir in the inventory.",
    )


def _folder(unknown: str) -> tuple[str, ...]:
    """A unit inherits nothing from a shell: the folder that is not known yet is set in it."""
    if not unknown:
        return ()
    variable = unknown.removeprefix("$")
    return ("# set it to the folder of the weights, or render with --model-dir", f"Environment={variable}=/srv/models")


def _unit_word(word: str, unknown: str = "") -> str:
    """A word as systemd reads it."""
    return _quoted(_escaped(word.replace("\\", "\\\\"), unknown))


def _quoted(word: str) -> str:
    if not word or any(char in word for char in " \t\"';"):
        return '"' + word.replace('"', '\\"') + '"'
    return word


def _escaped(text: str, unknown: str = "") -> str:
    """% and $ twice, but for the folder that is not known yet, which systemd is to fill in."""
    doubled = text.replace("%", "%%").replace("$", "$$")
    return doubled.replace(f"${unknown}", "${" + unknown.removeprefix("$") + "}") if unknown else doubled


def quadlet(run: Run, grace: int, unknown: str = "") -> str:
    """A .container file of podman (podman-systemd.unit(5)); GPUs by the names of the container device interface."""
    return "\n".join(
        (
            *_home_note(run),
            "[Unit]",
            f"Description={run.last('--name')}, a large language model server",
            "",
            "[Container]",
            *_container(run, unknown),
            "",
            "[Service]",
            *_folder(unknown),
            f"TimeoutStopSec={grace + 30}",
            "TimeoutStartSec=infinity",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        )
    )


def _container(run: Run, unknown: str) -> Iterator[str]:
    yield f"ContainerName={run.last('--name')}"
    yield f"Image={run.image if '/' not in run.image or '.' in run.image.split('/')[0] else 'docker.io/' + run.image}"
    if run.last("--entrypoint"):
        yield f"Entrypoint={run.last('--entrypoint')}"
    yield f"Exec={' '.join(_unit_word(word) for word in run.words)}"
    if "--init" in run.options:
        yield "RunInit=true"
    if run.last("--shm-size"):
        yield f"ShmSize={run.last('--shm-size')}"
    yield from (f"AddDevice=nvidia.com/gpu={gpu}" for gpu in gpus(run))
    yield from (f"AddDevice={device}" for device in run.all("--device"))
    yield from (f"PublishPort={word}" for word in run.all("--publish"))
    yield from (f"Mount={_escaped(word, unknown)}" for word in run.all("--mount"))
    yield from (f"Volume={_escaped(word)}" for word in run.all("--volume"))
    yield from (f"Environment={_unit_word(pair)}" for pair in run.all("--env"))
    yield from (f"EnvironmentFile={_at_home('%h', _escaped(file))}" for file in run.all("--env-file"))
    yield from (f"Label={_unit_word(pair)}" for pair in run.all("--label"))


def shown(words: tuple[str, ...], form: str, grace: int, unknown: str = "") -> str:
    """The words in one of FORMATS."""
    run = read(words)
    if form == "compose":
        return compose(run, grace, unknown)
    return systemd(run, words, grace, unknown) if form == "systemd" else quadlet(run, grace, unknown)
