"""The part of Go's templates that `--format` is used with: fields, json, index, join, len, literals and pipes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from beamdeploy.sandbox.docker.failure import Failure

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|`[^`]*`|\||[^\s|"`]+)')


def fill(text: str, value: Any, methods: Mapping[str, Callable[[str], str]] | None = None) -> str:
    """The template's text for a value; `methods`: what `{{.Label "x"}}` calls. Failure: as Go words it."""
    return "".join(_parts(text, value, methods or {}))


def _parts(text: str, value: Any, methods: Mapping[str, Callable[[str], str]]) -> Iterator[str]:
    at = 0
    while (start := text.find("{{", at)) >= 0:
        yield text[at:start]
        end = _end(text, start + 2)
        if end < 0:
            raise Failure("template parsing error: template: :1: unclosed action", 64)
        yield said(_pipe(text[start + 2 : end], start + 2, value, methods))
        at = end + 2
    yield text[at:]


def _end(text: str, at: int) -> int:
    """Where the action ends: braces inside quotes do not end it."""
    quoted = ""
    while at < len(text):
        if quoted:
            if text[at] == "\\" and quoted == '"':
                at += 1
            elif text[at] == quoted:
                quoted = ""
        elif text[at] in '"`':
            quoted = text[at]
        elif text.startswith("}}", at):
            return at
        at += 1
    return -1


def _pipe(action: str, at: int, value: Any, methods: Mapping[str, Callable[[str], str]]) -> Any:
    commands: list[list[str]] = [[]]
    for token in _TOKEN.findall(action):
        if token == "|":
            commands.append([])
        else:
            commands[-1].append(token)
    result: Any = None
    for number, command in enumerate(commands):
        arguments = [_operand(token, at, value, methods) for token in command if not _is_function(token)]
        if number:
            arguments.append(result)
        result = _call(command, arguments, at, methods)
    return result


def _is_function(token: str) -> bool:
    return re.fullmatch(r"[A-Za-z]\w*", token) is not None and token not in ("true", "false", "nil")


def _operand(token: str, at: int, value: Any, methods: Mapping[str, Callable[[str], str]]) -> Any:
    if token.startswith('"'):
        return json.loads(token)
    if token.startswith("`"):
        return token[1:-1]
    if token.removeprefix("-").isdigit():
        return int(token)
    if token.startswith(".") and token[1:] in methods:
        return None
    if token.startswith("."):
        return _field(token, at, value)
    raise Failure(f'template parsing error: template: :1: unexpected "{token}" in operand', 64)


def _field(token: str, at: int, value: Any) -> Any:
    for key in filter(None, token.split(".")):
        if not isinstance(value, Mapping) or key not in value:
            what = f'template: :1:{at + token.rfind(".")}: executing "" at <{token}>: map has no entry for key "{key}"'
            raise Failure(f"template parsing error: {what}", out="\n")
        value = value[key]
    return value


def _call(
    command: Sequence[str], arguments: Sequence[Any], at: int, methods: Mapping[str, Callable[[str], str]]
) -> Any:
    first = command[0] if command else ""
    if first.startswith(".") and first[1:] in methods:
        return methods[first[1:]](*arguments[1:])
    if not _is_function(first):
        return arguments[0]
    if first not in FUNCTIONS:
        raise Failure(f'template parsing error: template: :1: function "{first}" not defined', 64)
    return FUNCTIONS[first](*arguments)


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key, "")
        elif isinstance(value, Sequence) and key < len(value):
            value = value[key]
        else:
            what = f'executing "" at <index>: error calling index: reflect: slice index out of range: {key}'
            raise Failure(f"template parsing error: template: :1:2: {what}", out="\n")
    return value


def as_json(value: Any) -> str:
    """JSON as Go writes it: no blanks, nothing escaped that need not be."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "json": as_json,
    "index": _index,
    "len": len,
    "join": lambda parts, by: by.join(parts),
    "lower": lambda text: text.lower(),
    "upper": lambda text: text.upper(),
    "println": lambda *parts: " ".join(map(said, parts)) + "\n",
}


def said(value: Any) -> str:
    """A value as Go prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{said(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(said, value)) + "]"
    return str(value)
