"""`beamdeploy drift`"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from beamdeploy.cli import options
from beamdeploy.errors import CHANGES_PENDING, DONE

if TYPE_CHECKING:
    from beamdeploy.fleet import Forks


@click.command()
@click.argument("recipe")
@options.hosts
@options.overrides
@options.templates
@options.forks
@options.output
def drift(
    recipe: str,
    inventory: str | None,
    limit: str | None,
    model_dir: str | None,
    gpus: tuple[int, ...] | None,
    accept_new: bool,
    overrides: tuple[tuple[str, str], ...],
    templates: str | None,
    forks: Forks,
    output: str,
) -> int:
    """Say what on the hosts is not as RECIPE says; nothing is changed. Ends with 10 when something is not."""
    from beamdeploy import deploy
    from beamdeploy.cli.targets import load_hosts, load_wanted
    from beamdeploy.report import Progress, show
    from beamdeploy.survey import Options

    wanted, lock = load_wanted(recipe, overrides)
    specs = deploy.specs_of(wanted, load_hosts(inventory, limit, model_dir, gpus), lock, templates)
    with Progress() as progress:
        report = replace(deploy.plan(specs, Options(accept_new=accept_new, forks=forks), progress.event), kind="Drift")
    if report.exit == DONE and deploy.pending(report):
        report = replace(report, exit=CHANGES_PENDING)
    return show(report, output)
