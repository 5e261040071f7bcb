"""Staged folders against what was locked: names and sizes in every plan, content where it was hashed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from beamdeploy.errors import Problem
from beamdeploy.lock import LockedFile, LockedFolder
from beamdeploy.look.facts import Disk, Weights
from beamdeploy.weights.hashing import Hashes
from beamdeploy.weights.listing import is_read
from beamdeploy.weights.staging import FETCH, LEFTOVERS, WEIGHTS, Folder, check, count, human

_CODE = (".py", ".so")


def verdict(
    folder: Folder, facts: Weights | None, locked: LockedFolder | None = None, disk: Disk | None = None
) -> tuple[Problem, ...]:
    """All that a look shows to be wrong with a staged folder: in itself, against the lock, and in room for the rest."""
    found = check(folder, facts)
    if facts is None or any(file.name == "." and not file.readable for file in facts.files):
        return found
    told = {name for file in facts.files for name in [file.name] if any(_is_about(p, folder, name) for p in found)}
    told |= {name for name in (locked.files if locked else ()) if any(_is_about(p, folder, name) for p in found)}
    return (
        *found,
        *growing(folder, facts),
        *(problem for name, problem in listing(folder, facts, locked) if name not in told),
        *room(folder, facts, locked, disk),
    )


def _is_about(problem: Problem, folder: Folder, name: str) -> bool:
    """Whether a file's fault is told already: a second finding about its size or absence would say nothing new."""
    return problem.level == "error" and problem.what.startswith(f"{folder.host_path}/{name} ")


def growing(folder: Folder, facts: Weights) -> Iterator[Problem]:
    """A download that runs now: what is not there yet is not missing, and what is there may not be whole."""
    for file in facts.files:
        if file.growing:
            yield Problem(
                f"{folder.host_path}/{file.name} is growing: a download into this folder is running now",
                "wait until it has ended, then run the same again",
                rule="BD220",
            )


def listing(folder: Folder, facts: Weights, locked: LockedFolder | None) -> Iterator[tuple[str, Problem]]:
    """(file, problem): names and sizes that are not the lock's. A look does not see most files of subfolders."""
    if locked is None:
        return
    sizes = {file.name: file.size for file in facts.files}
    seen = {name: one for name, one in locked.files.items() if "/" not in name or name in sizes}
    for name, one in seen.items():
        yield from ((name, problem) for problem in _size(folder, name, one, sizes))
    for name in sorted(set(sizes) - set(locked.files)):
        if is_read(name) and not name.endswith(LEFTOVERS):
            yield name, _extra(folder, name)


def _size(
    folder: Folder, name: str, one: LockedFile, sizes: Mapping[str, int | None] | Mapping[str, int]
) -> Iterator[Problem]:
    place = f"{folder.host_path}/{name}"
    size = sizes.get(name)
    if size is None:
        yield Problem(f"{place} is not there, but the lock lists it ({human(one.size)})", FETCH, rule="BD221")
    elif size != one.size:
        what = f"{place} has {size} bytes, the lock says {one.size}: it is another file, or not whole"
        yield Problem(what, FETCH, rule="BD222")


def _extra(folder: Folder, name: str) -> Problem:
    # weights would be loaded, and code would be run
    level = "error" if name.endswith((*WEIGHTS, *_CODE)) else "warning"
    return Problem(
        f"{folder.host_path}/{name} is not in the lock: an engine may read it",
        "remove it from the folder; or, if it belongs there, lock the folder again (beamdeploy lock --upgrade weights)",
        rule="BD223",
        level=level,
    )


def room(folder: Folder, facts: Weights, locked: LockedFolder | None, disk: Disk | None) -> Iterator[Problem]:
    """Whether what is still to come fits on the file system. Nothing where nothing is missing."""
    lacking = to_come(facts, locked)
    if not lacking or disk is None or disk.free_bytes >= lacking:
        return
    what = (
        f"{folder.host_path} lacks {human(lacking)} ({lacking} bytes), and its file system has "
        f"{human(disk.free_bytes)} ({disk.free_bytes} bytes) free: the rest does not fit"
    )
    yield Problem(what, "free room there, or set model_dir to another file system", rule="BD224")


def to_come(facts: Weights, locked: LockedFolder | None) -> int:
    """Bytes that are not there yet, by the lock or else by the index; what a download has begun is counted as there."""
    sizes = {file.name: file.size or 0 for file in facts.files}
    begun = sum(size for name, size in sizes.items() if name.endswith(LEFTOVERS))
    if locked is not None:
        lacking = sum(max(0, one.size - sizes.get(name, 0)) for name, one in locked.files.items())
    elif facts.total is not None and any(name not in sizes for name in facts.index or {}):
        lacking = facts.total - sum(shard.size for shard in facts.shards if shard.name in (facts.index or {}))
    else:
        return 0
    return max(0, lacking - begun)


def contents(folder: Folder, hashes: Hashes | None, wanted: LockedFolder, by: str = "the lock") -> tuple[Problem, ...]:
    """What hashing shows: each file of `wanted` that is missing, unreadable or has other content, and what is extra."""
    if hashes is None:
        return ()  # the look has said that the folder is not there
    names = {one.sha256: name for name, one in wanted.files.items()}
    found = [problem for name in wanted.files for problem in _content(folder, name, hashes, wanted, names, by)]
    extra = (name for name in sorted(set(hashes.files) | set(hashes.unread)) if name not in wanted.files)
    return (*found, *(_extra(folder, name) for name in extra if is_read(name) and not name.endswith(LEFTOVERS)))


def _content(
    folder: Folder, name: str, hashes: Hashes, wanted: LockedFolder, names: Mapping[str, str], by: str
) -> Iterator[Problem]:
    one, there = wanted.files[name], hashes.files.get(name)
    if name in hashes.unread:
        what = f"{folder.host_path}/{name} could not be read: {hashes.unread[name] or 'its hash did not come'}"
        yield Problem(what, f"chmod a+r {folder.host_path}/{name}; look at the disk if it stays", rule="BD225")
    elif there is None or there.size != one.size:
        yield from _size(folder, name, one, {name: there.size} if there else {})
    elif there.sha256 != one.sha256:
        other = names.get(there.sha256)
        what = f"{folder.host_path}/{name} has the right size and other content than {by} says"
        also = f": it holds what {other} should" if other else f" (sha256 {there.sha256[:12]}…, not {one.sha256[:12]}…)"
        yield Problem(what + also, f"remove it, then {FETCH}", rule="BD226")


def deduplicated(folder: Folder, looked: tuple[Problem, ...], hashed: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Both findings, each file's size or absence told once."""
    files = {problem.what.split(" ", 1)[0] for problem in looked if problem.what.startswith(folder.host_path + "/")}
    kept = (p for p in hashed if p.rule == "BD226" or p.what.split(" ", 1)[0] not in files)
    return (*looked, *(p for p in kept if p not in looked))


def described(hashes: Hashes) -> str:
    """ "66 files, 295.0 GiB"; how much of it was remembered."""
    remembered = f", {human(hashes.remembered)} of it unchanged since it was last hashed" if hashes.remembered else ""
    return f"{count(len(hashes.files), 'file')}, {human(hashes.size)}{remembered}"
