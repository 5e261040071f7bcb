"""The lines about the host itself → `System`."""

from __future__ import annotations

from collections.abc import Sequence

from beamdeploy.look.facts import System
from beamdeploy.look.frames import Frame, only

SWITCHES = "/dev/nvidia-nvswitchctl"
_FABRIC_MANAGER = "nv-fabricmanager"


def parse(found: Sequence[Frame]) -> System:
    frame = only(found, "system")
    pairs = [line.partition(" ")[::2] for line in ("" if frame is None else frame.text).splitlines()]
    first = {key.rstrip(":"): value.split() for key, value in pairs}
    there = frozenset(value for key, value in pairs if key == "there")
    clock = first.get("clock", [""])[0]
    return System(
        machine=" ".join(first.get("machine", [])),
        clock=int(clock) if clock.isdigit() else None,
        memory_total=_bytes(first.get("MemTotal", [])),
        memory_available=_bytes(first.get("MemAvailable", [])),
        there=there,
        programs=frozenset(value for key, value in pairs if key == "program"),
        fabric_manager=("running", _FABRIC_MANAGER) in pairs if SWITCHES in there else None,
    )


def skew(clock: int | None, begin: float, end: float) -> float:
    """Seconds that `clock` is ahead of this machine's, which showed `begin` before the question and `end` after it.

    The host read its clock somewhere between: what can be explained by that is no skew.
    """
    if clock is None or begin - 1 <= clock <= end:
        return 0.0
    return clock - end if clock > end else clock + 1 - begin


def _bytes(words: Sequence[str]) -> int | None:
    return int(words[0]) * 1024 if words and words[0].isdigit() else None
