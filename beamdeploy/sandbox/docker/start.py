"""Start a container: what Docker checks at that moment, then a local process under a keeper."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from beamdeploy.gpu_access import DEVICES, device_names
from beamdeploy.sandbox import place
from beamdeploy.sandbox.docker import store
from beamdeploy.sandbox.docker.failure import Failure, daemon
from beamdeploy.sandbox.docker.inside import find_program, gpus_of
from beamdeploy.sandbox.docker.store import Record

ANYWHERE = ("", "0.0.0.0", "::")
PROXY = "driver failed programming external connectivity on endpoint"


def start(folder: str, record: Record) -> None:
    """Start it under a keeper of its own. Failure: Docker cannot; the record says why."""
    try:
        _check(folder, record)
    except Failure as failure:
        record["State"] |= {"ExitCode": failure.exit if failure.exit == 127 else 128}
        record["State"]["Error"] = failure.text.removeprefix("Error response from daemon: ")
        store.save(folder, record)
        raise
    record["_"] |= {"stopping": False}
    record["State"]["Error"] = ""
    store.save(folder, record)
    # here, since most docker commands start nothing and should be quick
    from beamdeploy.sandbox.docker import keeper

    keeper.launch(folder, record["Id"])


def _check(folder: str, record: Record) -> None:
    settings = place.settings(folder)
    _check_devices(record, settings)
    _check_gpus(record, settings)
    _check_ports(folder, record, settings)
    if not record["HostConfig"].get("Init"):
        check_program(folder, record["Path"])


def _check_gpus(record: Record, settings: dict[str, Any]) -> None:
    requests = record["HostConfig"]["DeviceRequests"] or []
    if any(request["Driver"] == "cdi" for request in requests):
        raise daemon('could not select device driver "cdi" with capabilities: []')
    if requests and not settings["gpu_runtime"]:
        raise daemon('could not select device driver "" with capabilities: [[gpu]]')
    count = int(settings["profile"]["count"])
    for index in gpus_of(record, count):
        if not index.isdigit() or int(index) >= count:
            hook = "error running hook #0: exit status 1, stdout: , stderr: nvidia-container-cli"
            text = f"{hook}: device error: {index}: unknown device: unknown"
            raise daemon(f"failed to create shim task: OCI runtime create failed: runc create failed: {text}")


def _check_devices(record: Record, settings: dict[str, Any]) -> None:
    count = int(settings["profile"]["count"])
    nodes = {*device_names(DEVICES, range(count))}
    for device in record["HostConfig"]["Devices"] or []:
        source = device["PathOnHost"]
        if source not in nodes and not os.path.exists(source):
            what = f'error gathering device information while adding custom device "{source}"'
            failure = daemon(f"{what}: no such file or directory")
            raise Failure(failure.text, 127)


def _check_ports(folder: str, record: Record, settings: dict[str, Any]) -> None:
    name = record["Name"].removeprefix("/")
    taken = [(held["address"], held["port"]) for held in settings["taken"]]
    for address, port in bindings(record):
        endpoint = f"{PROXY} {name} ({os.urandom(32).hex()})"
        for other in store.all_of(folder):
            theirs = bindings(other) if other["State"]["Status"] in store.RUNNING else ()
            if other["Id"] != record["Id"] and any(_same((address, port), each) for each in theirs):
                where = f"{address or '0.0.0.0'}:{port}"
                raise daemon(f"{endpoint}: Bind for {where} failed: port is already allocated")
        if any(_same((address, port), each) for each in taken):
            where = f"listen tcp4 {address or '0.0.0.0'}:{port}: bind"
            raise daemon(f"{endpoint}: Error starting userland proxy: {where}: address already in use")
        if not address.startswith("127.") and address not in (*ANYWHERE, "::1"):
            where = f"listen tcp4 {address}:{port}: bind"
            raise daemon(f"{endpoint}: Error starting userland proxy: {where}: cannot assign requested address")


def bindings(record: Record) -> Iterator[tuple[str, int]]:
    """(address, port) on the host that a container publishes."""
    for published in record["HostConfig"]["PortBindings"].values():
        yield from ((each["HostIp"], int(each["HostPort"])) for each in published if each["HostPort"])


def _same(one: tuple[str, int], other: tuple[str, int]) -> bool:
    return one[1] == other[1] and (one[0] == other[0] or one[0] in ANYWHERE or other[0] in ANYWHERE)


def check_program(folder: str, program: str) -> None:
    """Failure (127): the image holds no such program."""
    if find_program(folder, program) is None:
        where = f"stat {program}: no such file or directory" if "/" in program else "executable file not found in $PATH"
        text = f'unable to start container process: exec: "{program}": {where}: unknown'
        failure = daemon(f"failed to create shim task: OCI runtime create failed: runc create failed: {text}")
        raise Failure(failure.text, 127)
