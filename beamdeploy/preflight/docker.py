"""Docker: who answers, with what storage, and whether its containers get GPUs and keep them."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.hardware import older
from beamdeploy.look.facts import Docker, Facts
from beamdeploy.preflight.check import Check
from beamdeploy.render import Spec

_GPUS_SINCE = "19.03"
_SLOW = {"vfs": "it copies every layer whole", "devicemapper": "it is slow and no longer supported"}
_NODE = "/dev/nvidiactl"
_LINK = "/dev/char/195:255"


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """What docker said of itself; nothing where it could not be asked."""
    docker = facts.docker
    if docker is None:
        return
    yield from _version(spec, docker)
    yield from _storage(docker)
    yield from _gpus(docker)
    yield from _reload(docker, facts)


def _version(spec: Spec, docker: Docker) -> Iterator[Check]:
    how = "through sudo" if spec.host.become else f"for {docker.user or 'this user'} without sudo"
    saw = f"client {docker.client}, daemon {docker.server}, {how}"
    if docker.server and older(docker.server, _GPUS_SINCE):
        yield Check("docker", f"{saw}: older than {_GPUS_SINCE}, which knows --gpus", "block", "Update docker there.")
    else:
        yield Check("docker", saw)


def _storage(docker: Docker) -> Iterator[Check]:
    if docker.storage in _SLOW:
        what = f"storage driver {docker.storage}: {_SLOW[docker.storage]}"
        yield Check("storage", what, "warn", "Use overlay2, docker's default.")
    elif docker.storage:
        yield Check("storage", f"{docker.storage} in {docker.root_dir}")


def _gpus(docker: Docker) -> Iterator[Check]:
    if docker.gpu_support is False:
        yield Check(
            "docker",
            "docker on this host cannot reach the GPUs: its daemon has no NVIDIA runtime",
            "block",
            "Install the NVIDIA Container Toolkit there, run `nvidia-ctk runtime configure --runtime=docker`, and "
            "restart the docker daemon.",
            "BD244",
        )
    elif docker.gpu_support is None:
        yield Check("toolkit", "not known: the daemon's environment may not be read by this user")
    else:
        how = "as CDI devices" if docker.cdi else "by the NVIDIA runtime"
        yield Check("toolkit", f"containers get GPUs {how}")


def _reload(docker: Docker, facts: Facts) -> Iterator[Check]:
    """With systemd's cgroup driver a `systemctl daemon-reload` sets the device rules of running containers anew.

    systemd looks devices up below /dev/char, where the NVIDIA driver makes no links, so the containers lose their
    GPUs: https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    """
    if docker.cgroup_driver != "systemd":
        if docker.cgroup_driver:
            yield Check("cgroups", f"driver {docker.cgroup_driver}: a systemd reload takes no GPUs away")
    elif docker.cdi or _LINK in facts.system.there or _NODE not in facts.system.there:
        yield Check("cgroups", "driver systemd, and the GPUs' device links are there or not needed")
    else:
        yield Check(
            "cgroups",
            f"driver systemd, and {_LINK} is not there: a `systemctl daemon-reload` on the host takes the GPUs away "
            "from running containers",
            "warn",
            "Make the links now and at each boot (`nvidia-ctk system create-dev-char-symlinks --create-all`, by a udev "
            'rule), or set "exec-opts": ["native.cgroupdriver=cgroupfs"] in daemon.json, or use CDI.',
        )
