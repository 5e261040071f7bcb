"""What was done for a deployment: a line of JSON a run, and a line an image that was staged, in files on the host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from beamdeploy.errors import HostError, Problem
from beamdeploy.look.facts import Past
from beamdeploy.remote import Session

_APPEND = """
umask 077
dir=$1/$2
shift 2
mkdir -p "$dir" || exit
while [ $# -gt 0 ]; do
  printf '%s\\n' "$2" >> "$dir/$1" || exit
  shift 2
done
"""
_READ = """
for file in "$1"/${2:-*}/"$3"; do [ ! -e "$file" ] || cat "$file" || exit; done
"""


@dataclass(frozen=True)
class Entry:
    """One run on one host. `at`: UTC, by the controller's clock; `outcome`: "ready", "removed" or "failed"."""

    at: str
    by: str
    action: str
    name: str
    outcome: str
    seconds: float
    digest: str = ""
    image: str = ""
    ids: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    container: str | None = None
    completion: str = ""
    error: str = ""
    decided: Mapping[str, Any] = field(default_factory=dict)
    """What the engine settled on by itself (`startup.Decided`); empty where its start was not followed."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Phase of its start → seconds after which it was entered."""
    past: Past | None = None
    """What the next look is told of this run; None: that it was, and how it ended."""


@dataclass(frozen=True)
class Staged:
    """An image that was brought onto a host for the deployment `name`. `word`: docker removes it by that; `at`: UTC."""

    name: str
    word: str
    id: str
    at: str = ""


def append(session: Session, entry: Entry) -> tuple[Problem, ...]:
    """Write an entry down; a warning if the host would not."""
    line = json.dumps(asdict(entry), separators=(",", ":"))
    brief = json.dumps(asdict(entry.past or Past(entry.outcome)), separators=(",", ":"))
    try:
        return _added(session, entry.name, "the history", {"history.jsonl": line, "runs.jsonl": brief})
    except HostError as error:
        return (_unwritable(session, "the history", error.problems[0].what),)


def note_staged(session: Session, staged: Staged) -> tuple[Problem, ...]:
    """Write down what was staged; a warning if the host would not, for `prune` takes it for another's then."""
    line = json.dumps(asdict(staged), separators=(",", ":"))
    return _added(session, staged.name, "what was staged", {"staged.jsonl": line})


def _added(session: Session, name: str, what: str, lines: Mapping[str, str]) -> tuple[Problem, ...]:
    """Add a line to each of these files of a deployment; a warning if the host would not."""
    words = (word for file_and_line in lines.items() for word in file_and_line)
    result = session.script(_APPEND, (session.host.state_folder, name, *words), timeout=60)
    return () if result.ok else (_unwritable(session, what, result.err),)


def _unwritable(session: Session, what: str, why: str) -> Problem:
    remedy = f"Make {session.host.state_folder} writable on the host, or set state_dir in the inventory."
    said = f"{what} could not be written down: {why.strip()[-200:]}"
    return Problem(said, remedy, f"{session.host.name}: record", level="warning")


def read(session: Session, name: str | None) -> tuple[Entry, ...]:
    """The entries of one deployment, or of all, oldest first. HostError: they cannot be read."""
    return tuple(sorted(_entries(_lines(session, name, "history.jsonl")), key=lambda entry: entry.at))


def read_staged(session: Session, name: str | None) -> tuple[Staged, ...]:
    """What was staged for one deployment, or for all. HostError: it cannot be read."""
    lines = _lines(session, name, "staged.jsonl").splitlines()
    return tuple(dict.fromkeys(found for line in lines if (found := _staged(line)) is not None))


def _lines(session: Session, name: str | None, file: str) -> str:
    result = session.script(_READ, (session.host.state_folder, name or "", file), timeout=60)
    if not result.ok:
        raise HostError(Problem(f"the history cannot be read: {result.err.strip()[-200:]}", "", session.host.name))
    return result.out


def _staged(line: str) -> Staged | None:
    """None: the line is cut, or another's."""
    try:
        told = json.loads(line)
        return Staged(str(told["name"]), str(told["word"]), str(told["id"]), str(told.get("at", "")))
    except (ValueError, TypeError, KeyError):
        return None


def _entries(text: str) -> Iterator[Entry]:
    """A line that is cut (a full disk, a lost host) is left out."""
    known = {each.name for each in fields(Entry)}
    for line in text.splitlines():
        try:
            told: dict[str, Any] = json.loads(line)
            data: dict[str, Any] = {key: value for key, value in told.items() if key in known}
            yield Entry(**{**data, "words": tuple(data["words"]), "ids": tuple(data.get("ids", ())), "past": None})
        except (ValueError, TypeError, AttributeError, KeyError):
            continue
