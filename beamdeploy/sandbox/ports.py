"""The port table of a sandbox: which of its ports leads to which real one, and what else holds a port there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from beamdeploy.sandbox import place
from beamdeploy.sandbox.docker import store
from beamdeploy.sandbox.docker.inside import inside_port


class Listener(NamedTuple):
    """Something that listens in the sandbox. `real`: the port of this machine; None: it accepts, and hangs up."""

    address: str
    port: int
    program: str
    pid: int
    real: int | None = None


def listeners(folder: str) -> Iterator[Listener]:
    """All that listens in the sandbox."""
    for held in place.settings(folder)["taken"]:
        yield Listener(held["address"], held["port"], held["program"], held["pid"])
    for record in store.all_of(folder):
        for inside, bindings in record["NetworkSettings"]["Ports"].items():
            leads = inside == f"{inside_port(record['Args'])}/tcp"
            real = record["_"].get("port") if leads else None
            for each in bindings:
                yield Listener(each["HostIp"], int(each["HostPort"]), "docker-proxy", record["State"]["Pid"] + 1, real)


def at(folder: str, address: str, port: int) -> Listener | None:
    """What answers at address:port of the sandbox; None: nothing listens there."""
    local = "127.0.0.1" if address == "localhost" else address.strip("[]")
    for each in listeners(folder):
        if each.port == port and each.address in (local, "0.0.0.0", "::"):
            return each
    return None
