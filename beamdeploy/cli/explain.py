"""`beamdeploy explain`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from beamdeploy.cli import complete, options

if TYPE_CHECKING:
    from beamdeploy.rules.rule import Rule

Line = tuple[tuple[str, str], ...]


@click.command()
@click.argument("rule", required=False, shell_complete=complete.rule_ids)
@options.output
def explain(rule: str | None, output: str) -> int:
    """Say why RULE (such as BD301) is a rule, with a bad and a good example. Without RULE: list all."""
    from dataclasses import asdict

    from beamdeploy.errors import InputError, Problem
    from beamdeploy.outcome import Report
    from beamdeploy.report import show, show_lines
    from beamdeploy.rules.pages import all_rules, near, rule_of

    found = rule_of(rule) if rule else None
    if rule and found is None:
        meant = near(rule)
        remedy = f"Did you mean {' or '.join(meant)}?" if meant else "beamdeploy explain lists all rules."
        raise InputError([Problem(f"there is no rule {rule}", remedy, "explain")])
    rules = (found,) if found else all_rules()
    if output == "json":
        pages = [{key: value for key, value in asdict(each).items() if key != "check"} for each in rules]
        return show(Report("Explain", 0, details={"rules": pages}), output)
    show_lines(_page(found) if found else [_row(each) for each in rules])
    return 0


def _row(rule: Rule) -> Line:
    return ((f"{rule.id}  ", "bold"), (f"{rule.level:<7}  ", ""), (rule.title, ""))


def _page(rule: Rule) -> list[Line]:
    from textwrap import wrap

    source = ["", f"Source: {rule.source}"] if rule.source else []
    text = [*wrap(rule.reason, 100), "", "Bad:", *_indented(rule.bad), "", "Good:", *_indented(rule.good), *source]
    head: Line = ((f"{rule.id} ", "bold"), (f"({rule.level}) ", ""), (rule.title, "bold"))
    return [head, (("", ""),), *(((line, ""),) for line in text)]


def _indented(example: str) -> list[str]:
    return [f"    {line}" for line in example.splitlines()]
