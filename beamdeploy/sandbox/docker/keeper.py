"""The keeper of one container: a background process that starts it, writes its log, restarts it and records its end."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import IO

from beamdeploy.sandbox import groups, locks, place
from beamdeploy.sandbox.docker import store
from beamdeploy.sandbox.docker.inside import Inside, inside
from beamdeploy.sandbox.docker.store import Record

LOOK_SECONDS = 0.5
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 60.0


def launch(folder: str, identifier: str) -> None:
    """Start a keeper and return when its container runs. RuntimeError: it does not."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _detach(folder, identifier, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    answer = os.read(ours, 1)
    os.close(ours)
    if not answer:
        raise RuntimeError(f"the keeper of {identifier[:12]} ended; see its keeper.log")


def _detach(folder: str, identifier: str, report: int) -> None:
    own = store.home(folder, identifier)
    for descriptor in range(3, 256):
        if descriptor != report:
            try:
                os.close(descriptor)
            except OSError:
                continue
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(os.path.join(own, "keeper.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        keep(folder, identifier, report)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        groups.kill(os.path.join(own, store.ENGINE), signal.SIGKILL)
        raise


def keep(folder: str, identifier: str, report: int) -> None:
    """Run the container until it has ended for good."""
    own = store.home(folder, identifier)
    if locks.take(os.path.join(own, store.ALIVE)) is None:
        return
    record = place.read(own, store.RECORD)
    assert record is not None
    held, port = _hold_port()
    world = inside(folder, record, port)
    pause = FIRST_PAUSE
    started = False
    while True:
        began = time.monotonic()
        code = _run(folder, record, world, port, report if not started else None)
        started = True
        after = store.change(folder, identifier, partial(_record_end, code))
        if after is None or after["State"]["Status"] == "exited":
            break
        # Docker starts its pauses anew when a container ran for ten seconds
        pause = FIRST_PAUSE if time.monotonic() - began > 10 else min(pause * 2, LONGEST_PAUSE)
        if not _wait(folder, identifier, pause):
            break
    if held is not None:
        held.close()
    # one that is attached is removed by whoever shows its end
    if after is not None and after["HostConfig"]["AutoRemove"] and not after["Config"]["AttachStdout"]:
        with store.exclusive(folder):
            store.remove(folder, after)


def _hold_port() -> tuple[socket.socket | None, int]:
    """A free port that nobody else gets while we hold it; the engine may still listen there."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port = int(holder.getsockname()[1])
    if sys.platform == "linux":
        return holder, port
    # BSD's SO_REUSEADDR does not let two sockets have one address
    holder.close()
    return None, port


def _run(folder: str, record: Record, world: Inside, port: int, report: int | None) -> int:
    """One run from start to end; its exit code as Docker counts it."""
    own = store.home(folder, record["Id"])
    if world.program is None:
        _log(own, "stderr", f"[FATAL tini (7)] exec {record['Path']} failed: No such file or directory\n", {})
        store.change(folder, record["Id"], lambda record: store.began(record, 0))
        _report(report)
        return 127
    process = groups.start(
        (world.program, *world.arguments),
        os.path.join(own, store.ENGINE),
        env=world.env,
        cwd=own,
        stdin=subprocess.DEVNULL,
    )

    def runs(record: Record) -> None:
        store.began(record, process.pid)
        record["_"]["port"] = port

    store.change(folder, record["Id"], runs)
    _report(report)
    _pump(folder, own, process, world.names)
    code = process.wait()
    return 128 - code if code < 0 else code


def _report(report: int | None) -> None:
    if report is not None:
        os.write(report, b"1")
        os.close(report)


def _pump(folder: str, own: str, process: subprocess.Popen[bytes], names: Mapping[str, str]) -> None:
    """Write what it says until it has ended; end it when the sandbox is over."""
    rest = {"stdout": b"", "stderr": b""}
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ, name)
        while selector.get_map():
            events = selector.select(LOOK_SECONDS)
            for key, _ in events:
                if not _take(own, key.data, key.fileobj, rest, names):
                    selector.unregister(key.fileobj)
            if place.is_over(folder, time.time()):
                groups.end(os.path.join(own, store.ENGINE), 2)
                process.kill()
                return
            if not events and process.poll() is not None:
                return


def _take(own: str, name: str, pipe: object, rest: dict[str, bytes], names: Mapping[str, str]) -> bool:
    """Log the whole lines of what can be read; False at the end."""
    descriptor = pipe.fileno()  # type: ignore[attr-defined]  # a selector's file object has no better type
    received = os.read(descriptor, 1 << 16)
    *lines, rest[name] = (rest[name] + received).split(b"\n")
    for line in lines:
        _log(own, name, line.decode(errors="replace") + "\n", names)
    if not received and rest[name]:
        _log(own, name, rest[name].decode(errors="replace"), names)
    return bool(received)


def _log(own: str, stream: str, text: str, names: Mapping[str, str]) -> None:
    for real, shown in names.items():
        text = text.replace(real, shown)
    entry = json.dumps({"log": text, "stream": stream, "time": store.now()}, ensure_ascii=False)
    with _open_log(own) as file:
        file.write(entry.encode() + b"\n")


def _open_log(own: str) -> IO[bytes]:
    return open(os.path.join(own, store.LOG), "ab", buffering=0)


def _record_end(code: int, record: Record) -> None:
    policy = record["HostConfig"]["RestartPolicy"]
    again = policy["Name"] in ("always", "unless-stopped") or (
        policy["Name"] == "on-failure"
        and code != 0
        and (policy["MaximumRetryCount"] == 0 or record["RestartCount"] < policy["MaximumRetryCount"])
    )
    store.ended(record, code)
    if again and not record["_"].get("stopping"):
        record["RestartCount"] += 1
        record["State"] |= {"Status": "restarting", "Running": True, "Restarting": True}


def _wait(folder: str, identifier: str, seconds: float) -> bool:
    """The pause before another run; False: it was stopped or removed meanwhile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        record = place.read(store.home(folder, identifier), store.RECORD)
        if record is None or place.is_over(folder, time.time()):
            return False
        if record["_"].get("stopping"):
            store.change(folder, identifier, lambda record: store.ended(record, record["State"]["ExitCode"]))
            return False
        time.sleep(0.05)
    return True
