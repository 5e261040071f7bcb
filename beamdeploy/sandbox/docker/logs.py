"""`docker logs`: what a container has said and goes on saying."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from beamdeploy.sandbox import place
from beamdeploy.sandbox.docker import store
from beamdeploy.sandbox.docker.failure import daemon
from beamdeploy.sandbox.docker.words import Asked

PAUSE = 0.05


def logs(folder: str, asked: Asked) -> int:
    """Print the log, stdout and stderr each to its own."""
    record = store.must_find(folder, asked.rest[0])
    tail = asked.last("tail", "all") or "all"
    if asked.on("follow"):
        with suppress(FileNotFoundError):
            os.rename(os.path.join(folder, place.DROP), os.path.join(folder, place.DROPPING))
    show(
        folder,
        record["Id"],
        int(tail) if tail.isdigit() else None,
        follow=asked.on("follow"),
        times=asked.on("timestamps"),
        since=moment(asked.last("since") or "0"),
    )
    return 0


def moment(text: str) -> float:
    """Seconds since the epoch: a date, seconds, or how long ago, as `--since` takes them. Failure: none of these."""
    if match := re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(?:Z|([+-]\d\d):(\d\d))?", text):
        offset = int(f"{match[3] or 0}") * 3600 + int(f"{(match[3] or '+')[0]}{match[4] or 0}") * 60
        return datetime.fromisoformat(f"{match[1]}+00:00").timestamp() + float(match[2] or 0) - offset
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if re.fullmatch(r"(\d+[hms])+", text):
        units = {"h": 3600, "m": 60, "s": 1}
        return time.time() - sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))
    raise daemon(f'invalid value for "since": failed to parse value as time or duration: "{text}"')


def show(
    folder: str, identifier: str, tail: int | None, *, follow: bool, times: bool = False, since: float = 0
) -> None:
    """Print the last lines, or all; then go on until the container has ended, or print no more."""
    path = os.path.join(store.home(folder, identifier), store.LOG)
    lines, end = _read(path, 0)
    lines = [entry for entry in lines if since == 0 or moment(entry["time"]) >= since]
    for entry in lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]:
        _print(entry, times=times)
    while follow:
        over = not _lives(folder, identifier)
        lines, end = _read(path, end)
        for entry in lines:
            _print(entry, times=times)
        if over:
            return
        time.sleep(PAUSE)


def _lives(folder: str, identifier: str) -> bool:
    record = place.read(store.home(folder, identifier), store.RECORD)
    if record is None or record["State"]["Status"] not in store.RUNNING:
        return False
    return any(each["Id"] == identifier and each["State"]["Status"] in store.RUNNING for each in store.all_of(folder))


def _read(path: str, start: int) -> tuple[list[dict[str, Any]], int]:
    """The whole lines from there on, and where the next will be."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            text = file.read()
    except FileNotFoundError:
        return [], start
    whole = text[: text.rfind(b"\n") + 1]
    return list(_entries(whole)), start + len(whole)


def _entries(text: bytes) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in text.splitlines() if line)


def _print(entry: dict[str, Any], *, times: bool) -> None:
    stream = sys.stderr if entry["stream"] == "stderr" else sys.stdout
    stream.write(f"{entry['time']} {entry['log']}" if times else entry["log"])
    stream.flush()
