"""Where beamdeploy keeps on this machine what it can do without."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path


def folder(environ: Mapping[str, str]) -> Path | None:
    """The user's cache folder of beamdeploy, as the XDG base directories say; it need not be there. None: it has none.

    Relative ones are ignored: each would be another folder in each working directory, of whoever made that.
    """
    cache = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):
        return Path(cache) / "beamdeploy"
    # of an empty HOME `expanduser` makes the root folder
    home = environ["HOME"] if "HOME" in environ else os.path.expanduser("~")
    return Path(home) / ".cache" / "beamdeploy" if os.path.isabs(home) else None


def made(environ: Mapping[str, str], name: str) -> Path | None:
    """A folder below it, made if it was not there; None: nothing can be kept there, or not safely."""
    above = folder(environ)
    if above is None:
        return None
    wanted = above / name
    try:
        for each in (above, wanted):
            if not os.path.lexists(each):
                each.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _ours_alone(each):
                return None
        return wanted if os.access(wanted, os.W_OK) and _of_files(wanted) else None
    except OSError:
        return None


def _of_files(folder: Path) -> bool:
    """Whether only regular files lie in it: what opens a pipe there would wait for its writer."""
    with os.scandir(folder) as entries:
        return all(entry.is_file(follow_symlinks=False) for entry in entries)


def _ours_alone(path: Path) -> bool:
    """Whether it is a folder itself, no link to one, of this user, and nobody else may write to it."""
    found = path.lstat()
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not others
