"""`nvidia-smi` in a sandbox: the profile's GPUs, with memory in use while a container's process lives on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beamdeploy.sandbox import locks, place
from beamdeploy.sandbox.docker import store
from beamdeploy.sandbox.docker.inside import gpus_of

IDLE_MIB = 4
SHARE = 0.9
UNITS = {
    "memory": "MiB",
    "power": "W",
    "utilization": "%",
    "clocks": "MHz",
    "used_gpu_memory": "MiB",
    "used_memory": "MiB",
}
Row = Mapping[str, str]


def main(folder: str, words: Sequence[str]) -> int:
    """The exit code."""
    options = dict(_options(words))
    profile = place.settings(folder)["profile"]
    cards = list(_cards(folder, profile))
    wanted = options.get("-i", options.get("--id"))
    if wanted is not None:
        cards = [card for card in cards if {card["index"], card["uuid"], card["pci.bus_id"]} & set(wanted.split(","))]
    form = options.get("--format", "csv")
    if "--query-gpu" in options:
        return _table(cards, options["--query-gpu"], form)
    if "--query-compute-apps" in options:
        return _table(list(_processes(folder, profile)), options["--query-compute-apps"], form, PROCESS)
    if "-L" in options or "--list-gpus" in options:
        return _say(f"GPU {card['index']}: {card['name']} (UUID: {card['uuid']})" for card in cards)
    if "topo" in words:
        return _say(_topology(cards))
    if "--version" in options:
        return _say(_version(profile["driver"], profile["cuda"]))
    if options and not set(options) <= {"-i", "--id"}:
        return _say(["Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", ""], 2)
    version = f"{profile['driver']}"
    return _say(
        [
            "+-----------------------------------------------------------------------------------------+",
            f"| NVIDIA-SMI {version:<22} Driver Version: {version:<14} CUDA Version: {profile['cuda']:<8} |",
            *(
                f"|   {card['index']}  {card['name']:<40} {card['memory.used']}MiB / {card['memory.total']}MiB"
                for card in cards
            ),
            "|                 emulated by a beamdeploy sandbox: there is no GPU here                  |",
            "+-----------------------------------------------------------------------------------------+",
        ]
    )


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    left = list(words)
    while left:
        name, joined, value = left.pop(0).partition("=")
        if name in ("-i", "--id") and not joined and left:
            value = left.pop(0)
        if name not in ("topo", "-m"):
            yield name, value


def _cards(folder: str, profile: Mapping[str, Any]) -> Iterator[Row]:
    total = int(profile["memory_mib"])
    used = {gpu for _, gpus, _ in _alive(folder, profile) for gpu in gpus}
    for number in range(int(profile["count"])):
        held = int(total * SHARE) if str(number) in used else IDLE_MIB
        yield {
            "index": str(number),
            "name": profile["product"],
            "gpu_name": profile["product"],
            "uuid": uuid(number),
            "gpu_uuid": uuid(number),
            "count": str(profile["count"]),
            "memory.total": str(total),
            "memory.used": str(held),
            "memory.free": str(total - held),
            "memory.reserved": "0",
            "driver_version": profile["driver"],
            "compute_cap": profile["compute_capability"],
            "mig.mode.current": profile["mig"],
            "mig.mode.pending": profile["mig"],
            "pci.bus_id": f"00000000:{number + 1:02X}:00.0",
            "serial": str(1650000000000 + number),
            "ecc.errors.uncorrected.volatile.total": "0",
            "ecc.mode.current": "Enabled",
            "persistence_mode": "Enabled",
            "compute_mode": "Default",
            "fabric.state": profile["fabric"],
            "fabric.status": "Success" if profile["fabric"] == "Completed" else "N/A",
            "power.limit": f"{profile['power_w']}.00",
            "power.draw": "140.00",
            "temperature.gpu": "35",
            "utilization.gpu": "0",
            "utilization.memory": "0",
            "pstate": "P0",
            "timestamp": store.now()[:19].replace("T", " ").replace("-", "/"),
        }


PROCESS = ("pid", "process_name", "name", "used_gpu_memory", "used_memory", "gpu_uuid", "gpu_name", "gpu_bus_id")


def uuid(number: int) -> str:
    """A GPU's identity, the same in every sandbox."""
    return f"GPU-5a4db0c5-0000-4000-8000-{number + 1:012x}"


def _alive(folder: str, profile: Mapping[str, Any]) -> Iterator[tuple[int, list[str], str]]:
    """(pid, GPU indices, program) of each container's process that lives."""
    for record in store.all_of(folder):
        gpus = gpus_of(record, int(profile["count"]))
        if gpus and locks.held(os.path.join(store.home(folder, record["Id"]), store.ENGINE)):
            yield int(record["State"]["Pid"]), gpus, record["Path"]


def _processes(folder: str, profile: Mapping[str, Any]) -> Iterator[Row]:
    for pid, gpus, program in _alive(folder, profile):
        for gpu in gpus:
            held = str(int(int(profile["memory_mib"]) * SHARE))
            values = (str(pid), program, program, held, held, uuid(int(gpu)), profile["product"], f"0000000{gpu}")
            yield dict(zip(PROCESS, values, strict=True))


def _table(rows: Sequence[Row], fields: str, form: str, known: Sequence[str] = ()) -> int:
    names = [name.strip() for name in fields.split(",")]
    known = known or list(rows[0] if rows else ())
    for name in names:
        if known and name not in known:
            return _say([f'Field "{name}" is not a valid field to query.', ""], 2)
    head = (
        [] if "noheader" in form else [", ".join(f"{name} [{_unit(name)}]" if _unit(name) else name for name in names)]
    )
    bare = "nounits" in form
    return _say([*head, *(", ".join(_cell(row, name, bare=bare) for name in names) for row in rows)])


def _unit(name: str) -> str:
    return UNITS.get(name, UNITS.get(name.partition(".")[0], ""))


def _cell(row: Row, name: str, *, bare: bool) -> str:
    return row[name] if bare or not _unit(name) else f"{row[name]} {_unit(name)}"


def _version(driver: str, cuda: str) -> Iterator[str]:
    library = ".".join(driver.split(".")[:2])
    yield f"NVIDIA-SMI version  : {driver}"
    yield f"NVML version        : {library}"
    yield f"DRIVER version      : {driver}"
    yield f"CUDA Version        : {cuda}"


def _topology(cards: Sequence[Row]) -> Iterator[str]:
    names = [f"GPU{card['index']}" for card in cards]
    yield "\t" + "\t".join(names)
    for name in names:
        yield "\t".join([name, *(" X " if other == name else "NV18" for other in names)])


def _say(lines: Sequence[str] | Iterator[str], code: int = 0) -> int:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return code
