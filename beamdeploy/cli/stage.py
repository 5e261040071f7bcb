"""`beamdeploy stage`"""

from __future__ import annotations

import os

import click

from beamdeploy.cli import options


@click.command()
@click.argument("recipe")
@options.hosts
@options.overrides
@click.option(
    "--from",
    "source",
    default="hub",
    show_default=True,
    metavar="hub|HOST|PATH",
    help="The hub, a host of the inventory that has them, or a folder of this machine (with a /).",
)
@click.option(
    "--streams", type=click.IntRange(1, 16), default=1, show_default=True, help="Connections a host: more for far ones."
)
@options.lock_wait
@options.output
def stage(
    recipe: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    source: str,
    streams: int,
    lock_wait: float,
    output: str,
) -> int:
    """Bring the weights of RECIPE onto its hosts: as locked, only what lacks, and verified before they get their name.

    From the hub every host downloads by itself. From a HOST or PATH the hosts copy from each other, so that many take
    little longer than one. Interrupted and started again, it goes on where it was.
    """
    from dataclasses import replace

    from beamdeploy.cli.targets import load_hosts, load_wanted
    from beamdeploy.deploy import specs_of
    from beamdeploy.errors import InputError, Problem
    from beamdeploy.report import Progress, show
    from beamdeploy.stage import stage
    from beamdeploy.stage_folder import From, Manner

    wanted, lock = load_wanted(recipe, overrides)
    everybody = load_hosts(replace(where, limit=None))
    hosts = load_hosts(where)
    holder = next((host for host in everybody if host.name == source), None)
    if source != "hub" and holder is None and not os.path.isdir(source):
        remedy = "say hub, the name of a host in the inventory, or an existing folder of this machine"
        raise InputError([Problem(f"--from {source} is none of these", remedy, "--from")])
    path = os.path.abspath(source) if source != "hub" and holder is None else None
    specs = specs_of(wanted, hosts, lock, None)
    with Progress() as progress:
        manner = Manner(streams, lock_wait, os.environ)
        report = stage(wanted, specs, From(holder, path), manner, progress.event, accept_new=where.accept_new)
    return show(report, output)
