"""Write docs/rules.md from the rules: `python scripts/rules.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from beamdeploy.rules.pages import all_rules
from beamdeploy.rules.rule import Rule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rules.md"
HEAD = """# Rules

Every problem that beamdeploy reports names its rule. `beamdeploy explain BD301` prints one of these pages. A `# <-`
stands where the fault is reported. This file is generated: change the rule, then run `python scripts/rules.py`.
"""
SUBJECTS = (
    ("BD0", "Files: YAML, schema, ignores"),
    ("BD1", "Inventories"),
    ("BD2", "What is found on a host"),
    ("BD3", "Recipes: engine, flags, GPUs, model, speculative decoding"),
    ("BD4", "Recipes: container, environment, image, request"),
)


def text() -> str:
    """The whole page."""
    sections = (part for prefix, subject in SUBJECTS for part in section(prefix, subject))
    return "\n".join([HEAD, *sections]).rstrip() + "\n"


def section(prefix: str, subject: str) -> Iterator[str]:
    """A table of the subject's rules, then a page each."""
    rules = [rule for rule in all_rules() if rule.id.startswith(prefix)]
    yield f"## {subject}\n\n| rule | level | what |\n|---|---|---|"
    yield from (f"| [{rule.id}](#{rule.id.lower()}) | {rule.level} | {cell(rule.title)} |" for rule in rules)
    yield ""
    yield from map(page, rules)


def cell(words: str) -> str:
    return words.replace("|", "\\|")


def page(rule: Rule) -> str:
    """One rule."""
    source = f"\nSource: {rule.source}\n" if rule.source else ""
    examples = f"Bad:\n\n```yaml\n{rule.bad}\n```\n\nGood:\n\n```yaml\n{rule.good}\n```\n"
    return f"### {rule.id}\n\n**{rule.title}** ({rule.level}). {rule.reason}\n\n{examples}{source}"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
