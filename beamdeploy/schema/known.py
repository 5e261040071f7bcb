"""Which data was found good before, kept in the user's cache folder by name."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from beamdeploy import __version__, caches
from beamdeploy.regular import bytes_of
from beamdeploy.schema.packaged import load_schema

_LONGEST = 200_000
"""Bytes of the list, 65 a name; a longer one is begun anew."""


def name_of(data: object, schema_name: str) -> str:
    """What stands for this data under this schema as this version reads it. `1`, `1.0`, `"1"` and `true` differ."""
    # the time too: between two releases a checkout keeps its version
    reader = (__version__, Path(__file__).with_name("validator.py").stat().st_mtime_ns)
    return hashlib.sha256(repr((reader, load_schema(schema_name), data)).encode("utf-8", "surrogatepass")).hexdigest()


def is_good(name: str) -> bool:
    """Whether it is noted as good; not where there is no list that is ours alone, or it is to begin anew."""
    file = _file()
    if file is None:
        return False
    try:
        read = bytes_of(file, _LONGEST + 1)
    except OSError:
        return False
    return len(read) <= _LONGEST and name.encode() in read.split(b"\n")


def note(name: str) -> None:
    """Note it as good, where a cache can be kept."""
    file = _file()
    if file is None:
        return
    with suppress(OSError):
        long = file.exists() and file.stat().st_size > _LONGEST
        # one short write to the end: runs beside this one add their lines between
        with file.open("w" if long else "a", encoding="ascii") as lines:
            lines.write(f"{name}\n")


def _file() -> Path | None:
    folder = caches.made(os.environ, "good")
    return folder / "names" if folder is not None else None
