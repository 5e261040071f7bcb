"""Flag catalogs: what an engine's command line takes, one file a version, read when a recipe needs it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from beamdeploy.engines import place


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `choices`: anything else is refused by the parser; `known_values`: refused later, if at all.

    `varies`: the choices come from a compiled part, and other builds have others. `single_value`: takes a list, of
    which only one word can be given. `group`: engine, gateway, both or launcher.
    """

    name: str
    type: str
    takes_value: bool
    group: str = "engine"
    aliases: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    known_values: tuple[str, ...] = ()
    varies: bool = False
    nargs: str | None = None
    repeatable: bool = False
    human_readable: bool = False
    nullable: bool = False
    single_value: bool = False
    positional: bool = False
    deprecated: bool = False

    @property
    def several(self) -> bool:
        """Whether several words may follow."""
        return self.nargs in ("*", "+") and not self.single_value


@dataclass(frozen=True)
class Catalog:
    """All flags of one version. `names`: every spelling with its flag. `open`: the image may take more than these."""

    engine: str
    version: str
    open: bool
    names: Mapping[str, Flag]

    def near(self, name: str) -> str | None:
        """The known spelling that is closest to an unknown one."""
        dashed = name.replace("_", "-")
        if dashed in self.names:
            return dashed
        return next(iter(get_close_matches(name, self.names, 1, 0.8)), None)


@cache
def catalogs(engine: str) -> tuple[str, ...]:
    """The catalogs that a recipe of this engine can name."""
    files = (entry.name for entry in place(engine).iterdir())
    return tuple(sorted(name[6:-5] for name in files if name.startswith("flags-") and name.endswith(".json")))


@cache
def catalog(engine: str, version: str) -> Catalog | None:
    """The catalog of an engine's version; None: there is none."""
    rows = _rows(engine, version)
    if rows is None:
        return None
    head, flags = rows
    names = {spelling: flag for flag in map(_flag, flags.values()) for spelling in _spellings(flag)}
    return Catalog(engine, version, bool(head.get("open")), names)


def _rows(engine: str, version: str) -> tuple[Mapping[str, Any], dict[str, Mapping[str, Any]]] | None:
    """The head of a catalog's file, and its flags by name with those of the catalog that it extends."""
    file = place(engine) / f"flags-{version}.json"
    if "/" in version or not file.is_file():
        return None
    head = json.loads(file.read_text(encoding="utf-8"))
    flags = {row["flag"]: row for row in head.get("flags", ())}
    if "extends" in head:
        below = _rows(engine, head["extends"])
        assert below is not None, f"{file}: extends an unknown catalog"
        flags = below[1] | flags
    for name, more in head.get("adds", {}).items():
        flags[name] = _merged(flags.get(name, {"flag": name}), more)
    return head, flags


def _merged(row: Mapping[str, Any], more: Mapping[str, Any]) -> Mapping[str, Any]:
    """A flag with more choices, aliases or known values."""
    lists = {key: [*row.get(key, ()), *value] for key, value in more.items() if isinstance(value, list)}
    return {**row, **more, **lists}


def _flag(row: Mapping[str, Any]) -> Flag:
    return Flag(
        name=row["flag"],
        type=row.get("type", "str"),
        takes_value=row.get("takes_value", True),
        group=row.get("group", "engine"),
        aliases=tuple(row.get("aliases", ())),
        negatives=tuple(row.get("negatives", ())),
        choices=tuple(map(str, row.get("choices", ()))),
        known_values=tuple(map(str, row.get("known_values", ()))),
        varies=row.get("choices_vary_by_build", False),
        nargs=row.get("nargs"),
        repeatable=row.get("repeatable", False),
        human_readable=row.get("human_readable", False),
        nullable=row.get("nullable", False),
        single_value=row.get("single_value_only", False),
        positional=row.get("positional", False),
        deprecated=bool(row.get("deprecated", False)),
    )


def _spellings(flag: Flag) -> Iterator[str]:
    yield flag.name
    yield from (alias for alias in (*flag.aliases, *flag.negatives) if alias.startswith("--"))
