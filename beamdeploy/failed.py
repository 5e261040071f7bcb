"""Which hosts the last run over an inventory left failed, for `--limit @failed`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from beamdeploy import caches
from beamdeploy.errors import DONE, InputError, Problem
from beamdeploy.outcome import Report
from beamdeploy.regular import text_of

WORD = "@failed"
_FOLDER = "failed"


def note(inventory: str | None, report: Report, environ: Mapping[str, str]) -> None:
    """Keep the hosts that failed or were not attempted; none is noted, too. A cache that cannot be written is none."""
    left = [host.name for host in report.hosts if host.exit != DONE or host.outcome == "not attempted"]
    file = _file(inventory, environ)
    if file is None or caches.made(environ, _FOLDER) is None:
        return
    with suppress(OSError):
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(left), encoding="utf-8")
        fresh.replace(file)


def limited(inventory: str | None, limit: str | None, environ: Mapping[str, str]) -> str | None:
    """The limit with `@failed` replaced by names. InputError: there was no run, or nothing failed in it."""
    words = limit.replace(":", ",").split(",") if limit else []
    if WORD not in words:
        return limit
    return ",".join(name for word in words for name in (_noted(inventory, environ) if word == WORD else (word,)))


def _noted(inventory: str | None, environ: Mapping[str, str]) -> Iterable[str]:
    file = _file(inventory, environ)
    try:
        names = tuple(map(str, json.loads(text_of(file)))) if file is not None else ()
    except (OSError, ValueError):
        names = ()
    if not names:
        what = f"--limit {WORD}: no host is left over from the last run over this inventory"
        raise InputError([Problem(what, "Say which hosts, or leave --limit out.", where="command line")])
    return names


def _file(inventory: str | None, environ: Mapping[str, str]) -> Path | None:
    cache = caches.folder(environ)
    if cache is None:
        return None
    where = os.path.abspath(inventory) if inventory and os.path.exists(inventory) else inventory or ""
    return cache / _FOLDER / hashlib.sha256(where.encode()).hexdigest()[:32]
