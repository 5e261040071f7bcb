"""What a rule is, what it looks at, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from beamdeploy.documents import Place
from beamdeploy.engines import EngineFacts
from beamdeploy.engines.catalog import Catalog, Flag
from beamdeploy.engines.traits import Traits
from beamdeploy.hardware import Family
from beamdeploy.lock import Lock
from beamdeploy.models import DrafterFacts, ModelFacts, Variant
from beamdeploy.recipe import Recipe


@dataclass(frozen=True)
class Subject:
    """A recipe that holds to the schema, and all that is known without a server. None: not known, no rule asks.

    `variant` and `drafter`: which checkpoints of `model` the recipe's sources name.
    """

    recipe: Recipe
    lock: Lock | None
    engine: EngineFacts | None
    catalog: Catalog | None
    traits: Traits
    family: Family | None
    model: ModelFacts | None
    variant: Variant | None
    drafter: DrafterFacts | None

    def setting(self, path: str) -> Any:
        """What the recipe says at "engine.kvstore"; None: nothing."""
        value: Any = self.recipe.source
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def holds(self, path: str) -> Any:
        """What the recipe says, or the engine's own default."""
        said = self.setting(path)
        return self.traits.defaults.get(path) if said is None else said

    def flag(self, name: str) -> Flag | None:
        """The flag that a spelling with its dashes names."""
        return self.catalog.names.get(name) if self.catalog else None

    def argument(self, name: str) -> Any:
        """The value in engine.args of a flag, whatever its spelling there; None: it is not there."""
        for key, value in self.recipe.engine.args.items():
            flag = self.flag(f"--{key}")
            if f"--{key}" == name or (flag is not None and flag.name == name):
                return value
        return None

    def unverified(self, path: Place) -> bool:
        """Whether the recipe says that this value is meant although the catalog lacks it."""
        return ".".join(map(str, path)) in self.recipe.engine.unverified


@dataclass(frozen=True)
class Finding:
    """Something that a rule found: `path` is "engine.kvstore", or a tuple where a key may hold dots.

    `level`: another one than the rule's. `key`: the key is at fault, not its value.
    """

    path: Place | str
    what: str
    remedy: str
    level: str | None = None
    key: bool = False

    @property
    def place(self) -> Place:
        return tuple(self.path.split(".")) if isinstance(self.path, str) else self.path


Check = Callable[[Subject], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """One rule with its page: `bad` and `good` are parts of a file, with `# <-` where the bad one is at fault.

    `check` None: the module that reads the file, or looks at the host, finds it.
    """

    id: str
    title: str
    level: str
    reason: str
    bad: str
    good: str
    source: str = ""
    check: Check | None = None


def closest(word: str, known: tuple[str, ...], cutoff: float = 0.7) -> str | None:
    """The known word that was probably meant."""
    lower = {each.lower(): each for each in known}
    near = get_close_matches(word.lower(), lower, 1, cutoff)
    return lower[near[0]] if near else None


def whole(value: object) -> int | None:
    """A whole number, also when it is written as text; None: it is none, or longer than any that has a meaning."""
    text = "" if isinstance(value, bool) else str(value)
    return int(text) if len(text) <= 18 and text.isascii() and text.isdigit() else None


def listed(words: tuple[str, ...], most: int = 24) -> str:
    """ "a, b, c", cut where there are too many to read."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
