"""The sha256 of every file of staged folders, made on the host and remembered there."""

from __future__ import annotations

import base64
import posixpath
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources

from beamdeploy import look
from beamdeploy.errors import HostError, Problem
from beamdeploy.inventory import Host
from beamdeploy.lock import LockedFile
from beamdeploy.look.facts import Facts
from beamdeploy.look.parse import parse
from beamdeploy.remote import Session
from beamdeploy.weights.meter import progress

SECONDS = 24 * 3600
Say = Callable[[str, str], None]


@dataclass(frozen=True)
class Hashes:
    """One folder: its files by path below it, and those that could not be hashed with what the tool said.

    `remembered`: how many bytes were not read again, since their files have not changed.
    """

    files: Mapping[str, LockedFile]
    unread: Mapping[str, str]
    remembered: int = 0

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files.values())


@dataclass(frozen=True)
class Deep:
    """What hashing gave: each folder by its path (None: it cannot be entered), and the look made beside it."""

    folders: Mapping[str, Hashes | None]
    facts: Facts | None
    unkept: str | None = None
    """Why nothing could be remembered on the host."""


@dataclass
class _Told:
    """The lines so far."""

    say: Say
    started: float = field(default_factory=time.monotonic)
    look: list[str] = field(default_factory=list)
    roots: dict[int, str] = field(default_factory=dict)
    files: list[tuple[int, int, str]] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    sums: dict[str, str] = field(default_factory=dict)
    total: int = 0
    known: int = 0
    done: int = 0
    remembered: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    unkept: str | None = None
    ended: bool = False

    def take(self, kind: str, cells: Sequence[str]) -> None:
        if kind == "L":
            self.look.append(cells[0])
        elif kind == "D":
            self.roots[int(cells[0])] = cells[1]
        elif kind == "F":
            self.files.append((int(cells[0]), int(cells[1]), cells[2]))
            if cells[2] not in self.sizes:
                self.total += int(cells[1])
            self.sizes[cells[2]] = int(cells[1])
        elif kind in ("K", "H"):
            self._sum(kind, cells[0], cells[1])
        elif kind == "E":
            self.said.append(cells[0])
        elif kind == "M":
            self.unkept = cells[0]
        elif kind == "Z":
            self.ended = True
            # of what is remembered nothing was said: while it is told, the total is not known yet
            if self.known == self.done:
                self._say()

    def _sum(self, kind: str, sum: str, path: str) -> None:
        self.sums[path] = sum
        self.done += self.sizes.get(path, 0)
        if kind == "K":
            self.known += self.sizes.get(path, 0)
            self.remembered.add(path)
            self.started = time.monotonic()
        else:
            self._say()

    def _say(self) -> None:
        self.say("hash", progress(self.done, self.total, time.monotonic() - self.started, self.known))


def hash_folders(
    session: Session,
    host: Host,
    folders: Sequence[str],
    say: Say,
    *,
    always: bool = False,
    processes: int | None = None,
    question: look.Question | None = None,
) -> Deep:
    """Hash the folders (below the host's model_dir, or absolute) on the host, and look in the same round trip.

    `always`: what is remembered is not believed. HostError: it did not come to its end.
    """
    nonce = secrets.token_hex(8)
    paths = [posixpath.join(host.model_dir or "/", folder) for folder in folders]
    asked = (look.script(), *look.words(question, nonce)) if question else ()
    mode = "always" if always else "auto"
    args = (nonce, host.state_folder, mode, str(processes or ""), str(len(paths)), *paths, *asked)
    told = _Told(say)

    def line(text: str) -> None:
        mark, _, rest = text.partition(" ")
        kind, *cells = rest.split("\t", 3)
        if mark == f"@@{nonce}":
            told.take(kind, cells)
        else:
            told.said.append(text)

    result = session.follow(("sh", "-c", script(), "deep", *args), line, timeout=SECONDS)
    if not told.ended:
        raise HostError(_cut(host, result.exit, told.said))
    facts = _facts("".join(told.look), nonce, question) if question else None
    return Deep({folder: _hashes(told, number) for number, folder in enumerate(folders)}, facts, told.unkept)


def _facts(encoded: str, nonce: str, question: look.Question) -> Facts:
    answer = base64.b64decode(encoded).decode("utf-8", "replace")
    return parse(answer, nonce, question.docker, question.folders, question.ports)


def script() -> str:
    """The text that hashes: POSIX sh."""
    return resources.files(__package__ or "").joinpath("deep.sh").read_text("utf-8")


def _hashes(told: _Told, number: int) -> Hashes | None:
    root = told.roots.get(number)
    if root is None:
        return None
    files: dict[str, LockedFile] = {}
    unread: dict[str, str] = {}
    remembered = 0
    for _, size, path in (each for each in told.files if each[0] == number):
        name = path.removeprefix(root.rstrip("/") + "/")
        if path in told.sums:
            files[name] = LockedFile(size, told.sums[path])
            remembered += size if path in told.remembered else 0
        else:
            unread[name] = next((text for text in told.said if path in text), "")
    return Hashes(files, unread, remembered)


def _cut(host: Host, exit: int | None, said: Sequence[str]) -> Problem:
    what = f"hashing ended before all files were read (exit {exit}): {' / '.join(said[-3:]) or 'nothing was said'}"
    return Problem(what, "run the same again: it goes on where it stopped", f"{host.name}: hash")
