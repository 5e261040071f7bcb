"""The files that an ssh configuration is read from, looked at before the OpenSSH client opens them.

It waits for a pipe's writer, and reads a device to its end.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from glob import glob
from pathlib import Path

from beamdeploy.regular import text_of

_DEEPEST = 16
"""Includes in includes that the client follows."""


def must_be_files(file: Path, depth: int = 0) -> None:
    """The file and what it includes. OSError: one of them is a pipe, a device or a socket.

    Of what is not there, is a folder or may not be read the client says what it thinks.
    """
    if os.path.isdir(file) or os.path.realpath(file) == os.devnull or not os.access(file, os.R_OK):
        return
    text = text_of(file, errors="surrogateescape")
    for included in _included(text, _base(file)) if depth < _DEEPEST else ():
        must_be_files(included, depth + 1)


def _base(file: Path) -> Path:
    """Where relative names are looked for: of a user's file below ~/.ssh, wherever it lies itself."""
    system = Path("/etc/ssh")
    return system if system in file.parents else Path(os.path.expanduser("~/.ssh"))


def _included(text: str, base: Path) -> Iterator[Path]:
    for line in text.splitlines():
        keyword, _, names = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() == "include":
            for name in _words(names):
                yield from map(Path, sorted(glob(os.path.join(base, os.path.expanduser(os.path.expandvars(name))))))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that is not closed: the client says so
        return []
