"""The lists: `docker ps` and `docker images`, as tables, ids or by a template."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from beamdeploy.sandbox.docker import images, store, template
from beamdeploy.sandbox.docker.failure import daemon
from beamdeploy.sandbox.docker.store import Record
from beamdeploy.sandbox.docker.words import Asked

STATES = ("created", "restarting", "running", "removing", "paused", "exited", "dead")
FILTERS = ("name", "id", "label", "status", "volume", "exited", "ancestor", "publish", "before", "since", "network")
PS = ("CONTAINER ID", "IMAGE", "COMMAND", "CREATED", "STATUS", "PORTS", "NAMES")
IMAGES = ("REPOSITORY", "TAG", "IMAGE ID", "CREATED", "SIZE")


def ps(folder: str, asked: Asked) -> str:
    """What `docker ps` prints. Failure: a filter that docker does not know."""
    wanted = _filters(asked.all("filter"))
    everything = asked.on("all") or "status" in wanted or "exited" in wanted
    records = [
        record
        for record in store.all_of(folder)
        if (everything or record["State"]["Status"] in store.RUNNING) and _passes(record, wanted)
    ]
    rows = [row(record, whole=asked.on("no-trunc")) for record in records]
    columns = [
        [each[key] for key in ("ID", "Image", "Command", "RunningFor", "Status", "Ports", "Names")] for each in rows
    ]
    labels = [record["Config"]["Labels"] for record in records]
    return _printed(asked, rows, columns, PS, labels)


def _filters(words: Sequence[str]) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in FILTERS:
            raise daemon(f"Invalid filter '{key}'")
        if key == "status" and value not in STATES:
            raise daemon(f"Invalid filter 'status={value}'")
        wanted.setdefault(key, []).append(value)
    return wanted


def _passes(record: Record, wanted: Mapping[str, Sequence[str]]) -> bool:
    """Any of the values of a filter, all filters; labels must all be there."""
    for key, values in wanted.items():
        found = (_matches(record, key, value) for value in values)
        if not (all(found) if key == "label" else any(found)):
            return False
    return True


def _matches(record: Record, key: str, value: str) -> bool:
    name = record["Name"]
    if key == "name":
        return any(re.search(value, each) is not None for each in (name, name[1:]))
    if key == "id":
        return re.search(value, record["Id"]) is not None
    if key == "label":
        label, equals, wanted = value.partition("=")
        labels = record["Config"]["Labels"]
        return label in labels and (not equals or labels[label] == wanted)
    if key == "status":
        return bool(record["State"]["Status"] == value)
    if key == "exited":
        return record["State"]["Status"] == "exited" and str(record["State"]["ExitCode"]) == value
    if key == "volume":
        return any(value in (mount["Source"], mount["Destination"]) for mount in record["Mounts"])
    if key == "ancestor":
        return value in (record["Config"]["Image"], record["Image"], record["Image"].removeprefix("sha256:"))
    return True


def row(record: Record, *, whole: bool) -> dict[str, Any]:
    """One container as `docker ps` shows it."""
    command = _command(record)
    mounts = ",".join(mount["Source"] if whole else _short(mount["Source"], 15) for mount in record["Mounts"])
    return {
        "Command": f'"{command if whole else _short(command, 20)}"',
        "CreatedAt": _date(record["Created"]),
        "ID": record["Id"] if whole else record["Id"][:12],
        "Image": record["Config"]["Image"],
        "Labels": ",".join(f"{key}={value}" for key, value in record["Config"]["Labels"].items()),
        "LocalVolumes": "0",
        "Mounts": mounts,
        "Names": record["Name"].removeprefix("/"),
        "Networks": "bridge",
        "Platform": None,
        "Ports": _ports(record),
        "RunningFor": f"{_ago(record['Created'])} ago",
        "Size": "0B (virtual 21.5GB)",
        "State": record["State"]["Status"],
        "Status": _status(record),
    }


def _command(record: Record) -> str:
    words = [record["Path"], *record["Args"]]
    return " ".join(word if re.fullmatch(r"[^\s'\"]+", word) else shlex.quote(word) for word in words)


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _ports(record: Record) -> str:
    found = []
    for inside, bindings in record["NetworkSettings"]["Ports"].items():
        for each in bindings or ():
            address = f"[{each['HostIp']}]" if ":" in each["HostIp"] else each["HostIp"]
            found.append(f"{address}:{each['HostPort']}->{inside}")
    return ", ".join(found)


def _status(record: Record) -> str:
    state = record["State"]
    if state["Status"] == "created":
        return "Created"
    if state["Status"] == "exited":
        return f"Exited ({state['ExitCode']}) {_ago(state['FinishedAt'])} ago"
    if state["Status"] == "restarting":
        return f"Restarting ({state['ExitCode']}) {_ago(state['FinishedAt'])} ago"
    return f"Up {_ago(state['StartedAt'])}" + (" (Paused)" if state["Status"] == "paused" else "")


def _seconds(moment: str) -> int:
    return int(datetime.fromisoformat(f"{moment[:19]}+00:00").timestamp())


def _date(moment: str) -> str:
    return f"{moment[:10]} {moment[11:19]} +0000 UTC"


def _ago(moment: str) -> str:
    """Docker's words for a span of time."""
    seconds = int(time.time()) - _seconds(moment)
    if seconds < 1:
        return "Less than a second"
    if seconds < 60:
        return "1 second" if seconds == 1 else f"{seconds} seconds"
    minutes = seconds // 60
    if minutes < 60:
        return "About a minute" if minutes == 1 else f"{minutes} minutes"
    hours = (minutes + 30) // 60
    if hours < 48:
        return "About an hour" if hours == 1 else f"{hours} hours"
    return f"{hours // 24} days"


def list_images(folder: str, asked: Asked) -> str:
    """What `docker images` prints."""
    rows: list[dict[str, Any]] = []
    for image in images.all_of(folder):
        rows += _image_rows(image, asked)
    wanted = [word.partition("=")[2] for word in asked.all("filter") if word.startswith("reference=")]
    rows = [each for each in rows if _is_wanted(each, (*asked.rest, *wanted))]
    if asked.on("quiet"):
        return "".join(f"{identifier}\n" for identifier in dict.fromkeys(each["ID"] for each in rows))
    columns = [[each[key] for key in ("Repository", "Tag", "ID", "CreatedSince", "Size")] for each in rows]
    return _printed(asked, rows, columns, IMAGES, [{} for _ in rows])


def _image_rows(image: images.Image, asked: Asked) -> Iterator[dict[str, Any]]:
    """One row for each tag, and one for each digest of a repository that has no tag here."""
    tags = [tag.rpartition(":")[::2] for tag in image["RepoTags"]]
    digests = [digest.partition("@")[::2] for digest in image["RepoDigests"]]
    shown = asked.on("digests") or any("@" in word for word in asked.rest)
    for name, tag in tags:
        digest = next((each for repository, each in digests if repository == name), "<none>")
        yield _image_row(image, name, tag, digest if shown else "<none>", asked)
    tagged = {name for name, _ in tags}
    for name, digest in digests:
        if name not in tagged:
            yield _image_row(image, name, "<none>", digest if shown else "<none>", asked)


def _image_row(image: images.Image, name: str, tag: str, digest: str, asked: Asked) -> dict[str, Any]:
    return {
        "Containers": "N/A",
        "CreatedAt": _date(image["Created"]),
        "CreatedSince": f"{_ago(image['Created'])} ago",
        "Digest": digest,
        "ID": image["Id"] if asked.on("no-trunc") else image["Id"][7:19],
        "Repository": name,
        "SharedSize": "N/A",
        "Size": "21.5GB",
        "Tag": tag,
        "UniqueSize": "N/A",
        "VirtualSize": "21.47GB",
    }


def _is_wanted(row: Mapping[str, Any], words: Sequence[str]) -> bool:
    for word in words:
        if word.startswith("sha256:"):
            return bool(row["ID"] == word)
        name, tag, digest = images.parse(word)
        if digest is not None and tag is not None:
            return False
        fits = tag in (None, row["Tag"]) and digest in (None, row["Digest"])
        if name != row["Repository"] or not fits:
            return False
    return True


def _printed(
    asked: Asked,
    rows: Sequence[dict[str, Any]],
    columns: Sequence[Sequence[str]],
    head: Sequence[str],
    labels: Sequence[Mapping[str, str]],
) -> str:
    form = asked.last("format")
    if asked.on("quiet"):
        return "".join(f"{each['ID']}\n" for each in rows)
    if form is None or form == "table":
        return _table(head, columns)
    if form in ("json", "{{json .}}"):
        return "".join(_escaped(each) + "\n" for each in rows)
    filled = (
        template.fill(form, each, {"Label": lambda name, held=held: held.get(name, "")})  # type: ignore[misc]
        for each, held in zip(rows, labels, strict=True)
    )
    return "".join(f"{line}\n" for line in filled)


def _escaped(row: Mapping[str, Any]) -> str:
    """Docker's rows are JSON that is safe in HTML."""
    text = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) + 3 for column in range(len(head))]
    text = (
        "".join(cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=False)) + line[-1] for line in lines
    )
    return "".join(f"{line}\n" for line in text)
