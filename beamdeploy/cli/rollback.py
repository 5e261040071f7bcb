"""`beamdeploy rollback`"""

from __future__ import annotations

import click

from beamdeploy.cli import options


@click.command()
@click.argument("target", metavar="RECIPE|NAME")
@click.argument("number", type=click.IntRange(min=1), required=False)
@options.hosts
@options.waves
@options.lock_wait
@options.yes
@options.output
def rollback(
    target: str,
    number: int | None,
    inventory: str | None,
    limit: str | None,
    model_dir: str | None,
    gpus: tuple[int, ...] | None,
    accept_new: bool,
    serial: str | None,
    canary: bool,
    max_fail: int,
    order: str,
    lock_wait: float,
    yes: bool,
    output: str,
) -> int:
    """Return to the deployment before this one, or to entry NUMBER of `beamdeploy history`.

    What it was made from is in the host's history: no file is needed. It is planned and applied as any other; image and
    weights are looked for before anything is stopped.
    """
    from beamdeploy import deploy, history
    from beamdeploy.cli.ask import confirm_apply
    from beamdeploy.cli.targets import deployment_name, load_hosts, ordered
    from beamdeploy.report import Progress, show
    from beamdeploy.survey import Options

    hosts = ordered(load_hosts(inventory, limit, model_dir, gpus), order)
    how = Options(
        accept_new=accept_new, lock_wait=lock_wait, serial=serial, canary=canary, max_fail=max_fail, action="rollback"
    )
    with Progress() as progress:
        found = history.entries(hosts, deployment_name(target), progress.event, accept_new=accept_new)
        specs = history.way_back(hosts, found, number)
        report = deploy.apply(specs, how, progress.event, confirm_apply(progress, yes=yes))
    return show(report, output)
