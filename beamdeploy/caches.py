"""Where beamdeploy keeps on this machine what it can do without."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def folder(environ: Mapping[str, str]) -> Path:
    """The user's cache folder of beamdeploy, as the XDG base directories say; it need not be there."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache) / "beamdeploy"


def made(environ: Mapping[str, str], name: str) -> Path | None:
    """A folder below it, made if it was not there and for this user alone; None: nothing can be kept there."""
    wanted = folder(environ) / name
    try:
        wanted.mkdir(parents=True, exist_ok=True, mode=0o700)
        return wanted if wanted.stat().st_uid == os.geteuid() and os.access(wanted, os.W_OK) else None
    except OSError:
        return None
