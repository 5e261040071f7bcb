"""How `tokenspeed serve` reads its words: which flag goes to the engine, which to the gateway, and when each complains.

Source: TokenSpeed 0.1.1, cli/_argsplit.py, cli/serve_smg.py and the argument parsers of the engine and of its gateway.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

CATALOGS = Path(__file__).resolve().parent.parent / "engines" / "tokenspeed"
POSITIVE = ("--engine-startup-timeout", "--gateway-startup-timeout", "--drain-timeout", "--control-port")
INJECTED = (
    ("--policy", "passthrough"),
    ("--disable-retries",),
    ("--disable-circuit-breaker",),
    ("--disable-load-monitoring",),
    ("--tokenizer-cache-enable-l0",),
    ("--tokenizer-cache-enable-l1",),
)
GROUPS = {"engine": ("engine", "both"), "gateway": ("gateway", "both")}


@dataclass(frozen=True)
class Flag:
    """One entry of the catalog, as far as parsing needs it."""

    names: tuple[str, ...]
    negatives: tuple[str, ...]
    type: str
    group: str
    choices: tuple[str, ...]
    known_values: tuple[str, ...]
    takes_value: bool
    nargs: str | None
    single_value_only: bool

    @property
    def several(self) -> bool:
        """Whether the launcher passes several bare words on: only the engine's own list flags."""
        return self.nargs in ("+", "*") and not self.single_value_only


@dataclass(frozen=True)
class Split:
    """The words, sorted by who reads them."""

    model: str | None
    engine: tuple[str, ...]
    gateway: tuple[str, ...]
    launcher: Mapping[str, str]


class ArgumentsRefused(Exception):
    """Words that were refused: the exit status of the process that did, and the lines that it printed."""

    def __init__(self, status: int, lines: Sequence[str]) -> None:
        self.status = status
        self.lines = tuple(lines)
        super().__init__("; ".join(lines))


def flags(name: str, folder: Path = CATALOGS) -> tuple[Flag, ...]:
    """All flags of one catalog, with what it adds to the one that it extends."""
    catalog = json.loads((folder / f"flags-{name}.json").read_text(encoding="utf-8"))
    own = tuple(_flag(raw) for raw in catalog.get("flags", []))
    inherited = flags(catalog["extends"], folder) if "extends" in catalog else ()
    adds = catalog.get("adds", {})
    return tuple(_widen(flag, adds.get(flag.names[0], {})) for flag in inherited) + own


def _flag(raw: Mapping[str, object]) -> Flag:
    def words(key: str) -> tuple[str, ...]:
        value = raw.get(key, [])
        assert isinstance(value, list)
        return tuple(map(str, value))

    return Flag(
        names=(str(raw["flag"]), *words("aliases")),
        negatives=words("negatives"),
        type=str(raw.get("type", "str")),
        group=str(raw.get("group", "engine")),
        choices=words("choices"),
        known_values=words("known_values"),
        takes_value=bool(raw.get("takes_value", True)),
        nargs=str(raw["nargs"]) if raw.get("nargs") else None,
        single_value_only=bool(raw.get("single_value_only", False)),
    )


def _widen(flag: Flag, more: Mapping[str, Sequence[str]]) -> Flag:
    choices = (*flag.choices, *more.get("choices", ()))
    return replace(flag, choices=choices, known_values=(*flag.known_values, *more.get("known_values", ())))


def split(words: Sequence[str], catalog: Sequence[Flag]) -> Split:
    """Sort the words after `serve`. ArgumentsRefused (1): the launcher itself cannot make sense of them.

    A flag that the engine does not know goes to the gateway, whatever it is: only the gateway can refuse it, and it
    starts after the engine has loaded.
    """
    known = {name: flag for flag in catalog for name in (*flag.names, *flag.negatives)}
    model, rest = (words[0], list(words[1:])) if words and not words[0].startswith("-") else (None, list(words))
    parts: dict[str, list[str]] = {"engine": [], "gateway": []}
    launcher: dict[str, str] = {}
    while rest:
        name, values = _take(rest, known)
        flag = known.get(name)
        if flag is not None and flag.group == "launcher":
            launcher[name] = _launcher_value(name, flag, values)
        elif flag is not None and flag.names[0] == "--model":
            model = _only_model(model, values)
        else:
            for part in _readers(flag):
                parts[part] += [name, *values]
    return Split(model, tuple(parts["engine"]), _inject(parts["gateway"], launcher), launcher)


def _readers(flag: Flag | None) -> tuple[str, ...]:
    group = "gateway" if flag is None else flag.group
    return tuple(part for part, groups in GROUPS.items() if group in groups)


def _take(rest: list[str], known: Mapping[str, Flag]) -> tuple[str, list[str]]:
    """Remove one flag and its values from the front of `rest`."""
    word = rest.pop(0)
    if not word.startswith("-"):
        raise ArgumentsRefused(1, (f"ts serve: unexpected positional arg: {word!r}",))
    name, joined, value = word.partition("=")
    values = [value] if joined else []
    flag = known.get(name)
    takes = flag is None or flag.takes_value
    limit = len(rest) if flag is not None and flag.several else 1
    while takes and not joined and rest and not rest[0].startswith("--") and len(values) < limit:
        values.append(rest.pop(0))
    return name, values


def _launcher_value(name: str, flag: Flag, values: Sequence[str]) -> str:
    if not flag.takes_value:
        return "true"
    value = values[0] if values else ""
    if name in POSITIVE and not (value.isdecimal() and int(value) > 0):
        raise ArgumentsRefused(1, (f"ts serve: {name} must be a positive integer, got {value!r}",))
    return value


def _only_model(model: str | None, values: Sequence[str]) -> str:
    if model is not None:
        raise ArgumentsRefused(1, ("ts serve: give the model once: as the first word or with --model, not both",))
    if not values:
        raise ArgumentsRefused(1, ("ts serve: --model needs a value",))
    return values[0]


def _inject(gateway: Sequence[str], launcher: Mapping[str, str]) -> tuple[str, ...]:
    """The gateway's words with what the launcher adds when the user says nothing."""
    added = [*INJECTED, ("--reasoning-parser", "passthrough"), ("--port", "8000")]
    off = {name.replace("--no-", "--") for name in launcher}
    extra = [word for pair in added if pair[0] not in gateway and pair[0] not in off for word in pair]
    return (*gateway, *extra)


def parse(program: str, words: Sequence[str], catalog: Sequence[Flag]) -> Mapping[str, object]:
    """Parse words as the "engine" or the "gateway" does. ArgumentsRefused (2) with what argparse prints."""
    parser = _parser(program, catalog)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return vars(parser.parse_args(list(words)))
    except SystemExit as end:
        raise ArgumentsRefused(int(end.code or 0), printed.getvalue().splitlines()) from None


def _parser(program: str, catalog: Sequence[Flag]) -> argparse.ArgumentParser:
    # the engine's parser refuses abbreviations, the gateway's takes unique ones
    name = "ts serve" if program == "engine" else "smg launch"
    parser = argparse.ArgumentParser(prog=name, usage=f"{name} [-h] [options]", allow_abbrev=program == "gateway")
    add_flags(parser, program, catalog)
    return parser


def add_flags(parser: argparse.ArgumentParser, program: str, catalog: Sequence[Flag]) -> None:
    """Add the flags that the "engine" or the "gateway" reads, all but the model."""
    caching = parser.add_mutually_exclusive_group()
    for flag in catalog:
        if flag.group in GROUPS[program] and flag.names[0] != "--model":
            exclusive = flag.names[0] in ("--enable-prefix-caching", "--disable-prefix-caching")
            add_flag(caching if exclusive else parser, _as_read_by(program, flag))


def _as_read_by(program: str, flag: Flag) -> Flag:
    # of a flag that both read, only the gateway holds the list of names
    return replace(flag, choices=()) if program == "engine" and flag.group == "both" else flag


def add_flag(parser: argparse._ActionsContainer, flag: Flag) -> None:
    """One flag with its other spellings, kind and choices."""
    dest = flag.names[0].lstrip("-").replace("-", "_")
    if flag.negatives:
        parser.add_argument(*flag.negatives, dest=dest, action="store_false", default=None)
    if not flag.takes_value:
        parser.add_argument(*flag.names, dest=dest, action="store_true", default=None)
        return
    kind = CONVERTERS.get(flag.type, str)
    if any(not choice.lstrip("-").isdecimal() for choice in flag.choices):
        kind = str  # numbers, or a word such as auto
    choices = [kind(choice) for choice in flag.choices] or None
    parser.add_argument(*flag.names, dest=dest, type=kind, choices=choices, nargs=flag.nargs)


CONVERTERS: Mapping[str, Callable[[str], object]] = {"int": int, "float": float, "json": str}
