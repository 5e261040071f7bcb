"""What nvidia-smi answered → `Gpus`, or why it could not be asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
    rows = tuple(_rows(asked.text))
    none = NONE in asked.text + asked.err
    # with one GPU fallen off the bus nvidia-smi fails, but still tells of the others
    problems = () if none or (asked.exit == 0 and rows) else (explain(asked),)
    if not rows and not none:
        return Cards(problems=problems)
    driver = next((row["driver_version"] for row in rows), "") or _kernel(found)
    told = Gpus(driver, tuple(map(_gpu, rows)), tuple(_processes(found)), _cuda(found))
    return Cards(told, problems)


def _rows(text: str) -> Iterator[Mapping[str, str]]:
    """The rows by the names in the first line ("memory.total [MiB]" is memory.total); other lines are no rows."""
    names: tuple[str, ...] = ()
    for line in text.splitlines():
        cells = tuple(cell.strip() for cell in line.split(","))
        if cells[0] == "index":
            names = tuple(cell.partition(" [")[0] for cell in cells)
        elif len(cells) == len(names) and cells[0].isdigit():
            yield dict(zip(names, cells, strict=True))


def _gpu(row: Mapping[str, str]) -> Gpu:
    capability = row.get("compute_cap", "")
    return Gpu(
        index=int(row["index"]),
        name=row["name"],
        uuid=row["uuid"],
        memory_total_mib=_number(row["memory.total"]),
        memory_used_mib=_number(row["memory.used"]),
        compute_capability=capability if re.fullmatch(r"\d+\.\d+", capability) else "",
        mig={"Enabled": True, "Disabled": False}.get(row.get("mig.mode.current", "")),
        ecc_errors=_number(row.get("ecc.errors.uncorrected.volatile.total", "")),
        compute_mode=_word(row.get("compute_mode", "")),
        fabric=_word(row.get("fabric.state", "")),
    )


def _word(cell: str) -> str:
    # "[N/A]", "N/A", "[Not Supported]", "[Unknown Error]" and "ERR!" say nothing
    return "" if cell.startswith("[") or cell in ("N/A", "ERR!") else cell


def _number(cell: str) -> int | None:
    match = re.fullmatch(r"(\d+)(?: MiB)?", cell)
    return int(match[1]) if match else None


def _processes(found: Sequence[Frame]) -> Iterator[GpuProcess]:
    asked, groups = only(found, "gpus.apps"), only(found, "gpus.groups")
    containers = dict(containers_of("" if groups is None else groups.text))
    for line in ("" if asked is None else asked.text).splitlines():
        # a process name may hold commas; the outer cells cannot
        match = re.fullmatch(r"\s*(\d+)\s*,\s*(.*?)\s*,\s*([^,]*?)\s*,\s*(\S+)\s*", line)
        if match:
            pid = int(match[1])
            yield GpuProcess(pid, match[2], match[4], _number(match[3]), containers.get(pid, ""))


def containers_of(text: str) -> Iterator[tuple[int, str]]:
    """(pid, container) of "/proc/PID/cgroup:0::/system.slice/docker-ID.scope" and of ".../docker/ID" lines."""
    for line in text.splitlines():
        match = re.match(r"/proc/(\d+)/cgroup:.*\b([0-9a-f]{64})\b", line)
        if match:
            yield int(match[1]), match[2]


def _cuda(found: Sequence[Frame]) -> str:
    """ "CUDA Version        : 13.0"; old drivers know no --version."""
    frame = only(found, "gpus.version")
    match = re.search(r"CUDA Version\s*:\s*(\d+\.\d+)", "" if frame is None else frame.text, re.IGNORECASE)
    return match[1] if match else ""


def _kernel(found: Sequence[Frame]) -> str:
    frame = only(found, "gpus.kernel")
    match = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", "" if frame is None else frame.text)
    return match[1] if match else ""


def explain(asked: Frame) -> Problem:
    """Why nvidia-smi gave no (whole) answer."""
    rows = re.compile(r"(index|\d+), ")  # which do not say what is wrong
    lines = (line for line in f"{asked.text}\n{asked.err}".splitlines() if not rows.match(line))
    said = " ".join(" ".join(lines).split())[:300]
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
