"""`beamdeploy prune`"""

from __future__ import annotations

import click

from beamdeploy.cli import complete, options


@click.command()
@click.argument("target", metavar="[RECIPE|NAME|-]", required=False, shell_complete=complete.recipe_files)
@options.hosts
@options.lock_wait
@options.yes_needed
@options.output
def prune(
    target: str | None,
    where: options.Where,
    lock_wait: float,
    yes: bool,
    output: str,
) -> int:
    """Remove images and containers that earlier deployments left and nothing needs any more.

    Only what beamdeploy deployed there, by the host's own history: an image that a container has, or that one of the
    last three good deployments had, stays; so does everything of others. Without RECIPE or NAME, or with -: of all
    deployments. It asks first; without a terminal it needs -y.
    """
    from beamdeploy import prune as removal
    from beamdeploy.cli.ask import confirm_prune
    from beamdeploy.cli.targets import deployment_name, load_hosts
    from beamdeploy.report import Progress, show

    name = deployment_name(None if target == "-" else target)
    hosts = load_hosts(where)
    with Progress() as progress:
        asked = confirm_prune(progress, yes=yes)
        report = removal.prune(
            hosts, name, progress.event, asked, accept_new=where.accept_new, lock_wait=lock_wait, forks=where.forks
        )
    return show(report, output)
