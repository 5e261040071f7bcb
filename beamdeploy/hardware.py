"""GPU families: what a recipe's `hardware.gpu` means on a host."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """`name` is a part of nvidia-smi's product name; memory in GB as sold."""

    name: str
    compute_capability: str
    memory_gb: int


# NVIDIA's list of CUDA GPUs (compute capability) and its data sheets (memory).
FAMILIES = (
    Family("GB300", "10.3", 288),
    Family("B300", "10.3", 288),
    Family("GB200", "10.0", 192),
    Family("B200", "10.0", 192),
    Family("H200", "9.0", 141),
    Family("GH200", "9.0", 96),
    Family("H100", "9.0", 80),
    Family("A100", "8.0", 80),
    Family("L40S", "8.9", 48),
    Family("RTX PRO 6000", "12.0", 96),
    Family("H20", "9.0", 96),
    Family("H800", "9.0", 80),
    Family("A800", "8.0", 80),
    Family("L40", "8.9", 48),
    Family("L4", "8.9", 24),
    Family("A40", "8.6", 48),
    Family("A10", "8.6", 24),
    Family("RTX 5090", "12.0", 32),
    Family("RTX 4090", "8.9", 24),
)


def family(gpu: str) -> Family | None:
    """The family that a recipe names; None: not known here (the host's product name is then compared as text)."""
    return next((known for known in FAMILIES if known.name.lower() == gpu.lower()), None)


def is_of(gpu: str, product: str) -> bool:
    """Whether nvidia-smi's product name ("NVIDIA B300 SXM6 AC") is of the recipe's family ("B300")."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(gpu)}(?![A-Za-z0-9])", product, re.IGNORECASE) is not None


def older(version: str, wanted: str) -> bool:
    """Whether driver `version` ("550.142") is older than `wanted` ("580", "580.95.05")."""
    return _numbers(version) < _numbers(wanted)


# The newest CUDA that the drivers of a branch run: CUDA toolkit release notes, table of driver versions.
_CUDA = {
    "470": "11.4", "510": "11.6", "515": "11.7", "520": "11.8", "525": "12.0", "530": "12.1", "535": "12.2",
    "545": "12.3", "550": "12.4", "555": "12.5", "560": "12.6", "565": "12.7", "570": "12.8", "575": "12.9",
    "580": "13.0", "590": "13.1",
}  # fmt: skip


def cuda_of(driver: str) -> str:
    """ "550.142" → "12.4"; "": a branch that is not known here."""
    return _CUDA.get(driver.partition(".")[0], "")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
