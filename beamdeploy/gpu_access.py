"""How a container is given its GPUs: the inventory's word → words of `docker run`, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

GPUS, CDI, DEVICES = "gpus", "cdi", "devices"
ACCESS = (GPUS, CDI, DEVICES)
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
"""Besides its GPU's own, the device files that a CUDA program opens."""
_CDI_KIND = "nvidia.com/gpu="
_NODE = "/dev/nvidia"


class Given(NamedTuple):
    """The GPUs that a `docker run` gives. `names`: as they stand in its words ("0", a UUID); none: it does not say."""

    access: str
    names: tuple[str, ...] = ()


def gpu_words(access: str, gpus: Sequence[int]) -> tuple[str, ...]:
    """The words for these GPUs."""
    if access == GPUS:
        # in quotes: docker reads the word as CSV, and the list of numbers holds commas
        return "--gpus", f'"device={",".join(map(str, gpus))}"'
    return tuple(word for device in device_names(access, gpus) for word in ("--device", device))


def device_names(access: str, gpus: Iterable[int]) -> tuple[str, ...]:
    """What the GPUs are called as devices: names of the container device interface, or device files."""
    if access == CDI:
        return tuple(f"{_CDI_KIND}{gpu}" for gpu in gpus)
    return (*(f"{_NODE}{gpu}" for gpu in gpus), *CONTROL_NODES)


def given(gpus: str | None, devices: Iterable[str]) -> Given:
    """The GPUs that `--gpus` (None: not there) and the words of `--device` give."""
    named = tuple(devices)
    if gpus is not None:
        listed = re.search(r"device=([^\"]+)", gpus)
        return Given(GPUS, tuple(listed[1].split(",")) if listed else ())
    cdi = tuple(word.removeprefix(_CDI_KIND) for word in named if word.startswith(_CDI_KIND))
    if cdi:
        return Given(CDI, () if cdi == ("all",) else cdi)
    nodes = tuple(match[1] for word in named if (match := re.match(rf"{_NODE}(\d+)(?::|$)", word)))
    return Given(DEVICES, nodes) if nodes else Given(GPUS)


def is_gpu(device: str) -> bool:
    """Whether a word of `--device` is one of a GPU."""
    return device.startswith((_CDI_KIND, _NODE))
