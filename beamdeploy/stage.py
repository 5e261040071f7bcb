"""Bring the right weights onto every host, once: nothing has its name before every byte of it is verified."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from beamdeploy import errors
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.fleet import each
from beamdeploy.inventory import Host
from beamdeploy.lock import LockedFolder, wanted_folders
from beamdeploy.look.facts import Disk
from beamdeploy.outcome import HostReport, Report
from beamdeploy.recipe import Recipe
from beamdeploy.remote import Session, open_session
from beamdeploy.render import Spec
from beamdeploy.run import Run, SayHost, told
from beamdeploy.verify import question
from beamdeploy.weights import hub
from beamdeploy.weights.hashing import Hashes, hash_folders
from beamdeploy.weights.holders import HERE, Borrowed, Holders
from beamdeploy.weights.listing import is_read
from beamdeploy.weights.staging import human
from beamdeploy.weights.transfer import Load, Place, from_here, from_host, from_hub, part

Say = Callable[[str, str], None]
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
class Staging:
    """What all hosts of a run share. `wanted`: folder → its files; `sessions` and `roots` grow as hosts are reached."""

    recipe: Recipe
    wanted: Mapping[str, LockedFolder]
    source: From
    streams: int
    environ: Mapping[str, str]
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


def stage(
    recipe: Recipe,
    specs: tuple[Spec, ...],
    source: From,
    say: SayHost,
    *,
    streams: int,
    accept_new: bool,
    environ: Mapping[str, str],
) -> Report:
    """Stage every folder of the recipe on every host. InputError: nothing says what is right."""
    by_name = {spec.host.name: spec for spec in specs}
    with ExitStack() as stack:
        run = Run(stack, say)
        here = stack.enter_context(open_session(Host(HERE, connection="local", model_dir=source.path)))
        shared = Staging(recipe, {}, source, streams, environ, Holders([]), {}, {}, here)
        if source.host is not None:
            shared.sessions[source.host.name] = run.opened(source.host, accept_new=accept_new)
            shared.roots[source.host.name] = str(source.host.model_dir)
        if not source.hub:
            shared.holders.give(source.host.name if source.host else HERE)
        locked = specs[0].weights if specs else {}
        shared = _with_wanted(shared, locked, say)

        def work(name: str) -> HostReport:
            if name not in shared.sessions:
                shared.sessions[name] = run.opened(by_name[name].host, accept_new=accept_new)
            shared.roots[name] = str(by_name[name].host.model_dir)
            return stage_host(by_name[name], shared, run.sayer(name))

        targets = [name for name in by_name if source.host is None or name != source.host.name]
        results = each(targets, work)
    reports = tuple(_reported(name, results[name]) for name in targets)
    return Report("Stage", errors.worst(report.exit for report in reports), reports)


def _with_wanted(shared: Staging, locked: Mapping[str, LockedFolder], say: SayHost) -> Staging:
    """What each folder must hold: as locked, else as the hub says, else as the source has it."""
    wanted = dict(locked)
    for folder in wanted_folders(shared.recipe):
        at = hub.parse_source(folder.source)
        if folder.path in wanted:
            continue
        if not shared.source.hub:
            wanted[folder.path] = _as_source_has_it(shared, folder.path, say)
        elif at is not None:
            wanted[folder.path] = hub.fetch_folder(at, shared.environ)
        else:
            what = f"nothing says where {folder.path} comes from: there is no lock, and its source is no hub"
            raise InputError([Problem(what, "Say --from HOST or --from PATH.", file=shared.recipe.file)])
    return Staging(**{**vars(shared), "wanted": wanted})


def _as_source_has_it(shared: Staging, path: str, say: SayHost) -> LockedFolder:
    source = shared.source.host
    session = shared.sessions[source.name] if source else shared.here
    deep = hash_folders(session, session.host, (path,), lambda phase, detail: say(session.host.name, phase, detail))
    hashes = deep.folders[path]
    if hashes is None or not hashes.files:
        what = f"{session.host.name} has no {posixpath.join(str(session.host.model_dir), path)}"
        raise HostError(Problem(what, "check --from", "stage"))
    return LockedFolder(None, None, {name: one for name, one in hashes.files.items() if is_read(name)})


def stage_host(spec: Spec, shared: Staging, say: Say) -> HostReport:
    """One host: each folder looked at, filled, verified, and only then given its name."""
    sender = Borrowed(shared.holders)
    done: tuple[str, ...] = ()
    try:
        report = _stage_folders(spec, shared, sender, say)
        done = () if shared.source.hub else (spec.host.name,)
    finally:
        sender.give_back(*done)
    return report


def _stage_folders(spec: Spec, shared: Staging, sender: Borrowed, say: Say) -> HostReport:
    session = shared.sessions[spec.host.name]
    outcomes: dict[str, dict[str, object]] = {}
    problems = list(told(session))
    for path, wanted in shared.wanted.items():
        found = _found(session, spec, path, wanted, say)
        if len(found.right) == len(wanted.files):
            outcomes[path] = {"outcome": "unchanged", "moved_bytes": 0}
            continue
        _check_room(session, found, wanted)
        moved = _fill(session, shared, sender, path, found, wanted, say)
        aside = _finish(session, found.place)
        outcomes[path] = {"outcome": "changed", "moved_bytes": moved}
        problems += [_kept_aside(session, found.place, aside)] if aside else []
    changed = any(each["outcome"] == "changed" for each in outcomes.values())
    summary = "; ".join(f"{path}: {_said(one)}" for path, one in outcomes.items())
    outcome = "changed" if changed else "unchanged"
    return HostReport(spec.host.name, outcome, errors.DONE, summary, {"folders": outcomes}, tuple(problems))


def _said(outcome: Mapping[str, object]) -> str:
    moved = outcome["moved_bytes"]
    return f"staged, {human(int(str(moved)))} moved" if outcome["outcome"] == "changed" else "complete and verified"


def _found(session: Session, spec: Spec, path: str, wanted: LockedFolder, say: Say) -> Found:
    """Hash what is at the folder's place and beside it; what was hashed before is not read again."""
    place = Place(posixpath.join(str(spec.host.model_dir), path))
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
    session: Session, shared: Staging, sender: Borrowed, path: str, found: Found, wanted: LockedFolder, say: Say
) -> int:
    """Bring what lacks and verify it; what came wrong is brought once more. The bytes that had to move."""
    place, state = found.place, session.host.state_folder
    part(session, "begin", place.final, place.unfinished, f"{path} of {shared.recipe.name}", *found.right)
    if found.wrong:
        part(session, "drop", place.unfinished, *found.wrong)
    right = tuple({*found.right, *found.staged})
    moved = 0
    for _ in range(2):
        names = tuple(name for name in wanted.files if name not in right)
        if not names:
            return moved
        moved += _bytes(wanted, names)
        load = Load(names, sum(one.size for one in wanted.files.values()), _bytes(wanted, right))
        _bring(session, shared, sender, path, place, wanted, load, say)
        hashes = hash_folders(session, session.host, (place.unfinished,), say).folders[place.unfinished]
        right, wrong = _sorted(hashes, wanted)
        if len(right) == len(wanted.files):
            return moved
        if wrong:
            part(session, "drop", place.unfinished, *wrong)
    lacking = [name for name in wanted.files if name not in right]
    what = f"{len(lacking)} files came twice with another content than is wanted, such as {lacking[0]}"
    remedy = f"verify the source (beamdeploy verify --deep); nothing was given its name: {place.unfinished}"
    raise HostError(Problem(what, remedy, f"{session.host.name}: stage ({state})"))


def _bring(
    session: Session,
    shared: Staging,
    sender: Borrowed,
    path: str,
    place: Place,
    wanted: LockedFolder,
    load: Load,
    say: Say,
) -> None:
    if shared.source.hub:
        at = next(hub.parse_source(f.source) for f in wanted_folders(shared.recipe) if f.path == path)
        if at is None:
            what = f"{path} comes from no hub"
            raise HostError(Problem(what, "say --from HOST or --from PATH", f"{session.host.name}: stage"))
        revision = wanted.revision or at.revision or "main"
        from_hub(session, place, hub.Source(at.repository, revision), load, shared.environ, say)
        return
    say("stage", "waiting for one that has it")
    holder = sender.take()
    say("stage", f"from {holder}")
    if holder == HERE:
        from_here(shared.here, session, place, posixpath.join(str(shared.source.path), path), load, say)
    else:
        folder = posixpath.join(shared.roots[holder], path)
        from_host(session, place, shared.sessions[holder], folder, load, shared.streams, say)


def _finish(session: Session, place: Place) -> str | None:
    """The folder gets its name; where to what stood there was moved."""
    said = part(session, "finish", session.host.state_folder, place.final, place.unfinished).out
    return next((line.removeprefix("@@A ") for line in said.splitlines() if line.startswith("@@A ")), None)


def _kept_aside(session: Session, place: Place, aside: str) -> Problem:
    return Problem(
        f"what stood at {place.final} is kept as {aside}; its right files are the same ones and take no room twice",
        "remove it when nothing uses it any more",
        f"{session.host.name}: stage",
        level="info",
    )


def _reported(name: str, result: HostReport | HostError) -> HostReport:
    if not isinstance(result, HostError):
        return result
    outcome = {errors.UNREACHABLE: "unreachable", errors.BLOCKED: "blocked"}.get(result.exit, "failed")
    return HostReport(name, outcome, result.exit, result.problems[0].what.splitlines()[0], {}, result.problems)
