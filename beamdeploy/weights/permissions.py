"""Whether the container's own user may read what the user who looks may: from modes and owners, pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from beamdeploy.errors import Problem
from beamdeploy.look.facts import Restricted, Weights


@dataclass(frozen=True)
class _User:
    """Numbers, as far as known: names are those of the image, which a look does not read."""

    uid: int | None
    gids: frozenset[int]
    all_known: bool


def check(host_path: str, path: str, user: str, facts: Weights) -> Iterator[Problem]:
    """What the user of the container may not read. `user`: "USER[:GROUP[,MORE]]" as docker takes it; root reads all.

    A finding is a warning where it turns on what only the image knows: the number of a name, or a user's group.
    """
    asked = _user(user)
    if asked is None:
        return
    lacking = [(each, _may(asked, each)) for each in facts.restricted if not _hidden(each.name)]
    refused = [each for each, may in lacking if may is False]
    unsure = [each for each, may in lacking if may is None]
    if not (refused or unsure):
        return
    first, more = (refused or unsure)[0], len(refused or unsure) - 1
    place = {".": host_path, "/": host_path.removesuffix(path).rstrip("/")}.get(first.name, f"{host_path}/{first.name}")
    others = f", and {more} more" if more else ""
    how = "cannot be read" if refused else "may not be readable"
    yield Problem(
        f"{place} {how} by the container's user {user} (mode {first.mode}, owner {first.uid}:{first.gid}){others}",
        f"chmod -R a+rX {host_path}; and the folders above it up to model_dir",
        rule="BD229",
        level="error" if refused else "warning",
    )


def _user(text: str) -> _User | None:
    """None: root, whom no mode keeps out."""
    name, _, groups = text.partition(":")
    if name in ("", "0", "root"):
        return None
    given = [group for group in groups.split(",") if group]
    numbers = frozenset(int(group) for group in given if group.isdigit())
    # without a group of its own, it has the one that the image's passwd gives it
    known = name.isdigit() and bool(groups.partition(",")[0]) and len(numbers) == len(given)
    return _User(int(name) if name.isdigit() else None, numbers, known)


def _may(user: _User, entry: Restricted) -> bool | None:
    """None: it is not known."""
    if user.uid == entry.uid:
        return _open(entry, 1)
    if entry.gid in user.gids:
        return _open(entry, 4)
    possible = (user.uid is None and _open(entry, 1)) or (not user.all_known and _open(entry, 4))
    return None if possible else False


def _open(entry: Restricted, at: int) -> bool:
    """Whether these three letters of the mode let read, and enter a folder."""
    letters = entry.mode[at : at + 3]
    return letters[:1] == "r" and (entry.mode[:1] != "d" or letters[2:] in ("x", "s", "t"))


def _hidden(name: str) -> bool:
    return name.startswith(".") and name != "."
