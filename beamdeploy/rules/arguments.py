"""Rules on the values of engine.args."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from beamdeploy.engines.catalog import Flag
from beamdeploy.rules.flags import arguments
from beamdeploy.rules.rule import Finding, Rule, Subject
from beamdeploy.rules.values import verdict

_NUMBER = {"int": r"-?[0-9]+", "float": r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"}
_READABLE = r"[0-9]+(\.[0-9]+)?([kKmMgGtT]i?)?|auto"
_KINDS = {"int": "a whole number", "float": "a number", "json": "a mapping (JSON)", "bool": "true or false"}


def own(subject: Subject) -> Iterator[tuple[str, Any, Flag]]:
    """(name, value, flag) of what is known and is no setting of the recipe; the rest has its finding already."""
    for name, value, flag in arguments(subject):
        if flag is not None and subject.traits.setting_of(flag.name) is None and "." not in name.partition("config")[2]:
            yield name, value, flag


def is_switch(name: str, flag: Flag) -> bool:
    return not flag.takes_value or f"--{name}" in flag.negatives


def words(name: str, value: Any, flag: Flag) -> tuple[Any, ...]:
    """The words that follow a flag with a value."""
    if is_switch(name, flag) or isinstance(value, bool):
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _type(subject: Subject) -> Iterator[Finding]:
    for name, value, flag in own(subject):
        wrong = [word for word in words(name, value, flag) if not _fits(word, flag)]
        if wrong and not (isinstance(wrong[0], str) and _is_option(wrong[0])):
            what = f"engine.args.{name}: {_shown(wrong[0])} is not {_KINDS.get(flag.type, 'text')}"
            yield Finding(("engine", "args", name), what, f"{flag.name} takes {_KINDS.get(flag.type, 'one word')}.")


def _fits(word: Any, flag: Flag) -> bool:
    if isinstance(word, Mapping):
        return flag.type == "json"
    if flag.nullable and str(word).lower() == "none":
        return True
    if flag.type in _NUMBER:
        form = f"{_NUMBER[flag.type]}|{_READABLE}" if flag.human_readable else _NUMBER[flag.type]
        return re.fullmatch(form, str(word)) is not None
    if flag.type == "bool":
        return str(word).lower() in ("true", "false", "1", "0")
    return _is_json(word) if flag.type == "json" else True


def _is_json(word: Any) -> bool:
    try:
        json.loads(str(word))
    except (ValueError, RecursionError):
        return False
    return True


def _shown(word: Any) -> str:
    return "a mapping" if isinstance(word, Mapping) else str(word)


def _choice(subject: Subject) -> Iterator[Finding]:
    for name, value, flag in own(subject):
        for word in words(name, value, flag):
            found = None if isinstance(word, Mapping) else verdict(subject, flag, str(word), ("engine", "args", name))
            if found is not None:
                yield found


def _switch(subject: Subject) -> Iterator[Finding]:
    for name, value, flag in own(subject):
        if is_switch(name, flag) and not isinstance(value, bool):
            what = f"engine.args.{name}: {flag.name} is a switch and takes no value"
            yield Finding(("engine", "args", name), f"{what}: {_shown(value)} would stand alone", "Write true.")


def _off(subject: Subject) -> Iterator[Finding]:
    for name, value, flag in own(subject):
        if value is False:
            opposite = next((each for each in flag.negatives if each != f"--{name}"), None)
            what = f"engine.args.{name}: false gives no flag, so that the engine's default holds"
            remedy = f"To turn it off write {opposite[2:]}: true." if opposite else "Remove it."
            yield Finding(("engine", "args", name), what, remedy)


def _missing(subject: Subject) -> Iterator[Finding]:
    for name, value, flag in own(subject):
        if value is True and not is_switch(name, flag) and flag.nargs not in ("?", "*"):
            what = f"engine.args.{name}: {flag.name} needs a value, true gives the flag alone"
            yield Finding(("engine", "args", name), what, f"Write its value: {_KINDS.get(flag.type, 'text')}.")


def _several(subject: Subject) -> Iterator[Finding]:
    for name, value, flag in own(subject):
        if isinstance(value, list) and len(value) > 1 and not is_switch(name, flag) and not flag.several:
            what = f"engine.args.{name}: {flag.name} takes one value, {len(value)} are given"
            more = " The others would be read as positional arguments." if subject.recipe.engine.name else ""
            yield Finding(("engine", "args", name), what, f"Give one value.{more}")


def _options(subject: Subject) -> Iterator[Finding]:
    for name, value, flag in own(subject):
        for word in words(name, value, flag):
            if isinstance(word, str) and _is_option(word):
                what = f"engine.args.{name}: {word} begins with a dash and would be read as a flag"
                yield Finding(("engine", "args", name), what, "Give a value, or make it a key of its own: true.")


def _is_option(word: str) -> bool:
    return word.startswith("-") and re.fullmatch(_NUMBER["float"], word) is None


RULES = (
    Rule(
        "BD315",
        "The flag's value is of another kind",
        "error",
        "The engine's argument parser converts the word and refuses what is no number or no JSON.",
        "engine:\n  args:\n    max-prefill-tokens: many  # <-",
        "engine:\n  args:\n    max-prefill-tokens: 16384",
        "the engine's argument parser",
        _type,
    ),
    Rule(
        "BD316",
        "The flag's value is not one of its choices",
        "error",
        "The engine refuses all other values. Lists that differ between builds give an error for what looks misspelt "
        "and a warning for the rest.",
        "engine:\n  args:\n    load-format: safetensor  # <-",
        "engine:\n  args:\n    load-format: safetensors",
        "the engine's argument parser",
        _choice,
    ),
    Rule(
        "BD317",
        "A switch has a value",
        "error",
        "The value would stand alone behind the switch, where TokenSpeed reads it as an unexpected positional "
        "argument and the other engines end at once.",
        'engine:\n  args:\n    enable-metrics: "yes"  # <-',
        "engine:\n  args:\n    enable-metrics: true",
        "TokenSpeed 0.1.1 cli/_argsplit.py",
        _switch,
    ),
    Rule(
        "BD318",
        "A flag needs a value",
        "error",
        "With true the flag is given alone; its parser then takes the next flag for its value, or ends.",
        "engine:\n  args:\n    max-prefill-tokens: true  # <-",
        "engine:\n  args:\n    max-prefill-tokens: 16384",
        "the engine's argument parser",
        _missing,
    ),
    Rule(
        "BD319",
        "A flag that takes one value has several",
        "error",
        "The words behind the first are read as positional arguments. Some gateway flags of TokenSpeed are documented "
        "as lists, of which `ts serve` can pass one word only.",
        "engine:\n  args:\n    log-level:\n      - info  # <-\n      - warn",
        "engine:\n  args:\n    cudagraph-capture-sizes:\n      - 1\n      - 8",
        "TokenSpeed 0.1.1 cli/_argsplit.py",
        _several,
    ),
    Rule(
        "BD320",
        "A flag's value begins with a dash",
        "error",
        "It would be read as the next flag: TokenSpeed's splitter takes no value that begins with --.",
        "engine:\n  args:\n    chat-template: --trust-remote-code  # <-",
        "engine:\n  args:\n    chat-template: /weights/nvfp4/chat_template.jinja",
        "TokenSpeed 0.1.1 cli/_argsplit.py",
        _options,
    ),
    Rule(
        "BD321",
        "A flag is set to false",
        "warning",
        "false gives no word at all. Where the engine's default is on, it stays on.",
        "engine:\n  args:\n    enable-log-requests: false  # <-",
        "engine:\n  args:\n    no-enable-log-requests: true",
        "",
        _off,
    ),
)
