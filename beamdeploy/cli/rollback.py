"""`beamdeploy rollback`"""

from __future__ import annotations

import os

import click

from beamdeploy.cli import options


@click.command()
@click.argument("target", metavar="RECIPE|NAME")
@click.argument("number", type=click.IntRange(min=1), required=False)
@options.hosts
@options.rollout
@options.yes
@options.output
def rollback(
    target: str,
    number: int | None,
    where: options.Where,
    rollout: options.Rollout,
    yes: bool,
    output: str,
) -> int:
    """Return to the deployment before this one, or to entry NUMBER of `beamdeploy history`.

    After a destroy the last good one is meant.
    What it was made from is in the host's history: no file is needed. It is planned and applied as any other; image and
    weights are looked for before anything is stopped. As apply it asks on a terminal, and goes on without one.
    """
    from beamdeploy import deploy, history
    from beamdeploy.cli.ask import confirm_apply
    from beamdeploy.cli.targets import deployment_name, load_hosts, ordered, rollout_options
    from beamdeploy.failed import note
    from beamdeploy.report import Progress, show

    hosts = load_hosts(where)
    how = rollout_options(rollout, where, action="rollback")
    with Progress() as progress:
        found = history.entries(
            hosts, deployment_name(target), progress.event, accept_new=where.accept_new, forks=where.forks
        )
        specs = ordered(history.way_back(hosts, found, number, progress.event), rollout.order)
        report = deploy.apply(specs, how, progress.event, confirm_apply(progress, yes=yes))
    note(where.inventory, report, os.environ)
    return show(report, output)
