"""A docker program of a lab host that does one thing in another way, and all else as the real one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab import LabHost

OUR_PULL = """#!/bin/sh
case $1 in pull) {instead} ;; esac
exec docker "$@"
"""


@contextmanager
def pulling(host: LabHost, instead: str) -> Iterator[str]:
    """The program's path on the host; `instead` is what sh does before the pull."""
    program = host.folder / "bin" / "docker-of-the-case"
    program.write_text(OUR_PULL.format(instead=instead), encoding="utf-8")
    program.chmod(0o755)
    yield str(program)
    program.unlink()


@contextmanager
def refusing_to_pull(host: LabHost, said: str) -> Iterator[str]:
    """Every pull ends with what a daemon says when the registry refuses."""
    with pulling(host, f"printf '%s\\n' {shlex.quote('Error response from daemon: ' + said)} >&2; exit 1") as path:
        yield path
