"""`beamdeploy history`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from beamdeploy.cli import options

if TYPE_CHECKING:
    from beamdeploy.outcome import HostReport


@click.command()
@click.argument("target", metavar="[RECIPE|NAME]", required=False)
@click.argument("number", type=click.IntRange(min=1), required=False)
@options.hosts
@options.output
def history(
    target: str | None,
    number: int | None,
    where: options.Where,
    output: str,
) -> int:
    """List what was deployed on each host: when, by whom, what came of it. With NUMBER: all of that one entry."""
    import json

    from beamdeploy import history as past
    from beamdeploy.cli.targets import deployment_name, load_hosts
    from beamdeploy.report import Progress, show, show_table, show_text

    hosts = load_hosts(where)
    with Progress() as progress:
        found = past.entries(
            hosts, deployment_name(target), progress.event, accept_new=where.accept_new, forks=where.forks
        )
    report = past.history(found, number)
    if output == "text" and number is None:
        show_table(("host", "no", "when", "by", "run", "outcome", "digest", "seconds"), _rows(report.hosts))
    elif output == "text":
        show_text(json.dumps({host.name: host.details for host in report.hosts}, indent=2))
    return show(report, output)


def _rows(hosts: tuple[HostReport, ...]) -> list[list[str]]:
    keys = ("number", "at", "by", "action", "outcome", "digest", "seconds")
    return [
        [host.name, *(str(entry[key])[:19] for key in keys)]
        for host in hosts
        for entry in host.details.get("entries", [])  # type: ignore[attr-defined]  # history() puts a list there
    ]
