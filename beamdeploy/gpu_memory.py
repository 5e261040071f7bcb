"""Whether the GPUs are free of what was stopped, so that the next server fits in."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from beamdeploy.errors import HostError, Problem
from beamdeploy.inventory import Host
from beamdeploy.look import with_smi
from beamdeploy.remote import Session

_FREE_MIB = 2048
"""A GPU that computes nothing still holds some hundred MiB for its driver and monitoring tools."""
_SECONDS = 120
NOBODY: Mapping[int, int] = MappingProxyType({})

Say = Callable[[str, str], None]


def wait_for_gpus(
    session: Session,
    host: Host,
    gpus: Collection[int],
    say: Say,
    *,
    within: float = _SECONDS,
    others: Mapping[int, int] = NOBODY,
) -> None:
    """Until nothing holds memory of these GPUs but others, who held so many MiB of each before.

    HostError: something still does after `within` seconds.
    """
    until = time.monotonic() + within
    while used := _gpus_in_use(session, gpus, others):
        held = ", ".join(f"GPU {index}: {mib} MiB" for index, mib in used.items())
        if time.monotonic() > until:
            what = f"GPU memory is still in use after the server has stopped ({held}{_holders(session, used)})"
            remedy = "End what holds it, if it is yours; nothing is killed here."
            raise HostError(Problem(what, remedy, f"{host.name}: wait for GPUs"))
        say("wait for GPUs", held)
        time.sleep(1)


def _gpus_in_use(session: Session, gpus: Collection[int], others: Mapping[int, int]) -> Mapping[int, int]:
    """Index → MiB for the GPUs that are not free. A GPU that does not say is taken as free."""
    query = ("--query-gpu=index,memory.used", "--format=csv,noheader,nounits")
    rows = _rows(session, query)
    used = {int(row[0]): int(row[1]) for row in rows if len(row) == 2 and all(cell.isdigit() for cell in row)}
    return {index: mib for index, mib in used.items() if index in gpus and mib > _FREE_MIB + others.get(index, 0)}


def _holders(session: Session, used: Collection[int]) -> str:
    """Who holds the memory, as far as the driver says: ", held by python (pid 77123) on GPU 0"."""
    apps = ("--query-compute-apps=pid,process_name,gpu_uuid", "--format=csv,noheader")
    uuids = ("--query-gpu=uuid,index", "--format=csv,noheader")
    index = dict(row for row in _rows(session, uuids) if len(row) == 2)
    found = [row for row in _rows(session, apps) if len(row) == 3 and index.get(row[2]) in {str(each) for each in used}]
    return "".join(f", held by {program} (pid {pid}) on GPU {index[uuid]}" for pid, program, uuid in found)


def _rows(session: Session, query: tuple[str, ...]) -> list[list[str]]:
    out = session.script(with_smi('smi "$@"\n'), query, timeout=60).out
    return [[cell.strip() for cell in line.split(",")] for line in out.splitlines()]
