"""The CUDA driver as a container without GPUs lacks it: what `ctypes` finds under its name inside the stand-in's image.

STANDIN_CUDA: the CUresult that cuInit gives. Source: cuda.h of CUDA 12.4.
"""

from __future__ import annotations

import ctypes
import os

NO_DEVICE = 100
_LIBRARY = "libcuda.so.1"


class Driver:
    """The calls that start CUDA. Each gives a CUresult."""

    def cuInit(self, flags: int) -> int:
        """With no GPU in the container: no device."""
        return int(os.environ.get("STANDIN_CUDA", "0")) or (0 if _gpus() else NO_DEVICE)

    def cuDeviceGetCount(self, count: object) -> int:
        """Write the number of GPUs into what a `byref` leads to."""
        count._obj.value = len(_gpus())  # type: ignore[attr-defined]
        return 0

    def cuDevicePrimaryCtxRetain(self, context: object, index: int) -> int:
        """An emulated GPU has room."""
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, index: int) -> int:
        """Nothing is held."""
        return 0


def put_in_place() -> None:
    """Make `ctypes.CDLL` find the driver."""
    real = ctypes.CDLL

    def find(name: str, *more: object) -> object:
        return Driver() if name == _LIBRARY else real(name, *more)  # type: ignore[arg-type]

    ctypes.CDLL = find  # type: ignore[assignment,misc]


def _gpus() -> list[str]:
    """As the runtime's environment names them."""
    return [each for each in os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if each not in ("", "void")]
