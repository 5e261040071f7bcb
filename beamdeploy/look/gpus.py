"""What nvidia-smi answered → `Gpus`, or why it could not be asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from beamdeploy.errors import Problem
from beamdeploy.look.facts import Gpu, GpuProcess, Gpus
from beamdeploy.look.frames import Frame, only

NOT_FOUND = 127
NONE = "No devices were found"


@dataclass(frozen=True)
class Cards:
    """The GPU part of the facts. `gpus` None without a problem: there is no nvidia-smi on this host."""

    gpus: Gpus | None = None
    problems: tuple[Problem, ...] = ()


def parse(found: Sequence[Frame]) -> Cards:
    asked = only(found, "gpus")
    if asked is None or asked.exit == NOT_FOUND:
        return Cards()
    rows = [row for line in asked.text.splitlines() if (row := _row(line)) is not None]
    none = NONE in asked.text + asked.err
    # with one GPU fallen off the bus nvidia-smi fails, but still tells of the others
    problems = () if none or (asked.exit == 0 and _readable(asked)) else (explain(asked),)
    if not rows and not none:
        return Cards(problems=problems)
    apps = only(found, "gpus.apps")
    processes = tuple(_processes("" if apps is None else apps.text))
    driver = next((driver for _, driver in rows), "") or _kernel(found)
    return Cards(Gpus(driver, tuple(gpu for gpu, _ in rows), processes), problems)


def _readable(asked: Frame) -> bool:
    return all(_row(line) is not None for line in asked.text.splitlines() if line.strip())


def _row(line: str) -> tuple[Gpu, str] | None:
    """One GPU and the driver; None: the line is no row of the query."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 8 or not cells[0].isdigit():
        return None
    index, name, uuid, total, used, capability, mig, driver = cells
    known = re.fullmatch(r"\d+\.\d+", capability)
    return Gpu(int(index), name, uuid, _mib(total), _mib(used), capability if known else "", _mig(mig)), driver


def _mib(cell: str) -> int | None:
    # [N/A], [Not Supported], [Unknown Error], ERR!
    match = re.fullmatch(r"(\d+)(?: MiB)?", cell)
    return int(match[1]) if match else None


def _mig(cell: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(cell)


def _processes(text: str) -> Iterator[GpuProcess]:
    for line in text.splitlines():
        # a process name may hold commas; the outer cells cannot
        match = re.fullmatch(r"\s*(\d+)\s*,\s*(.*?)\s*,\s*([^,]*?)\s*,\s*(\S+)\s*", line)
        if match:
            yield GpuProcess(int(match[1]), match[2], match[4], _mib(match[3]))


def _kernel(found: Sequence[Frame]) -> str:
    frame = only(found, "gpus.kernel")
    match = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", "" if frame is None else frame.text)
    return match[1] if match else ""


def explain(asked: Frame) -> Problem:
    """Why nvidia-smi gave no (whole) answer."""
    said = " ".join(f"{asked.text} {asked.err}".split())[:300]
    lower = said.lower()
    if "version mismatch" in lower:
        return Problem(
            f"the NVIDIA driver in the kernel and its library differ in version: {said}",
            "the driver was updated under a running system: reboot the host (or unload and load the nvidia modules)",
            rule="BD237",
        )
    if "communicate with the nvidia driver" in lower or "driver not loaded" in lower:
        return Problem(
            f"the NVIDIA driver is not loaded: {said}",
            "load it (`modprobe nvidia`), or install the driver that fits the running kernel, then look at `dmesg`",
            rule="BD237",
        )
    if "is lost" in lower or "unable to determine the device handle" in lower:
        return Problem(
            f"a GPU has fallen off the bus: {said}",
            "look for Xid errors in `dmesg`; the host needs a reboot, and the GPU a check if it comes back",
            rule="BD238",
        )
    if asked.exit == 124:
        return Problem(
            "nvidia-smi gave no answer in 30 s",
            "look at `dmesg` for NVRM and Xid lines; a stuck driver needs a reboot of the host",
            rule="BD238",
        )
    return Problem(
        f"nvidia-smi could not be asked (exit {asked.exit}): {said or 'it said nothing'}",
        "run `nvidia-smi` by hand on the host",
        rule="BD237",
    )
