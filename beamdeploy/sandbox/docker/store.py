"""Containers as files: one folder each with its record, log and the locks that tell whether it lives."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from beamdeploy.sandbox import groups, locks, place
from beamdeploy.sandbox.docker.failure import daemon

Record = dict[str, Any]
"""What `docker inspect` shows, and under "_" what only the sandbox knows."""

RECORD = "record.json"
LOG = "log"
ALIVE = "alive"
ENGINE = "engine"
RUNNING = ("running", "paused", "restarting")
NEVER = "0001-01-01T00:00:00Z"


def now() -> str:
    """The time as Docker writes it."""
    nanoseconds = time.time_ns()
    seconds, rest = divmod(nanoseconds, 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09}Z"


def exclusive(folder: str) -> AbstractContextManager[None]:
    """One docker command at a time decides."""
    return locks.locked(os.path.join(folder, place.DOCKER_LOCK))


def home(folder: str, identifier: str) -> str:
    """The folder of one container."""
    return os.path.join(folder, place.CONTAINERS, identifier)


def save(folder: str, record: Record) -> None:
    """Write a record, a new one too."""
    os.makedirs(home(folder, record["Id"]), exist_ok=True)
    place.write(home(folder, record["Id"]), RECORD, record)


def change(folder: str, identifier: str, how: Callable[[Record], None]) -> Record | None:
    """Change a record while nobody else does; None: the container is gone."""
    with exclusive(folder):
        record = place.read(home(folder, identifier), RECORD)
        if record is not None:
            how(record)
            save(folder, record)
        return record


def all_of(folder: str) -> list[Record]:
    """Every container, the newest first."""
    root = os.path.join(folder, place.CONTAINERS)
    found = (place.read(os.path.join(root, name), RECORD) for name in os.listdir(root))
    records = [_true(folder, record) for record in found if record is not None]
    return sorted(records, key=lambda record: str(record["Created"]), reverse=True)


def _true(folder: str, record: Record) -> Record:
    """The record, put right where whoever kept it was killed."""
    own = home(folder, record["Id"])
    if record["State"]["Status"] not in RUNNING or locks.held(os.path.join(own, ALIVE)):
        return record
    # its keeper writes the end before it lets go
    fresh = place.read(own, RECORD)
    if fresh is None or fresh["State"]["Status"] not in RUNNING:
        return fresh or record
    groups.kill(os.path.join(own, ENGINE), signal.SIGKILL)
    ended(fresh, 137)
    save(folder, fresh)
    return fresh


def find(folder: str, word: str) -> Record | None:
    """The container of that id, name, or beginning of an id; None: there is none."""
    records = all_of(folder)
    for record in records:
        if word in (record["Id"], record["Name"].removeprefix("/"), record["Name"]):
            return record
    begins = [record for record in records if word and record["Id"].startswith(word)]
    return begins[0] if len(begins) == 1 else None


def must_find(folder: str, word: str) -> Record:
    """As `find`. Failure: there is none."""
    record = find(folder, word)
    if record is None:
        raise daemon(f"No such container: {word}")
    return record


def check_name(folder: str, name: str, prefix: str = "") -> None:
    """Failure: the name is malformed or taken."""
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name):
        raise daemon(f"Invalid container name ({name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed")
    for record in all_of(folder):
        if record["Name"] == f"/{name}":
            raise daemon(
                f'{prefix}Conflict. The container name "/{name}" is already in use by container "{record["Id"]}". '
                "You have to remove (or rename) that container to be able to reuse that name."
            )


def began(record: Record, pid: int) -> None:
    """It runs."""
    record["State"] |= {
        "Status": "running",
        "Running": True,
        "Paused": False,
        "Restarting": False,
        "Pid": pid,
        "ExitCode": 0,
        "Error": "",
        "StartedAt": now(),
        "FinishedAt": record["State"]["FinishedAt"],
    }
    record["NetworkSettings"]["Ports"] = published(record)


def ended(record: Record, code: int) -> None:
    """It does not run any more."""
    record["State"] |= {"Status": "exited", "Running": False, "Paused": False, "Restarting": False, "Pid": 0}
    record["State"] |= {"ExitCode": code, "FinishedAt": now()}
    record["NetworkSettings"]["Ports"] = {}


def published(record: Record) -> dict[str, Any]:
    """The bindings as a running container shows them."""
    shown = {}
    for inside, bindings in record["HostConfig"]["PortBindings"].items():
        shown[inside] = [{"HostIp": each["HostIp"] or "0.0.0.0", "HostPort": each["HostPort"]} for each in bindings]
    return shown


def remove(folder: str, record: Record) -> None:
    """Forget a container that does not run."""
    own = home(folder, record["Id"])
    # the record first: without it the container is gone, whatever is left
    os.unlink(os.path.join(own, RECORD))
    # here, since most docker commands remove nothing and should be quick
    import shutil

    shutil.rmtree(own, ignore_errors=True)


def visible(record: Record) -> Record:
    """What inspect shows."""
    return {key: value for key, value in record.items() if key != "_"}
