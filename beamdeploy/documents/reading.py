"""One reading of one text: events in, plain values with their places and every problem out."""

from __future__ import annotations

import re
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

from beamdeploy.documents.events import events, mark_of
from beamdeploy.documents.place import Document, Mark, Place, dotted
from beamdeploy.documents.scalar import FIRST, key_fault, plain_value
from beamdeploy.documents.syntax import MAX_DEPTH, TEMPLATE, is_template, syntax_problem
from beamdeploy.errors import Problem

MAX_NODES = 300_000
MAX_ALIASED_NODES = 10_000
MAX_PROBLEMS = 100
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]")


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


class Reading:
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
            self.problems.append(syntax_problem(self.file, self.text, error))
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
        self.problems.append(Problem(what[:400], remedy, file=self.file, line=mark.line, col=mark.col, rule=rule))
        if len(self.problems) > MAX_PROBLEMS:
            what = f"more than {MAX_PROBLEMS} problems; the rest of the file was not looked at"
            self.stop(mark, what, "is it the right file?", "BD026")

    def stop(self, mark: Mark, what: str, remedy: str, rule: str) -> None:
        self.problems.append(Problem(what[:400], remedy, file=self.file, line=mark.line, col=mark.col, rule=rule))
        raise _Stop

    def walk(self) -> None:
        started = 0
        for event in events(self.text):
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
                    return self.note(mark_of(event), "the file holds several documents", remedy, "BD011")
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
        mark = mark_of(event)
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
        if text and text[0] not in FIRST:
            return text
        value, fault = plain_value(text)
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
        return None if key and key[0] not in FIRST else key_fault(key)

    def twice(self, frame: _Frame, key: str, path: Place, mark: Mark) -> tuple[str, str, str] | None:
        if key not in frame.items:
            return None
        first = self.keys.get(path)
        lines = f"on lines {first.line} and {mark.line}" if first else f"again on line {mark.line}"
        what = f"the key {key} is written twice: {dotted(path)} {lines}"
        return what, "keep one of them; nothing is merged", "BD012"

    def open(self, event: Any, *, mapping: bool) -> None:
        mark = mark_of(event)
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
        if is_template(self.text, event.start_mark.line):
            # both braces are flow mappings to YAML; nothing behind them can be believed
            self.stop(mark, "this looks like a template: {{ … }} is not filled in here", TEMPLATE, "BD009")
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
        mark, name = mark_of(event), str(event.anchor)
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
