"""Strict YAML: one mapping a file, read to plain values with the place of every key and value.

The text is read event by event (libyaml when PyYAML has it), never recursively and never into a node graph, so that
depth, size and alias expansion are bounded while reading. What YAML 1.1 would turn into something else than what is
written (`yes`, `22:22`, `017500`, a date) is refused with the place and what to write instead.

Rules: BD001 cannot be read · BD002 not UTF-8 · BD003 too large · BD004 control character · BD005 not YAML ·
BD006 tab · BD007 quote not closed · BD008 text that must be quoted · BD009 template · BD010 not a mapping ·
BD011 several documents · BD012 key twice · BD013 key is not text · BD014 merge key · BD015 tag · BD016 vault ·
BD017 alias · BD018 too deep · BD019 yes/no/on/off · BD020 base 60 · BD021 leading zero · BD022 odd number ·
BD023 infinity or no number · BD024 date · BD025 number too large · BD026 too many problems.
"""

from __future__ import annotations

import errno
import sys
from difflib import get_close_matches
from pathlib import Path

from yaml.reader import Reader

from beamdeploy.documents.place import Document, Mark, Place, dotted, place, problem
from beamdeploy.documents.reading import MAX_PROBLEMS, Reading
from beamdeploy.errors import Problem
from beamdeploy.regular import bytes_of

__all__ = ["MAX_BYTES", "MAX_PROBLEMS", "Document", "Mark", "Place", "dotted", "load", "place", "problem"]


MAX_BYTES = 16 * 1024 * 1024
# YAML's own, compiled by the library already; a byte order mark inside the text is not for us
_NOT_PRINTABLE = Reader.NON_PRINTABLE
_BOM = "\ufeff"


def load(file: str, text: str | None = None) -> tuple[Document | None, tuple[Problem, ...]]:
    """The mapping in `file` ("-": standard input), or in `text`, and everything that is wrong with it as YAML.

    With problems the document is still there if a mapping could be read to its end, so that the schema's problems can
    be told in the same run; do not use its values then. Never raises for what a file holds.
    """
    if text is None:
        text, problems = _read(file)
        if text is None:
            return None, problems
    text = text.removeprefix(_BOM)
    bad = _NOT_PRINTABLE.search(text)
    if bad or _BOM in text:
        return None, (_control_problem(file, text, bad.start() if bad else text.index(_BOM)),)
    reading = Reading(file, text)
    document = reading.document()
    return document, tuple(sorted(reading.problems, key=lambda each: (each.line or 0, each.col or 0)))


def _read(file: str) -> tuple[str | None, tuple[Problem, ...]]:
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if file == "-" else bytes_of(file, MAX_BYTES + 1)
    except IsADirectoryError:
        return None, (Problem("this is a folder", "name a file in it", file=file, rule="BD001"),)
    except FileNotFoundError:
        return None, (Problem("there is no such file", _near_file(file), file=file, rule="BD001"),)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        pipe = isinstance(error, OSError) and error.errno == errno.EINVAL
        remedy = "for a pipe, name - and send it to standard input" if pipe else "make it readable"
        return None, (Problem(f"cannot be read: {reason}", remedy, file=file, rule="BD001"),)
    if len(raw) > MAX_BYTES:
        return None, (_too_large(file),)
    try:
        return raw.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        return None, (_not_utf8(file, raw, error.start),)


def _near_file(file: str) -> str:
    path = Path(file)
    try:
        names = [each.name for each in path.parent.iterdir() if each.suffix in (".yaml", ".yml")]
    except OSError:
        return f"check the path: the folder {path.parent} is not there or not readable"
    near = get_close_matches(path.name, names, 1)
    return f"did you mean {path.parent / near[0]}?" if near else "check the path"


def _too_large(file: str) -> Problem:
    what = f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB"
    return Problem(what, "is it the right file?", file=file, line=1, col=1, rule="BD003")


def _not_utf8(file: str, raw: bytes, start: int) -> Problem:
    line = raw.count(b"\n", 0, start) + 1
    col = len(raw[raw.rfind(b"\n", 0, start) + 1 : start].decode("utf-8", "replace")) + 1
    what = f"the file is not UTF-8 (byte 0x{raw[start]:02x})"
    return Problem(what, "save it as UTF-8", file=file, line=line, col=col, rule="BD002")


def _control_problem(file: str, text: str, index: int) -> Problem:
    line, col = text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
    what = f"the control character U+{ord(text[index]):04X} is in the file"
    return Problem(what, "remove it", file=file, line=line, col=col, rule="BD004")
