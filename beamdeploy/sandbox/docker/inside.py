"""What a container's process gets in place of a container's own files, ports and environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from beamdeploy.gpu_access import given
from beamdeploy.sandbox import place
from beamdeploy.sandbox.docker import store
from beamdeploy.sandbox.docker.store import Record


class Inside(NamedTuple):
    """The real program (None: the image has none of that name), words and environment of a container's process.

    `names`: what its log must not show → what a container would show.
    """

    program: str | None
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    names: Mapping[str, str]


def inside(folder: str, record: Record, port: int) -> Inside:
    """The process of a container that may listen on 127.0.0.1:port."""
    mounts = {mount["Destination"]: mount["Source"] for mount in record["Mounts"]}
    own = store.home(folder, record["Id"])
    settings = place.settings(folder)
    pairs = (pair.partition("=") for pair in record["Config"]["Env"])
    env = {name: value for name, _, value in pairs}
    gpus = gpus_of(record, int(settings["profile"]["count"]))
    env |= {"NVIDIA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    env |= {
        "PATH": os.path.join(folder, place.IMAGE_BIN),
        "HOME": own,
        "TMPDIR": own,
        "STANDIN_BIND": f"127.0.0.1:{port}",
        "BEAMDEPLOY_STANDIN_ARGV": os.path.join(own, "argv.json"),
        **settings["engine_env"],
    }
    arguments = tuple(_mapped(word, mounts) for word in record["Args"])
    shown = {source: target for target, source in mounts.items() if len(source) > 1}
    return Inside(find_program(folder, record["Path"]), arguments, env, shown)


def _mapped(word: str, mounts: Mapping[str, str]) -> str:
    """The word with the mounts' paths as they lie on this machine, also inside JSON."""
    for target in sorted(mounts, key=len, reverse=True):
        pattern = rf"(?<![\w./-]){re.escape(target)}(?=[/\"',:\s]|$)"
        word = re.sub(pattern, lambda _, source=mounts[target]: source, word)  # type: ignore[misc]
    return word


def inside_port(words: Sequence[str]) -> int:
    """The port that a server's words say: what publishing must lead to."""
    for word, after in zip(words, (*words[1:], ""), strict=True):
        value = after if word == "--port" else word.removeprefix("--port=") if word.startswith("--port=") else ""
        if value.isdigit():
            return int(value)
    return 30000 if list(words[:2]) == ["serve", "--model-path"] else 8000


def gpus_of(record: Record, count: int) -> list[str]:
    """The indices that a container asked for."""
    found: list[str] = []
    for request in record["HostConfig"]["DeviceRequests"] or []:
        number = count if request["Count"] == -1 else request["Count"]
        found += request["DeviceIDs"] or [str(index) for index in range(number)]
    devices = [str(device["PathOnHost"]) for device in record["HostConfig"]["Devices"] or []]
    return found or list(given(None, devices).names)


def find_program(folder: str, program: str) -> str | None:
    """Where the image's program really lies; None: the image has none of that name."""
    name = os.path.basename(program)
    if "/" in program and os.path.dirname(program) not in ("/usr/local/bin", "/usr/bin", "/bin"):
        return None
    # here, since most docker commands start nothing and should be quick
    import shutil

    return shutil.which(name, path=os.path.join(folder, place.IMAGE_BIN))
