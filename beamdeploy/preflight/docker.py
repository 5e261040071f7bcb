"""Docker: who answers, with what storage, and whether its containers get GPUs and keep them."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.gpu_access import CDI, DEVICES, GPUS, device_names
from beamdeploy.hardware import older
from beamdeploy.look.facts import Docker, Facts
from beamdeploy.preflight.check import Check
from beamdeploy.render import Spec

_GPUS_SINCE = "19.03"
_CDI_SINCE = "25.0"
_CDI_FILES = ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml")
_SLOW = {"vfs": "it copies every layer whole", "devicemapper": "it is slow and no longer supported"}
_NODE = "/dev/nvidiactl"
_LINK = "/dev/char/195:255"
_TELLS_CDI = "28.2"
_MOUNTS = frozenset({"-v", "--volume", "--mount"})


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """What docker said of itself; nothing where it could not be asked."""
    docker = facts.docker
    if docker is None:
        return
    yield from _version(spec, docker)
    yield from _storage(docker)
    if spec.host.gpu_access == GPUS:
        yield from _gpus(docker)
    elif spec.host.gpu_access == CDI:
        yield from _cdi(spec, docker, facts)
    else:
        yield from _devices(spec, facts)
    yield from _reload(docker, facts)


def _version(spec: Spec, docker: Docker) -> Iterator[Check]:
    how = "through sudo" if spec.host.become else f"for {docker.user or 'this user'} without sudo"
    client = f"client {docker.client}, " if docker.client else ""
    saw = f"{client}daemon {docker.server}, {how}"
    since, word = {GPUS: (_GPUS_SINCE, "--gpus"), CDI: (_CDI_SINCE, "CDI names")}.get(spec.host.gpu_access, ("", ""))
    if since and docker.server and older(docker.server, since):
        yield Check("docker", f"{saw}: older than {since}, which knows {word}", "block", "Update docker there.")
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
            "restart the docker daemon. Without it: gpu_access of the inventory.",
            "BD244",
        )
    elif docker.gpu_support is None:
        yield Check("toolkit", "not known: the daemon's environment may not be read by this user")
    else:
        how = "as CDI devices" if docker.cdi_devices else "by the NVIDIA runtime"
        yield Check("toolkit", f"containers get GPUs {how}")


def _cdi(spec: Spec, docker: Docker, facts: Facts) -> Iterator[Check]:
    """docker names what it has found since 28.2; before, the usual places of the toolkit's file tell."""
    remedy = "Write it there: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, anew after each driver update."
    wanted = device_names(CDI, spec.gpus)
    lacking = [name for name in wanted if name not in docker.cdi_devices]
    if not lacking:
        yield Check("toolkit", f"containers get {', '.join(wanted)}")
    elif docker.cdi_devices:
        yield Check("toolkit", f"docker's CDI devices lack {', '.join(lacking)}", "block", remedy)
    elif facts.system.there & {*_CDI_FILES}:
        yield Check("toolkit", f"a CDI description is there; docker does not say whether it holds {', '.join(wanted)}")
    else:
        what = "docker names no CDI devices of NVIDIA, and no description of them lies in the usual places"
        yield Check("toolkit", what, "warn" if older(docker.server, _TELLS_CDI) else "block", remedy)


def _devices(spec: Spec, facts: Facts) -> Iterator[Check]:
    """Device files alone: they must be there, and the driver's libraries come from docker_args or the image."""
    wanted = device_names(DEVICES, spec.gpus)
    lacking = [node for node in wanted if node not in facts.system.there]
    if lacking:
        remedy = "Make them (`nvidia-modprobe -u -c 0`), or correct gpus: device files are numbered like minor numbers."
        yield Check("toolkit", f"the host has no {', '.join(lacking)}", "block", remedy)
        return
    saw = f"containers get {', '.join(wanted)}"
    if any(word.partition("=")[0] in _MOUNTS for word in spec.host.docker_args):
        yield Check("toolkit", saw)
        return
    remedy = 'Mount the driver\'s libraries, like docker_args: ["-v", "/usr/local/nvidia:/usr/local/nvidia:ro"].'
    yield Check(
        "toolkit", f"{saw}, and docker_args mounts no driver libraries: the image must hold them", "warn", remedy
    )


def _reload(docker: Docker, facts: Facts) -> Iterator[Check]:
    """With systemd's cgroup driver a `systemctl daemon-reload` sets the device rules of running containers anew.

    systemd looks devices up below /dev/char, where the NVIDIA driver makes no links, so the containers lose their
    GPUs: https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    """
    if docker.cgroup_driver != "systemd":
        if docker.cgroup_driver:
            yield Check("cgroups", f"driver {docker.cgroup_driver}: a systemd reload takes no GPUs away")
    elif docker.cdi_devices or _LINK in facts.system.there or _NODE not in facts.system.there:
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
