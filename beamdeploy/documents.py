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

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from beamdeploy.errors import Problem

Place = tuple[str | int, ...]

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 100
MAX_NODES = 300_000
MAX_ALIASED_NODES = 10_000
MAX_PROBLEMS = 100

# the pure loader says the same, slower
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]")


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a text; both count from 1."""

    line: int
    col: int


@dataclass(frozen=True)
class Document:
    """A file's mapping. `written`: the source text of every plain number, true/false and null.

    `faults`: the places already reported by `load`, so that the schema does not report them a second time.
    """

    file: str
    data: object
    keys: Mapping[Place, Mark]
    values: Mapping[Place, Mark]
    text: str
    written: Mapping[Place, str] = field(default_factory=dict)
    faults: frozenset[Place] = frozenset()

    def place(self, path: Place, *, key: bool = False) -> tuple[int, int]:
        """(line, col) of the value (or key) at `path`, else of the nearest known ancestor, else of the file's start."""
        return place(self, path, key=key)

    def problem(
        self, path: Place, what: str, remedy: str, *, rule: str = "", level: str = "error", key: bool = False
    ) -> Problem:
        """A problem at `path`."""
        return problem(self, path, what, remedy, rule=rule, level=level, key=key)


def place(document: Document, path: Place, *, key: bool = False) -> tuple[int, int]:
    """(line, col) of the value (or key) at `path`, else of the nearest known ancestor, else of the file's start."""
    if key and path in document.keys:
        return document.keys[path].line, document.keys[path].col
    for end in range(len(path), -1, -1):
        mark = document.values.get(path[:end]) or document.keys.get(path[:end])
        if mark is not None:
            return mark.line, mark.col
    return 1, 1


def problem(
    document: Document, path: Place, what: str, remedy: str, *, rule: str = "", level: str = "error", key: bool = False
) -> Problem:
    """A problem at `path` of `document`."""
    line, col = place(document, path, key=key)
    return Problem(what, remedy, file=document.file, line=line, col=col, rule=rule, level=level)


def dotted(path: Place) -> str:
    """`("a", 0, "b")` as `a[0].b`; the empty path as `the file`."""
    words = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return words.removeprefix(".") or "the file"


def load(file: str, text: str | None = None) -> tuple[Document | None, tuple[Problem, ...]]:
    """The mapping in `file` ("-": standard input), or in `text`, and everything that is wrong with it as YAML.

    With problems the document is still there if a mapping could be read to its end, so that the schema's problems can
    be told in the same run; do not use its values then. Never raises for what a file holds.
    """
    if text is None:
        text, problems = _read(file)
        if text is None:
            return None, problems
    if text.startswith("\ufeff"):
        text = text[1:]
    if bad := _NOT_PRINTABLE.search(text):
        return None, (_control_problem(file, text, bad.start()),)
    reading = _Reading(file, text)
    document = reading.document()
    return document, tuple(sorted(reading.problems, key=lambda each: (each.line or 0, each.col or 0)))


def _read(file: str) -> tuple[str | None, tuple[Problem, ...]]:
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if file == "-" else _bytes_of(file)
    except IsADirectoryError:
        return None, (Problem("this is a folder", "name a file in it", file=file, rule="BD001"),)
    except FileNotFoundError:
        return None, (Problem("there is no such file", _near_file(file), file=file, rule="BD001"),)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return None, (Problem(f"cannot be read: {reason}", "make it readable", file=file, rule="BD001"),)
    if len(raw) > MAX_BYTES:
        return None, (_too_large(file),)
    try:
        return raw.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        return None, (_not_utf8(file, raw, error.start),)


def _bytes_of(file: str) -> bytes:
    with open(file, "rb") as stream:
        return stream.read(MAX_BYTES + 1)


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


class _Stop(Exception):
    """Reading cannot go on; the problem is already noted."""


class _Frame:
    """A mapping or list whose end was not yet seen. `kept`: its values reach the document."""

    __slots__ = ("anchor", "items", "kept", "key", "key_kept", "mapping", "path", "start")

    def __init__(self, path: Place, mark: Mark, anchor: str | None, *, mapping: bool, kept: bool) -> None:
        self.items: Any = {} if mapping else []
        self.mapping = mapping
        self.path = path
        self.start = mark
        self.anchor = anchor
        self.kept = kept
        self.key: str | None = None  # of the value that comes next
        self.key_kept = True


class _Reading:
    """One reading of one text."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.problems: list[Problem] = []
        self.keys: dict[Place, Mark] = {}
        self.values: dict[Place, Mark] = {}
        self.written: dict[Place, str] = {}
        self.faults: set[Place] = set()
        self.anchors: dict[str, tuple[Any, Place]] = {}  # the value, and where its marks are
        self.opened: set[str] = set()  # anchors of values whose end was not yet seen
        self.stack: list[_Frame] = []
        self.root: Any = None
        self.nodes = 0
        self.aliased = 0

    def document(self) -> Document | None:
        try:
            self.walk()
        except _Stop:
            return None
        except yaml.YAMLError as error:
            self.problems.append(_syntax_problem(self.file, self.text, error))
            return None
        except (ValueError, OverflowError):
            # the pure loader passes an escape beyond Unicode or an endless version number straight to chr and int
            self.note(Mark(1, 1), "an escape or number is beyond what YAML allows", "write it in another way", "BD005")
            return None
        if not isinstance(self.root, dict):
            return None
        maps = (self.keys, self.values)
        return Document(self.file, self.root, *maps, self.text, self.written, frozenset(self.faults))

    def note(self, mark: Mark, what: str, remedy: str, rule: str, fault: Place | None = None) -> None:
        if fault is not None:
            self.faults.add(fault)
        self.problems.append(Problem(what, remedy, file=self.file, line=mark.line, col=mark.col, rule=rule))
        if len(self.problems) > MAX_PROBLEMS:
            what = f"more than {MAX_PROBLEMS} problems; the rest of the file was not looked at"
            self.stop(mark, what, "is it the right file?", "BD026")

    def stop(self, mark: Mark, what: str, remedy: str, rule: str) -> None:
        self.problems.append(Problem(what, remedy, file=self.file, line=mark.line, col=mark.col, rule=rule))
        raise _Stop

    def walk(self) -> None:
        started = 0
        for event in _events(self.text):
            kind = type(event)
            if kind is ScalarEvent:
                self.scalar(event)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                self.open(event, mapping=kind is MappingStartEvent)
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                self.close()
            elif kind is AliasEvent:
                self.alias(event)
            elif kind is DocumentStartEvent:
                started += 1
                if started > 1:
                    remedy = "keep one document a file: move what follows `---` into a file of its own"
                    return self.note(_mark(event), "the file holds several documents", remedy, "BD011")
        if not started:
            self.note(Mark(1, 1), "a mapping is expected, the file is empty", _MAPPING, "BD010")

    def count(self, mark: Mark) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            what = f"the file holds more than {MAX_NODES} keys and values"
            self.stop(mark, what, "is it the right file?", "BD003")

    def slot(self) -> tuple[Place, bool]:
        """Where the next value goes, and whether it is kept."""
        if not self.stack:
            return (), True
        frame = self.stack[-1]
        if frame.mapping:
            assert frame.key is not None
            return (*frame.path, frame.key), frame.kept and frame.key_kept
        return (*frame.path, len(frame.items)), frame.kept

    def put(self, value: Any) -> None:
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        if not frame.mapping:
            frame.items.append(value)
            return
        if frame.key_kept:
            frame.items[frame.key] = value
        frame.key = None

    def wants_key(self) -> bool:
        return bool(self.stack) and self.stack[-1].mapping and self.stack[-1].key is None

    def scalar(self, event: Any) -> None:
        mark = _mark(event)
        self.count(mark)
        if self.wants_key():
            self.key(event, mark)
            return
        path, kept = self.slot()
        if not path:
            self.note(mark, "a mapping is expected, this is one value", _MAPPING, "BD010")
            return
        if kept:
            self.values[path] = mark
        value = self.value(event, path, mark, kept=kept)
        self.put(value)
        if event.anchor is not None:
            self.anchor(event.anchor, value, path, mark)

    def value(self, event: Any, path: Place, mark: Mark, *, kept: bool) -> object:
        text: str = event.value
        if event.tag is not None:
            self.tag(event.tag, path, mark, kept=kept)
            return text
        if not event.implicit[0]:
            self.check_text(text, path, mark, kept=kept)
            return text
        if text and text[0] not in _FIRST:
            return text
        value, fault = _plain(text)
        if fault is not None:
            what, remedy, rule = fault
            self.note(mark, f"{dotted(path)}: {what}", remedy, rule, path if kept else None)
        elif kept and not isinstance(value, str):
            self.written[path] = text
        return value

    def check_text(self, text: str, path: Place, mark: Mark, *, kept: bool) -> None:
        if bad := _CONTROL.search(text):
            what = f"{dotted(path)}: the text holds the control character U+{ord(bad.group()):04X}"
            self.note(mark, what, "remove it", "BD004", path if kept else None)

    def tag(self, tag: str, path: Place, mark: Mark, *, kept: bool) -> None:
        name = tag.replace("tag:yaml.org,2002:", "!!")
        fault = path if kept else None
        if name == "!vault":
            what = f"{dotted(path)}: encrypted Ansible vault values (!vault) are not read"
            self.note(mark, what, "give the value in plain text, or as a secret by its name", "BD016", fault)
            return
        what = f"{dotted(path)}: tags are not read: {name}"
        self.note(mark, what, "remove the tag; quote the value if it is text", "BD015", fault)

    def key(self, event: Any, mark: Mark) -> None:
        frame = self.stack[-1]
        frame.key = key = str(event.value)
        path = (*frame.path, key)
        fault = self.key_fault(event, path) or self.twice(frame, key, path, mark)
        frame.key_kept = fault is None
        if fault is not None:
            self.note(mark, *fault)
        elif frame.kept:
            self.keys[path] = mark
        if event.anchor is not None:
            self.anchor(event.anchor, key, (), mark)

    def key_fault(self, event: Any, path: Place) -> tuple[str, str, str] | None:
        key: str = event.value
        if event.tag is not None:
            return f"{dotted(path)}: tags are not read: {event.tag}", "remove the tag", "BD015"
        if _CONTROL.search(key) or "\n" in key:
            return "the key holds a line break or a control character", "remove it", "BD004"
        if not event.implicit[0]:
            return None
        if key == "<<":
            what = f"{dotted(path[:-1])}: merge keys (<<) are not read"
            return what, "write the keys out, or give the whole value by an alias", "BD014"
        return None if key and key[0] not in _FIRST else _key_fault(key)

    def twice(self, frame: _Frame, key: str, path: Place, mark: Mark) -> tuple[str, str, str] | None:
        if key not in frame.items:
            return None
        first = self.keys.get(path)
        lines = f"on lines {first.line} and {mark.line}" if first else f"again on line {mark.line}"
        what = f"the key {key} is written twice: {dotted(path)} {lines}"
        return what, "keep one of them; nothing is merged", "BD012"

    def open(self, event: Any, *, mapping: bool) -> None:
        mark = _mark(event)
        self.count(mark)
        if len(self.stack) >= MAX_DEPTH:
            self.stop(mark, f"more than {MAX_DEPTH} levels are nested", "is it the right file?", "BD018")
        if self.wants_key():
            self.collection_key(event, mark)
        path, kept = self.slot()
        if not path and not mapping:
            self.note(mark, "a mapping is expected, this is a list", _MAPPING, "BD010")
        if event.tag is not None:
            self.tag(event.tag, path, mark, kept=kept)
        if kept:
            self.values[path] = mark
        if event.anchor is not None:
            self.opened.add(event.anchor)
        self.stack.append(_Frame(path, mark, event.anchor, mapping=mapping, kept=kept))

    def collection_key(self, event: Any, mark: Mark) -> None:
        if _is_template(self.text, event.start_mark.line):
            # both braces are flow mappings to YAML; nothing behind them can be believed
            self.stop(mark, "this looks like a template: {{ … }} is not filled in here", _TEMPLATE, "BD009")
        self.stop(mark, "the key is not text, it is a list or a mapping", "use text as the key", "BD013")

    def close(self) -> None:
        frame = self.stack.pop()
        self.put(frame.items)
        if frame.anchor is not None:
            self.opened.discard(frame.anchor)
            self.anchor(frame.anchor, frame.items, frame.path, frame.start)

    def anchor(self, name: str, value: object, path: Place, mark: Mark) -> None:
        if name in self.anchors:
            self.note(mark, f"the anchor &{name} is given twice", "give each anchor its own name", "BD017")
            return
        self.anchors[name] = (value, path)

    def alias(self, event: Any) -> None:
        mark, name = _mark(event), str(event.anchor)
        self.count(mark)
        if self.wants_key():
            self.stop(mark, f"the key is not text, it is the alias *{name}", "use text as the key", "BD013")
        path, kept = self.slot()
        if kept:
            self.values[path] = mark
        if name in self.anchors:
            value, source = self.anchors[name]
            self.put(self.copy(value, source, path, mark, kept=kept))
            return
        what = f"*{name} stands inside &{name} itself" if name in self.opened else f"there is no anchor &{name} above"
        self.note(mark, f"{dotted(path)}: {what}", "write the value out", "BD017", path if kept else None)
        self.put(None)

    def copy(self, value: Any, source: Place, target: Place, mark: Mark, *, kept: bool) -> Any:
        """`value` again, so that no two places share one object, with the marks of where it is written."""
        self.aliased += 1
        if self.aliased > MAX_ALIASED_NODES:
            what = f"aliases repeat more than {MAX_ALIASED_NODES} values"
            self.stop(mark, what, "write the values out, or use fewer aliases", "BD017")
        if len(target) > MAX_DEPTH:
            self.stop(mark, f"more than {MAX_DEPTH} levels are nested", "use fewer aliases", "BD018")
        if kept:
            self.copy_marks(source, target)
        if isinstance(value, dict):
            return {
                key: self.copy(each, (*source, key), (*target, key), mark, kept=kept) for key, each in value.items()
            }
        if isinstance(value, list):
            return [self.copy(each, (*source, at), (*target, at), mark, kept=kept) for at, each in enumerate(value)]
        return value

    def copy_marks(self, source: Place, target: Place) -> None:
        for marks in (self.keys, self.values):
            if source in marks and target not in marks:
                marks[target] = marks[source]
        if source in self.written:
            self.written[target] = self.written[source]
        if source in self.faults:
            self.faults.add(target)


_MAPPING = "write `key: value` lines; see `beamdeploy init`"
_TEMPLATE = "files are not templates: write the value itself, or quote it if the braces are meant"
_FIRST = frozenset("0123456789+-.~yYnNtTfFoO")

_TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_SAID_TRUE = frozenset(word for each in ("yes", "on") for word in (each, each.title(), each.upper()))
_SAID_FALSE = frozenset(word for each in ("no", "off") for word in (each, each.title(), each.upper()))
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+", re.ASCII)
_BASE_60 = re.compile(r"([-+]?)([1-9][0-9_]*(?::[0-5]?[0-9])+|[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]*[0-9][0-9_]*", re.ASCII)
_ODD_NUMBER = re.compile(
    r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?)",
    re.ASCII,
)
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?[0-9]{2})?))?",
    re.ASCII,
)

_Fault = tuple[str, str, str]  # what, remedy, rule


def _plain(text: str) -> tuple[object, _Fault | None]:
    """The value of unquoted text; with a fault the text itself stands for it."""
    if text in _TRUTH:
        return _TRUTH[text], None
    if text in _NULL:
        return None, None
    if _INTEGER.fullmatch(text):
        small = len(text) <= 20 and -(2**63) <= int(text) < 2**63
        return (int(text), None) if small else (text, _large(text))
    if _DECIMAL.fullmatch(text):
        number = float(text)
        return (number, None) if math.isfinite(number) else (text, _large(text))
    return text, _fault(text)


def _fault(text: str) -> _Fault | None:
    """Why text that is no plain word, number or truth cannot stay unquoted, if so."""
    if len(text) > 400:  # no number or date that anyone wrote, and the patterns below are not linear
        return None
    quote = f'quote it if it is text: "{_short(text)}"'
    if text in _SAID_TRUE or text in _SAID_FALSE:
        means = "true" if text in _SAID_TRUE else "false"
        return f"{text} is read as {means} by YAML", f'quote it ("{text}"), or write {means}', "BD019"
    if match := _BASE_60.fullmatch(text):
        return f"{_short(text)} is read as a base-60 number{_base_60(*match.groups())} by YAML", quote, "BD020"
    if _LEADING_ZERO.fullmatch(text):
        return f"{_short(text)}: a leading zero means octal in YAML{_octal(text)}", _unzeroed(text), "BD021"
    if _ODD_NUMBER.fullmatch(text):
        remedy = f"write it in plain decimal digits{_in_decimal(text)}, or {quote}"
        return f"{_short(text)} is not a plain decimal number", remedy, "BD022"
    if _NO_NUMBER.fullmatch(text):
        return f"{text} is read as infinity or as no number by YAML", f"write a number, or {quote}", "BD023"
    if _DATE.fullmatch(text):
        return f"{text} is read as a date by YAML", quote, "BD024"
    return None


def _key_fault(key: str) -> _Fault | None:
    """Why unquoted text is no key: YAML reads something else than text."""
    value, fault = _plain(key)
    if fault is None and isinstance(value, str):
        return None
    read = "empty" if value is None else "a truth value" if isinstance(value, bool) else "a number"
    why = fault[0] if fault else f"{_short(key) or 'it'} is {read}"
    return f"the key is not text: {why}", f'quote the key if it is meant: "{_short(key)}"', "BD013"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _large(text: str) -> _Fault:
    what = f"the number {_short(text)} is too large"
    return what, "numbers end at 9223372036854775807 (64 bits); quote it if it is text", "BD025"


def _base_60(sign: str, digits: str) -> str:
    """` (133342)` for `2222:22`; empty for fractions and for what is too long to be a port or a time."""
    if len(digits) > 40 or "." in digits:
        return ""
    number = 0
    for part in digits.replace("_", "").split(":"):
        number = number * 60 + int(part)
    return f" ({'-' * (sign == '-')}{number})"


def _octal(text: str) -> str:
    digits = text.replace("_", "")
    return f" ({int(digits, 8)})" if len(digits) <= 20 and not {"8", "9"} & set(digits) else ""


def _unzeroed(text: str) -> str:
    digits = text.replace("_", "").lstrip("+-0") or "0"
    return f'write {_short(digits)} for the decimal number, or quote it if it is text: "{_short(text)}"'


def _in_decimal(text: str) -> str:
    """` (100000)` for `1e5`, when that says it exactly."""
    bare = text.replace("_", "").lower()
    if len(bare) > 20:
        return ""
    if "x" in bare or "b" in bare:
        return f" ({int(bare, 0)})"
    number = float(bare)
    if abs(number) >= 1e15:
        return ""
    return f" ({int(number)})" if number.is_integer() else f" ({number})" if abs(number) >= 1e-4 else ""


def _events(text: str) -> Iterator[Any]:
    """Events until the end of the stream, as lazily as the loader gives them."""
    loader = _LOADER(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def _mark(event: Any) -> Mark:
    start = event.start_mark
    return Mark(start.line + 1, start.column + 1)


def _line(text: str, number: int) -> str:
    """The line `number` (from 0) of `text`, empty beyond its end."""
    lines = text.split("\n", number + 1)
    return lines[number] if number < len(lines) else ""


def _is_template(text: str, number: int) -> bool:
    line = _line(text, number)
    return "{{" in line or "{%" in line


def _syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Problem:
    """A scanner's or parser's complaint in a reader's words."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return Problem(f"not YAML: {error}", "correct the text", file=file, line=1, col=1, rule="BD005")
    complaint = str(getattr(error, "problem", None) or "")
    context = str(getattr(error, "context", None) or "")
    line, col = mark.line, mark.column
    start = getattr(error, "context_mark", None)
    if start is not None and "quoted scalar" in context and "escape" not in complaint:
        line, col = start.line, start.column
    what, remedy, rule = _complaint(complaint, context, _line(text, line), col)
    return Problem(what, remedy, file=file, line=line + 1, col=col + 1, rule=rule)


def _complaint(complaint: str, context: str, line: str, col: int) -> _Fault:
    char = line[col : col + 1]
    if "{{" in line or "{%" in line:
        return "this looks like a template: {{ … }} is not filled in here", _TEMPLATE, "BD009"
    if char == "\t" or "tab" in complaint:
        return "a tab stands where YAML wants blanks", "use blanks to indent, never tabs", "BD006"
    if "nest" in complaint:
        return f"more than {MAX_DEPTH} levels are nested", "is it the right file?", "BD018"
    if "quoted scalar" in context and "escape" not in complaint:
        return "the quote is not closed", "close it with the same quote at the end of the text", "BD007"
    if "mapping values are not allowed" in complaint:
        remedy = (
            'quote the value if it holds ": ", as in note: "first: second"; else check quotes and indentation above'
        )
        return "a colon stands where no key can be", remedy, "BD008"
    if "cannot start any token" in complaint:
        return f"a value cannot begin with {char} unquoted", "quote the value", "BD008"
    said = f"{context}: {complaint}" if context else complaint
    return f"not YAML: {said}", "check the quotes, brackets and indentation here and on the lines before", "BD005"
