"""The ends of containers, and their pauses: stop, kill, rm, pause, unpause, rename."""

from __future__ import annotations

import os
import signal

from beamdeploy.sandbox import groups, locks
from beamdeploy.sandbox.docker import store
from beamdeploy.sandbox.docker.failure import Failure, daemon
from beamdeploy.sandbox.docker.store import Record

GRACE = 10


def stop(folder: str, word: str, grace: int, number: int = signal.SIGTERM) -> None:
    """Stop with grace, then by force."""
    record = store.must_find(folder, word)
    if record["State"]["Status"] not in store.RUNNING:
        return
    own = store.home(folder, record["Id"])
    store.change(folder, record["Id"], lambda record: record["_"].update(stopping=True))
    groups.kill(os.path.join(own, store.ENGINE), signal.SIGCONT)
    groups.kill(os.path.join(own, store.ENGINE), number)
    if not locks.free_within(os.path.join(own, store.ALIVE), grace if grace >= 0 else 10**9):
        groups.kill(os.path.join(own, store.ENGINE), signal.SIGKILL)
        locks.free_within(os.path.join(own, store.ALIVE), 10)


def remove(folder: str, word: str, *, force: bool) -> None:
    """Remove a container; a running one only by force."""
    record = store.must_find(folder, word)
    status = record["State"]["Status"]
    if status in store.RUNNING and not force:
        how = "Stop the container before attempting removal or force remove"
        raise daemon(f"You cannot remove a {status} container {record['Id']}. {how}")
    if status in store.RUNNING:
        stop(folder, record["Id"], 5, signal.SIGKILL)
    with store.exclusive(folder):
        left = store.find(folder, record["Id"])
        if left is not None:
            store.remove(folder, left)


def rename(folder: str, word: str, name: str) -> None:
    """Give another name. Failure: it is taken, or the same."""
    try:
        with store.exclusive(folder):
            record = store.must_find(folder, word)
            if record["Name"] == f"/{name}":
                raise daemon("Renaming a container with the same name as its current name")
            store.check_name(folder, name, "Error when allocating new name: ")
            record["Name"] = f"/{name}"
            store.save(folder, record)
    except Failure as failure:
        raise Failure(f"{failure.text}\nError: failed to rename container named {word}") from None


def pause(folder: str, word: str, *, paused: bool) -> None:
    """Pause, or go on."""
    record = store.must_find(folder, word)
    status = record["State"]["Status"]
    if paused and status == "paused":
        raise daemon(f"Container {record['Id']} is already paused")
    if not paused and status != "paused":
        raise daemon(f"Container {record['Id']} is not paused")
    if status not in store.RUNNING:
        raise not_running(record)
    number = signal.SIGSTOP if paused else signal.SIGCONT
    groups.kill(os.path.join(store.home(folder, record["Id"]), store.ENGINE), number)
    store.change(folder, record["Id"], lambda record: _set_paused(record, paused=paused))


def _set_paused(record: Record, *, paused: bool) -> None:
    record["State"] |= {"Status": "paused" if paused else "running", "Paused": paused}


def not_running(record: Record) -> Failure:
    """What a container that does not run answers."""
    return daemon(f"Container {record['Id']} is not running")
