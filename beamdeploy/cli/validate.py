"""`beamdeploy validate`"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from beamdeploy.cli import options
from beamdeploy.cli.complete import checkable_files, rule_ids

if TYPE_CHECKING:
    from beamdeploy.outcome import Report


def _prefixes(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word.strip() for text in given for word in text.split(",") if word.strip())
    for word in words:
        if not (word.startswith("BD") and word[2:].isascii() and word[2:].isdigit() and len(word) <= 5):
            raise click.BadParameter(
                f"{word!r} is not the id of a rule, or how some begin, such as BD301 or BD3", ctx, param
            )
    return words


@click.command()
@click.argument("files", nargs=-1, required=True, shell_complete=checkable_files)
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option(
    "--select",
    multiple=True,
    callback=_prefixes,
    shell_complete=rule_ids,
    metavar="BD…",
    help="Only rules whose ids begin so (BD3,BD301); what no file may break is told anyway.",
)
@click.option(
    "--ignore",
    multiple=True,
    callback=_prefixes,
    shell_complete=rule_ids,
    metavar="BD…",
    help="Not the rules whose ids begin so.",
)
@options.verbose
@options.output_as("text", "json", "sarif", "junit", "github", "line")
def validate(
    files: tuple[str, ...], strict: bool, select: tuple[str, ...], ignore: tuple[str, ...], verbose: int, output: str
) -> int:
    """Check recipes, inventories and locks without a server; say everything that is wrong, with its place.

    FILES are YAML files, folders of them, or - for standard input. Ends with 2 when something is wrong. Infos are only
    counted without -v. A file may say what it means: `# beamdeploy: ignore BD301` on the line or above it,
    `ignore-file` above the first key.
    """
    from beamdeploy.check import check_all
    from beamdeploy.check.ignores import Choice
    from beamdeploy.report import show, show_found

    report = check_all(files, Choice(select, ignore), strict=strict)
    if output == "sarif":
        report = replace(report, details={**report.details, "titles": _titles()})
    return show_found(report, _summary(report), infos=bool(verbose)) if output == "text" else show(report, output)


def _titles() -> dict[str, str]:
    from beamdeploy.rules.pages import all_rules

    return {rule.id: rule.title for rule in all_rules()}


def _summary(report: Report) -> str:
    checked, skipped = len(report.details["files"]), report.details["skipped"]  # type: ignore[arg-type]  # a list
    others = f" ({skipped} of the folder{'s' if skipped != 1 else ''} not ours)" if skipped else ""
    return f"{checked} file{'s' if checked != 1 else ''} checked{others}"
