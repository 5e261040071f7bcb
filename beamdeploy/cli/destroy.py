"""`beamdeploy destroy`"""

from __future__ import annotations

import click

from beamdeploy.cli import complete, options


@click.command()
@click.argument("target", metavar="[RECIPE|NAME]", required=False, shell_complete=complete.recipe_files)
@options.hosts
@options.lock_wait
@options.yes_needed
@options.output
def destroy(
    target: str | None,
    where: options.Where,
    lock_wait: float,
    yes: bool,
    output: str,
) -> int:
    """Stop and remove a deployment, and look whether it is gone. Weights, images and all else stay.

    Without RECIPE or NAME it takes down what beamdeploy runs there, if that is one deployment.
    It asks first. Without a terminal it needs -y: nothing brings back what it takes down.
    """
    from beamdeploy import takedown
    from beamdeploy.cli.ask import confirm_destroy
    from beamdeploy.cli.targets import deployment_name, load_hosts
    from beamdeploy.report import Progress, show

    name = deployment_name(target)
    hosts = load_hosts(where)
    with Progress() as progress:
        asked = confirm_destroy(progress, yes=yes)
        report = takedown.destroy(
            hosts, name, progress.event, asked, accept_new=where.accept_new, lock_wait=lock_wait, forks=where.forks
        )
    return show(report, output)
