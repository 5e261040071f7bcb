"""The faults: each hits a lab host while a run is at a step, and has a way back that an administrator would take."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tests.lab import LabHost, docker_answers

ANY_SESSION = "kill -9 $(pgrep -f '[s]shd: root@notty')"
DOCKERD = """
cd / && PATH=$1/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin \
dockerd --config-file "$1/etc/daemon.json" --data-root "$1/docker" --exec-root /run/docker-exec \
--pidfile /run/docker.pid --host unix:///run/docker.sock --host "unix://$1/docker.sock" --insecure-registry "$2" \
>> "$1/dockerd.log" 2>&1 &
"""
FULL = (
    "fallocate -l 5500M $1/docker/filler.1; dd if=/dev/zero of=$1/docker/filler bs=1M; "
    "dd if=/dev/zero of=/root/filler bs=4k; true"
)
DOCKER_DISK, HOME_DISK = "6g", "8m"


@dataclass(frozen=True)
class Scene:
    """What a fault can reach: the host, the run, its choice of dice, and how to start a second run."""

    host: LabHost
    network: str
    run: subprocess.Popen[str]
    dice: random.Random
    second: Callable[[], subprocess.Popen[str]]
    wanted_image: str


Undo = Callable[[], None]


def kill_controller(scene: Scene) -> Undo:
    scene.run.kill()
    return nothing


def drop_link(scene: Scene) -> Undo:
    quietly(scene.host, "sh", "-c", ANY_SESSION)
    return nothing


def kill_dockerd(scene: Scene) -> Undo:
    quietly(scene.host, "sh", "-c", "kill -9 $(cat /run/docker.pid)")
    time.sleep(scene.dice.uniform(0, 1.5))
    start_dockerd(scene.host, scene.network)
    return nothing


def fill_disk(scene: Scene) -> Undo:
    quietly(scene.host, "sh", "-c", FULL, "sh", str(scene.host.folder))
    folder = f"{scene.host.folder}/docker"
    return lambda: quietly(scene.host, "rm", "-f", f"{folder}/filler", f"{folder}/filler.1", "/root/filler")


def kill_container(scene: Scene) -> Undo:
    """By the kernel, as when memory runs out, or by hand."""
    with suppress(RuntimeError):
        if scene.dice.random() < 0.5:
            scene.host.docker("kill", "beam")
        else:
            pid = scene.host.docker("inspect", "--format", "{{.State.Pid}}", "beam").strip()
            subprocess.run(("kill", "-9", pid) if pid != "0" else ("true",), capture_output=True, check=False)
    return nothing


def prune_images(scene: Scene) -> Undo:
    with suppress(RuntimeError):
        scene.host.docker("image", "prune", "--all", "--force")
    with suppress(RuntimeError):
        scene.host.docker("rmi", "--force", scene.wanted_image)
    return nothing


def second_apply(scene: Scene) -> Undo:
    other = scene.second()

    def wait() -> None:
        other.communicate(timeout=150)

    return wait


def nothing() -> None:
    """There is nothing to undo."""


FAULTS: Mapping[str, Callable[[Scene], Undo]] = {
    "kill -9 of the controller": kill_controller,
    "link dropped": drop_link,
    "kill -9 of dockerd": kill_dockerd,
    "disk full": fill_disk,
    "container dies": kill_container,
    "image pruned": prune_images,
    "second apply": second_apply,
}


def quietly(host: LabHost, *words: str) -> None:
    """What can fail because the fault of a moment ago is in its way."""
    with suppress(subprocess.CalledProcessError):
        host.run(*words)


def small_disks(host: LabHost, network: str) -> None:
    """Docker and home on small disks of their own, which can be filled without harm to this machine."""
    quietly(host, "sh", "-c", "kill $(cat /run/docker.pid)")
    until(lambda: not docker_answers(host))
    time.sleep(1)
    host.run("mount", "-t", "tmpfs", "-o", f"size={HOME_DISK}", "tmpfs", "/root")
    host.run("mount", "-t", "tmpfs", "-o", f"size={DOCKER_DISK}", "tmpfs", f"{host.folder}/docker")
    start_dockerd(host, network)


def start_dockerd(host: LabHost, network: str) -> None:
    """Start the daemon that was ended, and wait until it answers; a second start helps when the first met leftovers."""
    for _ in range(3):
        subprocess.run(
            ("nsenter", "--target", str(host.init), "--mount", "--net", "--pid", "--uts", "--", "sh", "-c", DOCKERD,
             "sh", str(host.folder), network),
            check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        with suppress(TimeoutError):
            until(lambda: docker_answers(host), 20)
            return
    raise TimeoutError("dockerd does not come back")


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something. TimeoutError: it does not come."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)
