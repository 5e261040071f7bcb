"""A service of a compose file → the words of `docker run` that say the same, and what of it was lost."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from beamdeploy.dockerrun import Run
from beamdeploy.errors import InputError, Problem

_ENGINES = re.compile(r"vllm|sglang|tokenspeed")
# key of a service → option of `docker run` that takes its value, or a word of its list each
_SAME = {
    "container_name": "--name",
    "shm_size": "--shm-size",
    "restart": "--restart",
    "ipc": "--ipc",
    "network_mode": "--network",
    "runtime": "--runtime",
    "user": "--user",
    "working_dir": "--workdir",
    "cap_add": "--cap-add",
    "devices": "--device",
    "security_opt": "--security-opt",
    "env_file": "--env-file",
}
_SWITCHES = {"init": "--init", "privileged": "--privileged", "tty": "--tty", "stdin_open": "--interactive"}
_READ = {"image", "command", "entrypoint", "ports", "volumes", "environment", "deploy", "stop_grace_period", "labels"}
_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?::?-([^}]*))?[^}]*\}|\$(\w+)")
_UNITS = {"s": 1, "m": 60, "h": 3600}


def read_compose(text: str, service: str | None = None) -> tuple[Run, int | None, tuple[str, ...]]:
    """(the words, seconds to stop, notes) of the one service with an engine, or of the one that is named.

    InputError: it is no compose file, or it is not clear which service is meant.
    """
    name, said = _chosen(_services(text), service)
    notes: list[str] = []
    held: Any = _filled(said, notes)
    options = {key: tuple(values) for key, values in _options(name, held, notes).items() if values}
    entrypoint, words = _words(held.get("entrypoint")), _words(held.get("command"))
    if entrypoint:
        options["--entrypoint"] = entrypoint[:1]
    return (
        Run(str(held["image"]), (*entrypoint[1:], *words), options),
        _grace(held.get("stop_grace_period")),
        tuple(notes),
    )


def _services(text: str) -> Mapping[str, Any]:
    try:
        # compose reads YAML 1.2: a port 22:22 is text, and so is everything here
        read: Any = yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise InputError([Problem(f"it is no YAML: {error}", "Give a compose file.")]) from None
    services = read.get("services") if isinstance(read, dict) else None
    if not isinstance(services, dict) or not all(isinstance(each, dict) for each in services.values()):
        raise InputError([Problem("it has no services", "Give a compose file, or import docker-run.")])
    return services


def _chosen(services: Mapping[str, Any], service: str | None) -> tuple[str, Mapping[str, Any]]:
    if service is not None:
        if service not in services:
            raise InputError([Problem(f"there is no service {service}", f"There are: {', '.join(services)}.")])
        found = [service]
    else:
        found = [
            name for name, said in services.items() if _ENGINES.search(f"{said.get('image')} {said.get('command')}")
        ]
    if len(found) != 1:
        what = f"{len(found)} services look like an engine" + (f": {', '.join(found)}" if found else "")
        raise InputError([Problem(what, f"Name one with --service; there are: {', '.join(services)}.")])
    if "image" not in services[found[0]]:
        raise InputError([Problem(f"{found[0]} names no image", "An image that is built there cannot be imported.")])
    return found[0], services[found[0]]


def _filled(value: Any, notes: list[str]) -> Any:
    """The value with ${NAME:-default} filled in; a variable without a default stays, and is said."""
    if isinstance(value, dict):
        return {key: _filled(each, notes) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, notes) for each in value]

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match[2] is not None:
            return match[2]
        notes.append(f"{match[0]} is a variable of compose: write its value")
        return match[0]

    return _VARIABLE.sub(fill, value) if isinstance(value, str) else value


def _options(name: str, said: Mapping[str, Any], notes: list[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {"--name": [name]}
    for key, value in said.items():
        if key in _SAME:
            options[_SAME[key]] = [*map(str, value)] if isinstance(value, list) else [str(value)]
        elif key in _SWITCHES:
            options |= {_SWITCHES[key]: [""]} if value == "true" else {}
        elif key not in _READ:
            notes.append(f"{key} of the service has no place in a recipe")
    options["--publish"] = [*map(_port, said.get("ports", ()))]
    options["--volume"] = [*map(_volume, said.get("volumes", ()))]
    options["--env"] = [*_pairs(said.get("environment", ()))]
    options["--gpus"] = [*_gpus(said.get("deploy", {}), notes)]
    return options


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(map(str, value))
    return tuple(shlex.split(value)) if isinstance(value, str) else ()


def _port(port: Any) -> str:
    if not isinstance(port, dict):
        return str(port)
    parts = (port.get("host_ip"), port.get("published"), port.get("target"))
    return ":".join(str(part) for part in parts if part)


def _volume(volume: Any) -> str:
    return f"{volume.get('source')}:{volume.get('target')}" if isinstance(volume, dict) else str(volume)


def _pairs(environment: Any) -> Iterator[str]:
    if isinstance(environment, dict):
        yield from (
            f"{name}={value}" if value not in ("", "null", "~") else name for name, value in environment.items()
        )
    else:
        yield from map(str, environment)


def _gpus(deploy: Any, notes: list[str]) -> Iterator[str]:
    resources = deploy.get("resources", {}) if isinstance(deploy, dict) else {}
    for device in resources.get("reservations", {}).get("devices", ()):
        if device.get("device_ids"):
            yield f"device={','.join(map(str, device['device_ids']))}"
        elif str(device.get("count", "all")).isdigit():
            yield f"device={','.join(map(str, range(int(device['count']))))}"
    for key in deploy if isinstance(deploy, dict) else ():
        if key != "resources":
            notes.append(f"deploy.{key} of the service has no place in a recipe")


def _grace(text: Any) -> int | None:
    found = re.findall(r"(\d+)([smh])", str(text or ""))
    return sum(int(number) * _UNITS[unit] for number, unit in found) or None
