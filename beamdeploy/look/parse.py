"""The text that facts.sh printed → Facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields

from beamdeploy.look import docker, folders, gpus, ports, system
from beamdeploy.look.facts import Disk, Facts, Past
from beamdeploy.look.frames import Frame, frames, only


def parse(
    out: str,
    nonce: str,
    docker_words: Sequence[str] = ("docker",),
    folder_names: Sequence[str] = (),
    wanted_ports: Sequence[int] = (),
    *,
    err: str = "",
) -> Facts:
    """Facts from the script's output. HostError: the output is cut or is not the script's."""
    found = tuple(frames(out, nonce, err))
    asked = docker.parse(found, tuple(docker_words))
    cards = gpus.parse(found)
    listeners, unseen = ports.parse(found, wanted_ports)
    model_dir, hidden = folders.model_dir(found)
    return Facts(
        docker=asked.docker,
        images=asked.images,
        containers=asked.containers,
        listeners=listeners,
        gpus=cards.gpus,
        disks={disk.path: disk for disk in disks(found)},
        weights=folders.parse(found, folder_names, model_dir),
        model_dir_exists=None if model_dir is None else model_dir != "",
        past=tuple(past(found)),
        blockers=(*asked.problems, *cards.problems, *unseen, *hidden),
        system=system.parse(found),
        addresses=addresses(found),
    )


def past(found: Sequence[Frame]) -> Iterator[Past]:
    """What the last runs noted; a line that is cut, or that a later version wrote in another way, is left out."""
    known = {each.name for each in fields(Past)}
    frame = only(found, "past")
    for line in frame.text.splitlines() if frame else ():
        with suppress(ValueError, TypeError, AttributeError):
            yield Past(**{key: value for key, value in json.loads(line).items() if key in known})


def addresses(found: Sequence[Frame]) -> tuple[tuple[str, str], ...] | None:
    """(interface, IPv4 address) of lines as `2: eth0    inet 10.0.0.5/24 brd …`."""
    frame = only(found, "addresses")
    if frame is None or frame.exit != 0:
        return None
    rows = (re.match(r"\d+: (\S+)\s+inet ([\d.]+)", line) for line in frame.text.splitlines())
    return tuple((row[1], row[2]) for row in rows if row)


def disks(found: Sequence[Frame]) -> Iterator[Disk]:
    """File systems, by the path that was asked for; one that df cannot tell is left out."""
    path = ""
    free: int | None = None
    for frame in found:
        if frame.section == "disk.path":
            path = frame.text
        elif frame.section == "disk.kib":
            free = _available(frame.text)
        elif frame.section == "disk.inodes" and free is not None:
            yield Disk(path, free * 1024, _inodes(frame.text))


def _available(text: str) -> int | None:
    match = re.search(r"\s(\d+)\s+(\d+)\s+(-?\d+)\s+\d+%", text)
    return int(match[3]) if match else None


def _inodes(text: str) -> int | None:
    # btrfs and some network file systems have no fixed number of inodes and say 0 of 0, or "-"
    match = re.search(r"\s(\d+)\s+(\d+)\s+(-?\d+)\s+(?:\d+%|-)", text)
    return int(match[3]) if match and int(match[1]) else None
