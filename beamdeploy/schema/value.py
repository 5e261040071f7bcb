"""A value in words: what it is, what it should be, and what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from beamdeploy.documents import Document, Place, dotted
from beamdeploy.schema.packaged import Schema
from beamdeploy.schema.validator import Error


@dataclass(frozen=True)
class Fault:
    path: Place
    rule: str
    what: str
    remedy: str
    key: bool = False


@dataclass(frozen=True)
class Around:
    """Around an error: the document, and the schema that `#/…` references mean."""

    document: Document
    root: Schema
    faults: Callable[[Error, Around], Iterable[Fault]]  # of an error below this one


def null_fault(path: Place) -> Fault:
    what = f"{dotted(path)} is empty (null): remove the key or give a value"
    return Fault(path, "BD031", what, 'remove the key or give a value; empty text is ""')


def nearest(word: str, choices: Iterable[object], cutoff: float = 0.7) -> str | None:
    """The choice that was most likely meant: the same but for case, - and _, else the closest."""
    plain = {_plain(str(each)): str(each) for each in choices}
    near = get_close_matches(_plain(word), plain, 1, cutoff)
    return plain[near[0]] if near else None


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")


_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing (null)",
}


def _kind(value: object) -> str:
    """What a value is, in words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return "a number"
    kinds: dict[type, str] = {str: "text", dict: "a mapping", list: "a list", type(None): "empty (null)"}
    return kinds.get(type(value), type(value).__name__)


def type_fault(expected: Sequence[str], value: object, path: Place, around: Around) -> Fault:
    if value is None:
        return null_fault(path)
    wanted = " or ".join(dict.fromkeys(_KINDS.get(each, each) for each in expected))
    what = f"{dotted(path)}: {wanted} is expected, this is {_this(value, path, around)}"
    return Fault(path, "BD033", what, _type_remedy(expected, value, path, around))


def _this(value: object, path: Place, around: Around) -> str:
    """`a number (1.10 is read as 1.1)`: the kind of a value, and what was written if that is not the same."""
    written = around.document.written.get(path)
    if written is not None and isinstance(value, (int, float)):
        same = written == as_yaml(value)
        return f"{_kind(value)}" if same and isinstance(value, bool) else _number(value, written, same=same)
    return _kind(value)


def _number(value: object, written: str, *, same: bool) -> str:
    if isinstance(value, bool):
        return f"{as_yaml(value)} (written {written})"
    return f"a number: {written}" if same else f"a number: {written} is read as {as_yaml(value)}"


def _type_remedy(expected: Sequence[str], value: object, path: Place, around: Around) -> str:
    scalar = not isinstance(value, (dict, list))
    if "string" in expected and scalar:
        return f'quote it: "{around.document.written.get(path, as_yaml(value))}"'
    if {"number", "integer"} & set(expected) and isinstance(value, str):
        return _number_remedy(expected, value)
    if "boolean" in expected and isinstance(value, str):
        return f"remove the quotes: {value.lower()}" if value.lower() in ("true", "false") else "write true or false"
    if "integer" in expected and isinstance(value, float):
        return f"write {int(value)}" if value.is_integer() else "write a number without a fraction"
    if "array" in expected:
        return f"write a list: [{as_yaml(value)}]" if scalar else "write a list: one `- value` a line"
    return f"write {_FORMS.get(expected[0], 'another kind of value')}"


_FORMS = {
    "object": "a mapping: `key: value` lines below it",
    "string": "one text, not several",
    "integer": "one whole number",
    "number": "one number",
    "boolean": "true or false",
}


def _number_remedy(expected: Sequence[str], value: str) -> str:
    whole = re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", value, re.ASCII)
    if whole or ("number" in expected and re.fullmatch(r"-?(0|[1-9][0-9]{0,17})\.[0-9]+", value, re.ASCII)):
        return f"remove the quotes: {value}"
    return "write a whole number in decimal digits" if "number" not in expected else "write a number in decimal digits"


def choice_fault(choices: Sequence[object], value: object, path: Place, around: Around) -> Fault:
    if value is None:
        return null_fault(path)
    written = around.document.written.get(path)
    if written is not None and written in choices:
        what = f"{dotted(path)}: text is expected, this is {_this(value, path, around)}"
        return Fault(path, "BD033", what, f'quote it: "{written}"')
    wanted = listed(choices) if len(choices) == 1 else f"one of {listed(choices)}"
    what = f"{dotted(path)}: {shown(value)} is not {wanted}"
    near = nearest(str(value), choices) if isinstance(value, str) else None
    one = as_yaml(choices[0]) if len(choices) == 1 else None
    return Fault(path, "BD034", what, f"did you mean {near}?" if near else f"write {one or 'one of them'}")


def as_yaml(value: object) -> str:
    """A value as it is written in YAML (a flow value)."""
    return value if isinstance(value, str) else json.dumps(value)


def shown(value: object) -> str:
    """A value for a message: one line, not too long; text in its quotes if it is not plain to see."""
    words = value if isinstance(value, str) and re.fullmatch(r"[!-~]+", value) else json.dumps(value)
    return words if len(words) <= 60 else words[:57] + "..."


def listed(values: Iterable[object]) -> str:
    return ", ".join(as_yaml(each) for each in values)
