"""The words of `docker run` → a file of docker compose, of systemd, or of podman's quadlet that says the same."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from yaml import safe_dump

from beamdeploy.dockerrun import Run, read
from beamdeploy.gpu_access import given

FORMATS = ("compose", "systemd", "quadlet")


def compose(run: Run, grace: int) -> str:
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
        "volumes": [*(_volume(word) for word in run.all("--mount")), *run.all("--volume")],
        "environment": dict(_pair(pair) for pair in run.all("--env")),
        "labels": dict(_pair(pair) for pair in run.all("--label")),
        "stop_grace_period": f"{grace}s",
        **_devices(run),
    }
    if run.last("--env-file"):
        service["env_file"] = list(run.all("--env-file"))
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


def _volume(word: str) -> dict[str, Any]:
    said = _fields(word)
    return {"type": said["type"], "source": said["src"], "target": said["dst"], "read_only": "readonly" in said}


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


def systemd(run: Run, words: tuple[str, ...], grace: int, docker: str = "/usr/bin/docker") -> str:
    """A unit that runs docker in the foreground: systemd sees the server's end, and stops it with its grace."""
    name = str(run.last("--name"))
    foreground = [word for word in words[1:] if word != "--detach"]
    start = " \\\n    ".join([docker, *(_unit_word(word) for word in foreground)])
    return "\n".join(
        (
            "[Unit]",
            f"Description={name}, a large language model server",
            "Requires=docker.service",
            "After=docker.service network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
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


def _unit_word(word: str) -> str:
    """A word as systemd reads it: its own escapes, % and $ twice."""
    doubled = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if not doubled or any(char in doubled for char in " \t\"';"):
        return '"' + doubled.replace('"', '\\"') + '"'
    return doubled


def quadlet(run: Run, grace: int) -> str:
    """A .container file of podman (podman-systemd.unit(5)); GPUs by the names of the container device interface."""
    return "\n".join(
        (
            "[Unit]",
            f"Description={run.last('--name')}, a large language model server",
            "",
            "[Container]",
            *_container(run),
            "",
            "[Service]",
            f"TimeoutStopSec={grace + 30}",
            "TimeoutStartSec=infinity",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        )
    )


def _container(run: Run) -> Iterator[str]:
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
    yield from (f"Mount={word}" for word in run.all("--mount"))
    yield from (f"Volume={word}" for word in run.all("--volume"))
    yield from (f"Environment={_unit_word(pair)}" for pair in run.all("--env"))
    yield from (f"EnvironmentFile={file}" for file in run.all("--env-file"))
    yield from (f"Label={_unit_word(pair)}" for pair in run.all("--label"))


def shown(words: tuple[str, ...], form: str, grace: int) -> str:
    """The words in one of FORMATS."""
    run = read(words)
    if form == "compose":
        return compose(run, grace)
    return systemd(run, words, grace) if form == "systemd" else quadlet(run, grace)
