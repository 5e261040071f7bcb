"""`beamdeploy smoke`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from beamdeploy.cli import complete, options

if TYPE_CHECKING:
    from beamdeploy.outcome import Report


def _checks(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[str, ...]:
    """`--only a,b`; without it all."""
    from beamdeploy.smoke import CHECKS

    names = tuple(given.split(",")) if given is not None else ("all",)
    unknown = [name for name in names if name not in (*CHECKS, "all")]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is no check; there are {', '.join(CHECKS)}", ctx, param)
    return names


@click.command()
@click.argument("target", metavar="RECIPE|NAME", shell_complete=complete.recipe_files)
@options.hosts
@options.overrides
@click.option("--only", callback=_checks, metavar="CHECK,…", help="Only these checks.  [default: all that fit]")
@options.output_as("text", "json", "junit")
def smoke(
    target: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    only: tuple[str, ...],
    output: str,
) -> int:
    """Ask a server all that a client will: chat, stream, tools, reasoning, turns, and what must be refused.

    Every check says pass, fail or skip, why, and with -o json the request and the answer. Nothing is changed on the
    host; the requests go through the SSH session. Ends with 6 when a check fails.
    """
    from beamdeploy.cli import reach
    from beamdeploy.cli.targets import load_hosts
    from beamdeploy.contract import ask_all
    from beamdeploy.ranks import heads
    from beamdeploy.report import Progress, show, show_table

    wanted, notes = reach.wanted(target, overrides, output)
    hosts = load_hosts(where) if isinstance(wanted, str) else heads(wanted, load_hosts(where))
    with Progress() as progress:
        report = ask_all(hosts, wanted, only, progress.event, accept_new=where.accept_new, forks=where.forks)
    if output == "text":
        show_table(("HOST", "CHECK", "VERDICT", "TIME", "WHY"), _rows(report))
    return show(report.beside(notes), output)


def _rows(report: Report) -> list[Sequence[str]]:
    rows = [(host.name, each) for host in report.hosts for each in _listed(host.details)]
    return [
        (host, str(each["check"]), str(each["verdict"]), f"{each['seconds']:.2f} s", str(each["why"]))
        for host, each in rows
    ]


def _listed(details: Mapping[str, object]) -> Sequence[Mapping[str, Any]]:
    return cast(Sequence[Mapping[str, Any]], details.get("checks", ()))
