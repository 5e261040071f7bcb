"""One weights folder of one host: looked at, filled, verified, and only then given its name."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from beamdeploy import errors
from beamdeploy.errors import HostError, Problem
from beamdeploy.hostlock import locked_folder
from beamdeploy.inventory import Host
from beamdeploy.lock import LockedFolder, wanted_folders
from beamdeploy.look.facts import Disk
from beamdeploy.recipe import Recipe
from beamdeploy.remote import Session
from beamdeploy.render import Spec
from beamdeploy.run import now, started_by
from beamdeploy.verify import question
from beamdeploy.weights import hub
from beamdeploy.weights.hashing import Hashes, hash_folders
from beamdeploy.weights.holders import HERE, Borrowed, Holders
from beamdeploy.weights.parts import Load, Say, lines, part
from beamdeploy.weights.staging import human
from beamdeploy.weights.transfer import Place, from_here, from_host, from_hub

NEAR = 1 << 20
"""Bytes that a file system keeps for itself, about, when a folder is filled."""


@dataclass(frozen=True)
class From:
    """Where the weights come from: the hub, a host of the inventory, or a folder of this machine."""

    host: Host | None = None
    path: str | None = None

    @property
    def hub(self) -> bool:
        return self.host is None and self.path is None


@dataclass(frozen=True)
class Manner:
    """How: connections a host, seconds to wait for another run, and the environment that names hub and token.

    `hf_image`: in which `hf` runs on hosts that have none; None: the recipe's own.
    """

    streams: int = 1
    lock_wait: float = 0
    environ: Mapping[str, str] = field(default_factory=dict)
    hf_image: str | None = None


@dataclass(frozen=True)
class Staging:
    """What all hosts of a run share. `wanted`: folder → its files; `sessions` and `roots` grow as hosts are reached."""

    recipe: Recipe
    wanted: Mapping[str, LockedFolder]
    source: From
    manner: Manner
    holders: Holders
    sessions: dict[str, Session]
    roots: dict[str, str]
    here: Session


@dataclass(frozen=True)
class Found:
    """A folder of a host against what is wanted: names that are right at its place, right or begun beside it, wrong."""

    place: Place
    right: tuple[str, ...]
    staged: tuple[str, ...]
    wrong: tuple[str, ...]
    begun: int
    disk: Disk | None


@dataclass(frozen=True)
class Filled:
    """What came of a folder: bytes that had to move (None: it was complete), and what there is to tell."""

    moved: int | None
    problems: tuple[Problem, ...] = ()


def stage_folder(spec: Spec, shared: Staging, sender: Borrowed, path: str, say: Say) -> Filled:
    """Bring what lacks, under the folder's lock. HostError: it cannot be, or another run works on it."""
    session, wanted = shared.sessions[spec.host.name], shared.wanted[path]
    place = Place(posixpath.join(str(spec.host.model_dir), path), session.host.state_folder)
    owner = f"{started_by()} since {now()}: stage {shared.recipe.file}"
    with ExitStack() as stack:
        try:
            lock = locked_folder(session, place.final, owner, wait=shared.manner.lock_wait, say=say)
            stack.enter_context(lock)
            unlocked = None
        except HostError as error:
            if error.exit == errors.LOCKED:
                raise
            unlocked = error  # a folder that is complete may lie where nothing can be written
        found = _found(session, spec, place, wanted, say)
        if len(found.right) == len(wanted.files):
            return Filled(None)
        if unlocked is not None:
            raise unlocked
        _check_room(session, found, wanted)
        return _filled(session, shared, sender, path, found, say)


def _filled(session: Session, shared: Staging, sender: Borrowed, path: str, found: Found, say: Say) -> Filled:
    moved, told = _fill(session, shared, sender, path, found, say)
    aside = _finish(session, found.place)
    kept = (_kept_aside(session, found.place, aside),) if aside else ()
    return Filled(moved, (*told, *kept))


def _found(session: Session, spec: Spec, place: Place, wanted: LockedFolder, say: Say) -> Found:
    """Hash what is at the folder's place and beside it; what was hashed before is not read again."""
    folders = (place.final, place.unfinished)
    deep = hash_folders(session, spec.host, folders, say, question=question(spec))
    at, beside = (deep.folders[folder] for folder in folders)
    right, _ = _sorted(at, wanted)
    staged, wrong = _sorted(beside, wanted)
    begun = sum(beside.files[name].size for name in beside.files if name not in wrong) if beside else 0
    disk = deep.facts.disks.get(str(spec.host.model_dir)) if deep.facts else None
    return Found(place, right, staged, wrong, begun, disk)


def _sorted(hashes: Hashes | None, wanted: LockedFolder) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that are right, and those that are wrong: of another content, or too long to be gone on with."""
    files = hashes.files if hashes else {}
    right = tuple(name for name, one in wanted.files.items() if files.get(name) == one)
    wrong = tuple(n for n, one in wanted.files.items() if n in files and n not in right and files[n].size >= one.size)
    return right, wrong


def _check_room(session: Session, found: Found, wanted: LockedFolder) -> None:
    """HostError (BLOCKED): what lacks does not fit."""
    names = [name for name in wanted.files if name not in found.right and name not in found.staged]
    lacking = sum(wanted.files[name].size for name in names) - max(0, found.begun - _bytes(wanted, found.staged))
    disk = found.disk
    if disk is not None and disk.free_bytes < lacking + NEAR:
        what = (
            f"{found.place.final} lacks {human(lacking)} ({lacking} bytes), and its file system has "
            f"{human(disk.free_bytes)} ({disk.free_bytes} bytes) free"
        )
        raise HostError(
            Problem(what, "free room there", f"{session.host.name}: stage", rule="BD224"), exit=errors.BLOCKED
        )
    if disk is not None and disk.free_inodes is not None and disk.free_inodes < len(names) + 10:
        what = f"{found.place.final} lacks {len(names)} files, and its file system has {disk.free_inodes} inodes free"
        remedy = "remove small files there: it is out of inodes, not of bytes"
        raise HostError(Problem(what, remedy, f"{session.host.name}: stage", rule="BD224"), exit=errors.BLOCKED)


def _bytes(wanted: LockedFolder, names: tuple[str, ...]) -> int:
    return sum(wanted.files[name].size for name in names)


def _fill(
    session: Session, shared: Staging, sender: Borrowed, path: str, found: Found, say: Say
) -> tuple[int, tuple[Problem, ...]]:
    """Bring what lacks and verify it; what came wrong is brought once more. The bytes that had to move, and notes."""
    place, wanted = found.place, shared.wanted[path]
    marker = f"{path} of {shared.recipe.name}"
    part(session, "begin", place.work, place.final, place.unfinished, marker, stdin=lines(found.right))
    _drop(session, place, found.wrong)
    right = tuple({*found.right, *found.staged})
    moved, told = 0, tuple[Problem, ...]()
    for _ in range(2):
        names = tuple(name for name in wanted.files if name not in right)
        if not names:
            return moved, told
        moved += _bytes(wanted, names)
        told = _bring(session, shared, sender, path, place, names, say)
        hashes = hash_folders(session, session.host, (place.unfinished,), say).folders[place.unfinished]
        right, wrong = _sorted(hashes, wanted)
        if len(right) == len(wanted.files):
            return moved, told
        _drop(session, place, wrong)
    lacking = [name for name in wanted.files if name not in right]
    what = f"{len(lacking)} files came twice with another content than is wanted, such as {lacking[0]}"
    remedy = f"verify the source (beamdeploy verify --deep); nothing was given its name: {place.unfinished}"
    raise HostError(Problem(what, remedy, f"{session.host.name}: stage ({session.host.state_folder})"))


def _drop(session: Session, place: Place, names: tuple[str, ...]) -> None:
    if names:
        part(session, "drop", place.work, place.unfinished, stdin=lines(names))


def _bring(
    session: Session, shared: Staging, sender: Borrowed, path: str, place: Place, names: tuple[str, ...], say: Say
) -> tuple[Problem, ...]:
    """From wherever it comes; what there is to tell of the way."""
    wanted = shared.wanted[path]
    total = _bytes(wanted, tuple(wanted.files))
    load = Load(total, total - _bytes(wanted, names))
    if shared.source.hub:
        image = shared.manner.hf_image or shared.recipe.image.word
        at = _hub_source(session, shared, path)
        from_hub(session, place, at, names, load, shared.manner.environ, image, say)
        return ()
    say("stage", "waiting for one that has it")
    holder = sender.take()
    say("stage", f"from {holder}")
    if holder == HERE:
        folder = posixpath.join(str(shared.source.path), path)
        from_here(shared.here, session, place, folder, names, load, say)
        return ()
    folder = posixpath.join(shared.roots[holder], path)
    source = shared.sessions[holder]
    why = from_host(session, place, source, folder, names, load, shared.manner.streams, say)
    return (through_here(session, path, why),) if why else ()


def _hub_source(session: Session, shared: Staging, path: str) -> hub.Source:
    at = next(hub.parse_source(each.source) for each in wanted_folders(shared.recipe) if each.path == path)
    if at is None:
        what = f"{path} comes from no hub"
        raise HostError(Problem(what, "say --from HOST or --from PATH", f"{session.host.name}: stage"))
    return hub.Source(at.repository, shared.wanted[path].revision or at.revision or "main")


def through_here(session: Session, what: str, why: str) -> Problem:
    """That a copy between two hosts took the way through this machine."""
    remedy = "let them reach each other on high ports to make it faster, or stage from the hub"
    said = f"{what} went through this machine, since {why}"
    return Problem(said, remedy, f"{session.host.name}: stage", level="info")


def _finish(session: Session, place: Place) -> str | None:
    """The folder gets its name; where to what stood there was moved."""
    said = part(session, "finish", place.work, place.final, place.unfinished, place.state).out
    return next((line.removeprefix("@@A ") for line in said.splitlines() if line.startswith("@@A ")), None)


def _kept_aside(session: Session, place: Place, aside: str) -> Problem:
    return Problem(
        f"what stood at {place.final} is kept as {aside}; its right files are the same ones and take no room twice",
        "remove it when nothing uses it any more",
        f"{session.host.name}: stage",
        level="info",
    )
