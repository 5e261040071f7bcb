"""`beamdeploy drift`"""

from __future__ import annotations

import click

from beamdeploy.cli import options


@click.command()
@click.argument("recipe")
@options.hosts
@options.overrides
@options.templates
@click.option(
    "--ignore", "ignored", multiple=True, metavar="SETTING", help="This may differ; docker.* and such, several times."
)
@options.output
def drift(
    recipe: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    templates: str | None,
    ignored: tuple[str, ...],
    output: str,
) -> int:
    """Say what on the hosts is not as RECIPE says; nothing is changed. Ends with 10 when something is not.

    Also what another hand changed since the server was ready: docker update, a restart, other weights.
    """
    from beamdeploy import deploy
    from beamdeploy.cli.targets import load_hosts, load_wanted
    from beamdeploy.report import Progress, show
    from beamdeploy.survey import Options

    wanted, lock, notes = load_wanted(recipe, overrides, output)
    specs = deploy.specs_of(wanted, load_hosts(where), lock, templates, to_apply=True)
    with Progress() as progress:
        report = deploy.drift(specs, Options(accept_new=where.accept_new, forks=where.forks), ignored, progress.event)
    return show(report.beside(notes), output)
