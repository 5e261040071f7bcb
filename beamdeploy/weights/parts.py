"""The parts of staging that a host does: how they are asked for, and how far one is."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

from beamdeploy.errors import HostError, Problem
from beamdeploy.remote import Result, Session
from beamdeploy.weights.meter import progress

Say = Callable[[str, str], None]
SECONDS = 7 * 24 * 3600
# beamdeploy's own ticks, rsync's progress, and that of dd
_DONE = re.compile(r"@@P (\d+)$|\s*([\d,]+)\s+\d+%|(\d+) bytes")
_RECORDS = re.compile(r"\d+\+\d+ records")


@dataclass(frozen=True)
class Load:
    """What is to come: bytes of the whole, and how many of them are there already."""

    total: int
    there: int


def script() -> str:
    """The text of all parts: POSIX sh."""
    return resources.files(__package__ or "").joinpath("stage.sh").read_text("utf-8")


def work_folder(state: str, *what: str) -> str:
    """Where a host keeps what one staging needs: of each of them another, since several may run at a time."""
    return f"{state}/stage/{hashlib.sha256('/'.join(what).encode()).hexdigest()[:12]}"


def part(session: Session, what: str, work: str, *args: str, stdin: bytes = b"") -> Result:
    """Run one part. HostError: it failed."""
    result = session.script(script(), (what, work, *args), timeout=600, stdin=stdin)
    if not result.ok:
        remedy = "see that model_dir and state_dir can be written by this user"
        said = tail(result.err or result.out) or "it failed and said nothing"
        raise HostError(Problem(f"{what}: {said}", remedy, f"{session.host.name}: stage"))
    return result


def lines(names: Iterable[str]) -> bytes:
    """Names as a part reads them."""
    return "".join(f"{name}\n" for name in names).encode(errors="surrogateescape")


def watched(session: Session, words: Sequence[str], load: Load, say: Say) -> Result:
    """Run a part that takes long, and say how far it is."""
    started = time.monotonic()

    def line(text: str) -> None:
        if text.startswith("@@S "):
            say("stage", text.removeprefix("@@S "))
        told = _DONE.match(text)
        if told is None:
            return  # what a tool says else is for the failure: hf's traceback of a hundred lines is no progress
        done = int(told[1] or told[3]) if not told[2] else load.there + int(told[2].replace(",", ""))
        say("stage", progress(min(done, load.total), load.total, time.monotonic() - started, load.there))

    return session.follow(("sh", "-c", script(), "stage", *words), line, timeout=SECONDS)


def tail(text: str) -> str:
    """The end of what a part said, on one line, without its ticks."""
    said = (
        line
        for line in text.splitlines()
        if line and not line.startswith("@@S ") and not _DONE.match(line) and not _RECORDS.match(line)
    )
    return " / ".join(said)[-600:]
