"""`beamdeploy history`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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
    """List what was deployed on each host: when, by whom, what came of it.

    With NUMBER: that one entry, with its settings and its command; -o json also has its recipe. A number alone counts
    as the list without a name does.
    """
    from beamdeploy import history as past
    from beamdeploy.cli.targets import deployment_name, load_hosts
    from beamdeploy.label import without_labels
    from beamdeploy.report import Progress, show, show_lines, show_table
    from beamdeploy.report.past import entry_lines

    if number is None and target is not None and target.isascii() and target.isdigit():
        number, target = int(target), None
    hosts = load_hosts(where)
    with Progress() as progress:
        found = past.entries(
            hosts, deployment_name(target), progress.event, accept_new=where.accept_new, forks=where.forks
        )
    report = past.history(found, number)
    if output == "text" and number is None:
        show_table(("host", "no", "when", "by", "run", "outcome", "digest", "seconds"), _rows(report.hosts))
    elif output == "text":
        for host, entry in _entries(report.hosts):
            show_lines(entry_lines(host, entry, without_labels(entry["words"])))
    return show(report, output)


def _rows(hosts: tuple[HostReport, ...]) -> list[list[str]]:
    keys = ("number", "at", "by", "action", "outcome", "digest", "seconds")
    return [[host, *(str(entry[key])[:19] for key in keys)] for host, entry in _entries(hosts)]


def _entries(hosts: tuple[HostReport, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(host, entry) of all that the report holds; of a host that could not be asked there are none."""
    for host in hosts:
        entries: list[dict[str, Any]] = host.details.get("entries", [])  # type: ignore[assignment]  # history() puts it there
        yield from ((host.name, entry) for entry in entries)
