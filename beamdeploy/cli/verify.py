"""`beamdeploy verify`"""

from __future__ import annotations

import os

import click

from beamdeploy.cli import options
from beamdeploy.cli.bare import with_bare


@click.command(cls=with_bare("--deep", "auto"))
@click.argument("recipe")
@options.hosts
@options.overrides
@click.option(
    "--deep",
    type=click.Choice(("auto", "always")),
    metavar="[=always]",
    help="Hash every file, on the host. What has not changed since it was last hashed is not read again, unless "
    "--deep=always.",
)
@click.option("--processes", type=click.IntRange(1, 512), help="How many files to hash at a time. [default: the cores]")
@click.option("--offline", is_flag=True, help="Do not ask the hub for hashes that the lock does not hold.")
@options.output
def verify(
    recipe: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    deep: str | None,
    processes: int | None,
    offline: bool,
    output: str,
) -> int:
    """Say whether the weights of RECIPE are whole on each host, and are those that the lock names.

    Names, sizes, headers and links are looked at as in every plan; --deep reads every byte. Nothing is changed.
    Ends with 3 when something would block an apply.
    """
    from beamdeploy.cli.targets import load_hosts, load_wanted
    from beamdeploy.deploy import specs_of
    from beamdeploy.report import Progress, show
    from beamdeploy.verify import Depth, verify

    wanted, lock, notes = load_wanted(recipe, overrides, output)
    specs = specs_of(wanted, load_hosts(where), lock, None)
    depth = Depth(deep is not None, deep == "always", processes)
    silent = offline or os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "TRUE", "YES", "ON")
    with Progress() as progress:
        report = verify(
            wanted, specs, depth, progress.event, accept_new=where.accept_new, forks=where.forks, offline=silent
        )
    return show(report.beside(notes), output)
