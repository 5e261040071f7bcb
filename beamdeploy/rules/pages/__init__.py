"""The pages of all rules, also of those that other modules check."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from beamdeploy.rules import RULES, foreign
from beamdeploy.rules.rule import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule that a problem can name, by id."""
    folder = files("beamdeploy.rules.pages")
    texts = (entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    read = [_page(id, page) for text in texts for id, page in yaml.safe_load(text).items()]
    return tuple(sorted((*RULES, *foreign.RULES, *read), key=lambda rule: rule.id))


def rule_of(id: str) -> Rule | None:
    """The rule; None: there is none with that id."""
    return next((rule for rule in all_rules() if rule.id == id.upper()), None)


def near(id: str) -> tuple[str, ...]:
    """The ids that were perhaps meant."""
    digits = id.upper().translate(str.maketrans("OIL", "011"))
    return tuple(get_close_matches(digits, [rule.id for rule in all_rules()], 3, 0.7))


def _page(id: str, page: dict[str, Any]) -> Rule:
    return Rule(id, page["title"], page.get("level", "error"), page["reason"], page["bad"], page["good"])
