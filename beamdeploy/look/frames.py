"""The frames that facts.sh prints: which question, how it ended, what it said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from beamdeploy.errors import HostError, Problem

REPLACED = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Frame:
    """One answer of the script: what a command printed and how it ended."""

    section: str
    exit: int
    text: str
    err: str = ""


def frames(out: str, nonce: str, err: str = "") -> Iterator[Frame]:
    """The frames between begin and end; what a login shell said before is not ours to read."""
    start = out.find(f"@@{nonce} begin\n")
    end = out.rfind(f"@@{nonce} end")
    if start < 0 or end < start:
        raise HostError(_cut(out, err))
    pieces = re.split(rf"^@@{nonce} (\S+) (\d+) (\d+)\n", out[start:end], flags=re.MULTILINE)[1:]
    raw = [_frame(*pieces[at : at + 4]) for at in range(0, len(pieces), 4)]
    for at, frame in enumerate(raw):
        if not frame.section.endswith(".err"):
            beside = raw[at + 1] if at + 1 < len(raw) else None
            said = beside.text if beside is not None and beside.section == f"{frame.section}.err" else ""
            yield Frame(frame.section, frame.exit, frame.text, said)


def _frame(section: str, exit_code: str, size: str, body: str) -> Frame:
    text = body.encode("utf-8", "surrogateescape")[: int(size)].decode("utf-8", "surrogateescape")
    # bytes that were no UTF-8 have been replaced on the way, so the count no longer fits
    return Frame(section, int(exit_code), body.rstrip("\n") if REPLACED in body else text)


def _cut(out: str, err: str) -> Problem:
    last = (err.strip() or out.strip() or "nothing at all").splitlines()[-1][:200]
    return Problem(
        f"the look at the host ended before its end; the last that came was: {last}",
        "check that this user's login shell runs commands (`ssh HOST true`), then try again",
        rule="BD230",
    )


def only(found: Iterable[Frame], section: str) -> Frame | None:
    """The first frame of this section; None: it was not asked."""
    return next((frame for frame in found if frame.section == section), None)
