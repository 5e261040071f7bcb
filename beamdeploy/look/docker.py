"""What docker answered → `Docker`, images and containers, or why it could not be asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beamdeploy.errors import Problem
from beamdeploy.look.facts import Container, Docker, Image
from beamdeploy.look.frames import Frame, only

GONE = ("no such container", "no such image", "no such object")


@dataclass(frozen=True)
class Asked:
    """Docker's part of the facts."""

    docker: Docker | None = None
    images: tuple[Image, ...] = ()
    containers: tuple[Container, ...] = ()
    problems: tuple[Problem, ...] = ()


def parse(found: Sequence[Frame], words: tuple[str, ...]) -> Asked:
    """Docker's answers; when one failed, a problem says why and nothing stands in its place."""
    info = only(found, "docker.info")
    if info is None:
        return Asked()
    failed = next((frame for frame in found if frame.section.startswith("docker.") and _failed(frame)), None)
    if failed is not None:
        return Asked(problems=(explain(failed, words, found),))
    return Asked(
        _docker(json.loads(info.text), found),
        # one that was asked for by two names is told twice
        tuple(dict.fromkeys(_image(row) for row in _rows(found, "docker.image_inspect"))),
        tuple(_container(row) for row in _rows(found, "docker.containers")),
    )


def _failed(frame: Frame) -> bool:
    # an image that is not there, and what was listed a moment ago and is gone when it is inspected: absent, not failed
    inspected = frame.section in ("docker.containers", "docker.image_inspect")
    gone = all(any(word in line.lower() for word in GONE) for line in frame.err.split("\n") if line.strip())
    return frame.exit != 0 and not (inspected and frame.err.strip() and gone)


def _rows(found: Sequence[Frame], section: str) -> Iterator[dict[str, Any]]:
    for line in _text(found, section).split("\n"):
        if line.startswith("{"):
            yield json.loads(line)


def _text(found: Sequence[Frame], section: str) -> str:
    frame = only(found, section)
    return "" if frame is None else frame.text


def _docker(info: Mapping[str, Any], found: Sequence[Frame]) -> Docker:
    hook = _text(found, "docker.hook")
    runtimes = tuple(sorted(info.get("Runtimes") or {}))
    devices = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or ()]
    cdi = frozenset(device for device in devices if device.startswith("nvidia.com/gpu"))
    known = "nvidia" in runtimes or bool(cdi)
    return Docker(
        client=str((info.get("ClientInfo") or {}).get("Version", "")),
        server=str(info.get("ServerVersion", "")),
        root_dir=str(info.get("DockerRootDir", "")),
        arch=str(info.get("Architecture", "")),
        runtimes=runtimes,
        gpu_support=True if known or hook == "yes" else False if hook == "no" else None,
        storage=str(info.get("Driver", "")),
        cgroup_driver=str(info.get("CgroupDriver", "")),
        cdi_devices=cdi,
        memlock=_text(found, "docker.memlock").strip().partition("\n")[0],
        user=_text(found, "docker.user").strip(),
    )


def _image(row: Mapping[str, Any]) -> Image:
    return Image(
        id=row["id"],
        repo_tags=tuple(row["repo_tags"] or ()),
        repo_digests=tuple(row["repo_digests"] or ()),
        arch=row["arch"],
        os=row["os"],
        env=tuple(row["env"] or ()),
        user=row.get("user") or "",
    )


def _container(row: Mapping[str, Any]) -> Container:
    # a created or stopped container publishes nothing now; what it would publish is in its bindings
    published = row["ports"] if any((row["ports"] or {}).values()) else row["bindings"]
    return Container(
        id=row["id"],
        name=row["name"].removeprefix("/"),
        image=row["image"],
        image_id=row["image_id"],
        state=row["state"],
        exit_code=row["exit_code"],
        oom_killed=row["oom_killed"],
        error=row["error"],
        started_at=row["started_at"],
        restart_count=row["restart_count"],
        finished_at=row.get("finished_at") or "",
        labels=dict(row["labels"] or {}),
        ports=tuple(_ports(published or {})),
        limits=dict(row.get("limits") or {}),
    )


def _ports(published: Mapping[str, Iterable[Mapping[str, str]] | None]) -> Iterator[tuple[str, int, int]]:
    for inside, bindings in published.items():
        number, _, protocol = inside.partition("/")
        for binding in bindings or ():
            # a created container of an automatic port has none yet
            if protocol in ("", "tcp") and binding["HostPort"].isdigit():
                yield binding["HostIp"], int(binding["HostPort"]), int(number)


def explain(failed: Frame, words: tuple[str, ...], found: Sequence[Frame]) -> Problem:
    """Why docker gave no answer, in a user's words, with the remedy."""
    said = failed.err.lower()
    if words[0] == "sudo" and failed.exit == 127:
        return Problem(
            "`become` is set, but there is no sudo on this host",
            "install sudo there, or remove `become` and let the user use docker itself (docker group)",
            rule="BD233",
        )
    if words[0] == "sudo" and (said.startswith("sudo: a ") or "not in the sudoers" in said or "not allowed" in said):
        return _sudo(failed)
    if failed.exit == 127 or "command not found" in said:
        return _not_found(words, found)
    if failed.exit == 126:
        return Problem(
            f"{_program(words)} is there and cannot be run: {_first(failed.err)}",
            "make it executable for this user, or name another in the inventory (`docker: /full/path`)",
            rule="BD232",
        )
    if failed.exit == 124:
        return Problem(
            "the docker daemon gave no answer in 30 s",
            "look at it on the host (`systemctl status docker`, `journalctl -u docker`); it may need a restart",
            rule="BD235",
        )
    if "permission denied" in said:
        return _permission(failed, found)
    if "cannot connect" in said or "error during connect" in said or "is the docker daemon running" in said:
        return Problem(
            f"the docker daemon does not answer: {_first(failed.err)}",
            "start it on the host (`systemctl start docker`), or point DOCKER_HOST or the docker context at it",
            rule="BD234",
        )
    return Problem(
        f"docker could not be asked (exit {failed.exit}): {_first(failed.err)}",
        "run the same by hand on the host: `docker info`",
        rule="BD236",
    )


def _not_found(words: tuple[str, ...], found: Sequence[Frame]) -> Problem:
    program = _program(words)
    there = [path for path in _text(found, "docker.paths").split("\n") if path and path != program]
    path = _text(found, "path")
    if words[0] == "sudo":
        where = "sudo's PATH"
    elif "/" in program:
        where = "this host"
    else:
        where = f"the PATH of this user's non-interactive SSH sessions ({path})"
    if there:
        return Problem(
            f"{program} is not on {where}, but {' and '.join(there)} exists",
            f"set `docker: {there[0]}` for the host in the inventory (the setting takes a full path)",
            rule="BD231",
        )
    return Problem(
        f"{program} is not on {where}, nor at a usual place",
        "install docker there, or set `docker: /full/path` for the host in the inventory",
        rule="BD231",
    )


def _permission(failed: Frame, found: Sequence[Frame]) -> Problem:
    user = _text(found, "docker.user").strip() or "this user"
    return Problem(
        f"{user} may not use docker's socket: {_first(failed.err)}",
        f"add the user to the docker group (`sudo usermod -aG docker {user}`, then a new login), "
        "or set `become: true` for the host in the inventory",
        rule="BD233",
    )


def _sudo(failed: Frame) -> Problem:
    return Problem(
        f"`become` is set, but sudo refuses docker without a password: {_first(failed.err)}",
        "allow this user to run docker by sudo without a password (NOPASSWD), or use the docker group without `become`",
        rule="BD233",
    )


def _program(words: tuple[str, ...]) -> str:
    return words[-1] if words[0] == "sudo" else words[0]


def _first(text: str) -> str:
    return next((line.strip() for line in text.split("\n") if line.strip()), "it said nothing")
