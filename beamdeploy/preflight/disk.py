"""Room for what is still to come: bytes and inodes where docker keeps its images and where the weights lie."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.look.facts import Disk, Facts
from beamdeploy.preflight.check import Check
from beamdeploy.preflight.image import image_there
from beamdeploy.render import Spec
from beamdeploy.weights.staging import human

_GIB = 2**30
# An engine's image takes 15 to 40 GB and some hundred thousand files once it is unpacked.
LEAST_BYTES, GOOD_BYTES = 5 * _GIB, 50 * _GIB
LEAST_INODES, GOOD_INODES = 20_000, 400_000
# without a pull: the container's own layer and its log
ALWAYS_BYTES, ALWAYS_INODES = _GIB, 1000


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """Free bytes and inodes, each with the folder that is meant."""
    if facts.docker is not None and facts.docker.root_dir in facts.disks:
        disk = facts.disks[facts.docker.root_dir]
        yield _pull(disk) if image_there(spec, facts) is None else _kept(disk)
    models = facts.disks.get(str(spec.host.model_dir))
    if models is not None:
        yield Check("disk", f"{models.path} (weights): {free(models)}")


def free(disk: Disk) -> str:
    """ "170.0 GiB and 812 inodes free"."""
    inodes = "" if disk.free_inodes is None else f" and {disk.free_inodes} inodes"
    return f"{human(disk.free_bytes)}{inodes} free"


def _pull(disk: Disk) -> Check:
    lacks = _lacking(disk, LEAST_BYTES, LEAST_INODES)
    little = lacks or _lacking(disk, GOOD_BYTES, GOOD_INODES)
    saw = f"{disk.path} (docker's images): {free(disk)}"
    if not little:
        return Check("disk", saw)
    remedy = (
        f"Make room on the file system of {disk.path} by hand (docker system df tells what takes it; nothing is pruned "
        "here), or move docker's data-root to another one."
    )
    if lacks:
        return Check("disk", f"{saw}: too few {lacks} to pull an image", "block", remedy)
    return Check("disk", f"{saw}: few {little} for an image of an engine", "warn", remedy)


def _kept(disk: Disk) -> Check:
    lacks = _lacking(disk, ALWAYS_BYTES, ALWAYS_INODES)
    saw = f"{disk.path} (docker's images): {free(disk)}"
    if lacks:
        return Check("disk", f"{saw}: few {lacks} for a container's log", "warn", "Make room there.")
    return Check("disk", saw)


def _lacking(disk: Disk, size: int, inodes: int) -> str:
    """What there is too little of: "bytes", "inodes", or nothing."""
    if disk.free_inodes is not None and disk.free_inodes < inodes:
        return "inodes"
    return "bytes" if disk.free_bytes < size else ""
