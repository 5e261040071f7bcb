"""`beamdeploy preflight`"""

from __future__ import annotations

import click

from beamdeploy.cli import options


@click.command()
@options.recipe
@options.hosts
@options.overrides
@options.unpinned
@options.output
def preflight(
    recipe: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    unpinned: bool,
    output: str,
) -> int:
    """Look at each host and say what stands in the way of RECIPE there, and what is as it should be.

    GPUs, driver, docker, image, port, disk, memory, clock and weights, in one look that changes nothing; every plan
    makes the same checks. Ends with 3 when something blocks, and with 2 when something is missing here that a plan
    needs: a secret, or the image's digest.
    """
    from beamdeploy.cli.targets import load_hosts, load_wanted
    from beamdeploy.deploy import lacking, specs_of
    from beamdeploy.precheck import precheck
    from beamdeploy.report import Progress, show

    wanted, lock, notes = load_wanted(recipe, overrides, output)
    specs = specs_of(wanted, load_hosts(where, wanted), lock, None)
    with Progress() as progress:
        missing = lacking(wanted, specs, unpinned=unpinned)
        report = precheck(specs, progress.event, missing, accept_new=where.accept_new, forks=where.forks)
    return show(report.beside(notes), output)
