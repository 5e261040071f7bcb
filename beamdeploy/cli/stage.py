"""`beamdeploy stage`"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from beamdeploy.cli import options

if TYPE_CHECKING:
    from beamdeploy.inventory import Host
    from beamdeploy.stage_folder import From


@click.command()
@click.argument("recipe")
@options.hosts
@options.overrides
@click.option(
    "--from",
    "source",
    default="hub",
    show_default=True,
    metavar="hub|HOST|PATH|here",
    help="The hub, a host of the inventory that has them, or a folder of this machine. Of an image: its registry, a "
    "host, or here.",
)
@click.option(
    "--streams", type=click.IntRange(1, 16), default=1, show_default=True, help="Connections a host: more for far ones."
)
@click.option(
    "--image",
    "of_image",
    is_flag=True,
    help="The image instead of the weights: pulled, or loaded --from HOST or --from here (this machine's docker).",
)
@click.option(
    "--hf-image",
    metavar="IMAGE",
    help="Where a host has no `hf`, it runs in a container of this image.  [default: the recipe's own image]",
)
@options.lock_wait
@options.output
def stage(
    recipe: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    source: str,
    streams: int,
    of_image: bool,
    hf_image: str | None,
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
    from beamdeploy.report import Progress, show
    from beamdeploy.stage import stage
    from beamdeploy.stage_folder import Manner
    from beamdeploy.stage_image import stage_image

    wanted, lock, notes = load_wanted(recipe, overrides, output)
    everybody = load_hosts(replace(where, limit=None))
    specs = specs_of(wanted, load_hosts(where), lock, None)
    origin = _origin(source, everybody, of_image)
    manner = Manner(streams, lock_wait, os.environ, hf_image)
    with Progress() as progress:
        if of_image:
            report = stage_image(specs, origin, manner, progress.event, accept_new=where.accept_new, forks=where.forks)
        else:
            report = stage(
                wanted, specs, origin, manner, progress.event, accept_new=where.accept_new, forks=where.forks
            )
    return show(report.beside(notes), output)


def _origin(source: str, everybody: tuple[Host, ...], of_image: bool) -> From:
    from beamdeploy.errors import InputError, Problem
    from beamdeploy.stage_folder import From

    holder = next((host for host in everybody if host.name == source), None)
    if source == "hub" or holder is not None:
        return From(holder)
    if of_image and source == "here":
        return From(path="/")
    if not of_image and os.path.isdir(source):
        return From(path=os.path.abspath(source))
    place = "here (this machine's docker)" if of_image else "an existing folder of this machine"
    remedy = f"say hub, the name of a host in the inventory, or {place}"
    raise InputError([Problem(f"--from {source} is none of these", remedy, "--from")])
