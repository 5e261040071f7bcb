"""`beamdeploy plan`"""

from __future__ import annotations

from dataclasses import replace

import click

from beamdeploy.cli import options
from beamdeploy.errors import CHANGES_PENDING, DONE


@click.command()
@options.recipe
@options.hosts
@options.overrides
@options.templates
@options.unpinned
@click.option("--exit-code", is_flag=True, help="End with 10 when apply would change something.")
@options.diff
@options.output
def plan(
    recipe: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    templates: str | None,
    unpinned: bool,
    exit_code: bool,
    diff: bool,
    output: str,
) -> int:
    """Show what `apply` would change on each host, and why. Nothing is changed."""
    from beamdeploy import deploy
    from beamdeploy.cli.targets import load_hosts, load_wanted
    from beamdeploy.report import Progress, show
    from beamdeploy.survey import Options

    wanted, lock, notes = load_wanted(recipe, overrides, output)
    hosts = load_hosts(where, wanted)
    specs = deploy.specs_of(wanted, hosts, lock, templates, to_apply=True, unpinned=unpinned)
    with Progress() as progress:
        report = deploy.plan(specs, Options(accept_new=where.accept_new, forks=where.forks, diff=diff), progress.event)
    if exit_code and report.exit == DONE and deploy.pending(report):
        report = replace(report, exit=CHANGES_PENDING)
    return show(report.beside(notes), output)
