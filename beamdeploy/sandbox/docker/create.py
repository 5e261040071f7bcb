"""The words of `docker run` → the record of a container."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from beamdeploy.sandbox.docker import images, store
from beamdeploy.sandbox.docker.failure import Failure, daemon
from beamdeploy.sandbox.docker.store import Record
from beamdeploy.sandbox.docker.words import Asked, misused

UNITS = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
POLICIES = ("no", "always", "unless-stopped", "on-failure")


def record_of(folder: str, asked: Asked, image: images.Image) -> Record:
    """The record of a container that is not there yet. Failure: a value is refused."""
    record = images.shape("container")
    identifier = os.urandom(32).hex()
    name = asked.last("name") or f"sandbox_{identifier[:6]}"
    command = list(asked.rest[1:]) or None
    entrypoint = asked.last("entrypoint")
    words = [*([entrypoint] if entrypoint else image["Config"]["Entrypoint"] or [])]
    words += command or ([] if entrypoint else image["Config"]["Cmd"] or [])
    if not words:
        raise daemon("No command specified")
    record |= {"Id": identifier, "Created": store.now(), "Name": f"/{name}", "Image": image["Id"]}
    record |= {"Path": words[0], "Args": words[1:], "_": {"ports": {}}}
    for key, file in (("ResolvConfPath", "resolv.conf"), ("HostnamePath", "hostname"), ("HostsPath", "hosts")):
        record[key] = os.path.join(store.home(folder, identifier), file)
    record["LogPath"] = os.path.join(store.home(folder, identifier), store.LOG)
    _configure(record, asked, image, entrypoint, command)
    _host(record, asked)
    return record


def _configure(
    record: Record, asked: Asked, image: images.Image, entrypoint: str | None, command: list[str] | None
) -> None:
    config = record["Config"]
    config["Hostname"] = asked.last("hostname") or record["Id"][:12]
    config["Image"] = asked.rest[0]
    config["Entrypoint"] = [entrypoint] if entrypoint else image["Config"]["Entrypoint"]
    config["Cmd"] = command or (None if entrypoint else image["Config"]["Cmd"])
    given = [*_env_files(asked), *_env(asked)]
    names = {pair.partition("=")[0] for pair in given}
    config["Env"] = given + [pair for pair in image["Config"]["Env"] if pair.partition("=")[0] not in names]
    labels = (word.partition("=") for word in asked.all("label"))
    config["Labels"] = dict(sorted({key: value for key, _, value in labels}.items()))
    attached = not asked.on("detach")
    config |= {"AttachStdout": attached, "AttachStderr": attached}


def _env(asked: Asked) -> Iterator[str]:
    for word in asked.all("env"):
        if "=" in word:
            yield word
        elif word in os.environ:
            yield f"{word}={os.environ[word]}"


def _env_files(asked: Asked) -> Iterator[str]:
    for file in asked.all("env-file"):
        try:
            with open(file, encoding="utf-8") as lines:
                yield from (line.rstrip("\r\n") for line in lines if line.strip() and not line.startswith("#"))
        except OSError as error:
            raise Failure(f"docker: open {file}: {str(error.strerror).lower()}", 125) from None


def _host(record: Record, asked: Asked) -> None:
    host = record["HostConfig"]
    host["AutoRemove"] = asked.on("rm")
    host["RestartPolicy"] = _restart(asked.last("restart"))
    host["PortBindings"] = _bindings(asked.all("publish"))
    if host["PortBindings"]:
        record["Config"]["ExposedPorts"] = {inside: {} for inside in host["PortBindings"]}
    if asked.last("shm-size") is not None:
        host["ShmSize"] = _bytes(asked)
    if asked.last("gpus") is not None:
        host["DeviceRequests"] = [_device_request(str(asked.last("gpus")))]
    _devices(host, asked.all("device"))
    if asked.on("init"):
        host["Init"] = True
    mounts = [_mount(word) for word in asked.all("mount")]
    if mounts:
        host["Mounts"] = mounts
    volumes = asked.all("volume")
    if volumes:
        host["Binds"] = list(volumes)
    record["Mounts"] = [*map(_mounted, mounts), *map(_bound, volumes)]


def _restart(word: str | None) -> dict[str, Any]:
    name, _, count = (word or "no").partition(":")
    if name not in POLICIES:
        raise daemon(f"invalid restart policy '{name}'")
    return {"Name": name, "MaximumRetryCount": int(count) if count.isdigit() else 0}


def _bindings(words: Sequence[str]) -> dict[str, Any]:
    bindings: dict[str, Any] = {}
    for word in words:
        match = re.fullmatch(r"(?:(\[[^\]]*\]|[^:\[\]]*):)?(?:(\d*):)?(\d+)(?:/(tcp|udp))?", word)
        if match is None:
            raise Failure(f"docker: invalid publish opts format (should be name=value but got '{word}')", 125)
        address, outside, inside, protocol = match.groups()
        if outside is None and address is not None and address.isdigit():
            address, outside = None, address
        for port, which in ((outside, "hostPort"), (inside, "containerPort")):
            if port and not 0 < int(port) < 65536:
                raise Failure(f"docker: invalid {which}: {port}", 125)
        entry = {"HostIp": (address or "").strip("[]"), "HostPort": outside or ""}
        bindings.setdefault(f"{inside}/{protocol or 'tcp'}", []).append(entry)
    return bindings


def _bytes(asked: Asked) -> int:
    text = str(asked.last("shm-size"))
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)i?b?", text.lower())
    if match is None:
        raise misused(asked, f'invalid argument "{text}" for "--shm-size" flag: invalid size: \'{text}\'')
    return int(float(match[1]) * UNITS[match[2] or "b"])


def _device_request(word: str) -> dict[str, Any]:
    """`all`, a number, or CSV: `"device=0,1"` in quotes, since it holds a comma."""
    request: dict[str, Any] = {"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
    for field in next(csv.reader([word])):
        key, equals, value = field.partition("=")
        if not equals and key in ("all", "-1"):
            request["Count"] = -1
        elif not equals and key.isdigit():
            request["Count"] = int(key)
        elif key == "device":
            request["DeviceIDs"] = value.split(",")
        elif key == "count":
            request["Count"] = -1 if value == "all" else int(value)
    return request


def _devices(host: dict[str, Any], words: Sequence[str]) -> None:
    """The client makes a request of the driver "cdi" of names like vendor.com/class=name, and files of the rest."""
    names = [word for word in words if re.fullmatch(r"[\w.-]+/[\w.-]+=[\w.:-]+", word)]
    files = [_device_file(word) for word in words if word not in names]
    if names:
        request = {"Driver": "cdi", "Count": 0, "DeviceIDs": names, "Capabilities": None, "Options": None}
        host["DeviceRequests"] = [*(host["DeviceRequests"] or []), request]
    if files:
        host["Devices"] = files


def _device_file(word: str) -> dict[str, str]:
    parts = word.split(":")
    modes = parts.pop() if len(parts) > 1 and re.fullmatch(r"[rwm]+", parts[-1]) else "rwm"
    source, target = parts[0], parts[-1]
    for path in (source, target):
        if not path.startswith("/"):
            raise Failure(f"docker: {path} is not an absolute path", 125)
    return {"PathOnHost": source, "PathInContainer": target, "CgroupPermissions": modes}


def _mount(word: str) -> dict[str, Any]:
    fields = dict((key, value if equals else "true") for key, equals, value in _pairs(word))
    source = fields.get("source", fields.get("src", ""))
    target = fields.get("target", fields.get("destination", fields.get("dst", "")))
    kind = fields.get("type", "volume")
    if kind == "bind" and not source.startswith("/"):
        raise daemon(
            f"invalid mount config for type \"bind\": invalid mount path: '{source}' mount path must be absolute"
        )
    if kind == "bind" and not os.path.exists(source):
        raise daemon(f'invalid mount config for type "bind": bind source path does not exist: {source}')
    mount: dict[str, Any] = {"Type": kind, "Source": source, "Target": target}
    if fields.get("readonly", fields.get("ro")) in ("true", "1"):
        mount["ReadOnly"] = True
    return mount


def _pairs(word: str) -> Iterator[tuple[str, str, str]]:
    for field in next(csv.reader([word])):
        yield field.partition("=")


def _mounted(mount: dict[str, Any]) -> dict[str, Any]:
    return {
        "Type": mount["Type"],
        "Source": mount["Source"],
        "Destination": mount["Target"],
        "Mode": "",
        "RW": not mount.get("ReadOnly", False),
        "Propagation": "rprivate",
    }


def _bound(word: str) -> dict[str, Any]:
    source, target, mode = (*word.split(":"), "", "")[:3]
    return {
        "Type": "bind",
        "Source": source,
        "Destination": target,
        "Mode": mode,
        "RW": "ro" not in mode.split(","),
        "Propagation": "rprivate",
    }
