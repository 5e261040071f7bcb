"""`beamdeploy fit`"""

from __future__ import annotations

import click

from beamdeploy.cli import options


@click.command()
@options.recipe
@click.option("--gpu", metavar="FAMILY", help="Ask no host: GPUs of this family.  [default: hardware.gpu]")
@click.option("--count", type=click.IntRange(1), metavar="N", help="With --gpu: so many.  [default: hardware.count]")
@options.hosts
@options.overrides
@options.output
def fit(
    recipe: str,
    gpu: str | None,
    count: int | None,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    output: str,
) -> int:
    """Say whether RECIPE fits into GPU memory: weights, KV cache, drafter and a margin, before anything is loaded.

    With -i, into the GPUs of each host and by what is staged there; else into the recipe's GPUs, or those of --gpu
    and --count, by what is known of the model. Ends with 3 when not even the weights fit.
    """
    from beamdeploy.cli.targets import load_hosts, load_wanted
    from beamdeploy.deploy import specs_of
    from beamdeploy.recipe import load_recipe
    from beamdeploy.report import Progress, show
    from beamdeploy.sizing import on_family, on_hosts

    if gpu is not None or count is not None or where.inventory is None:
        return show(on_family(load_recipe(recipe, overrides), gpu, count), output)
    wanted, lock, notes = load_wanted(recipe, overrides, output)
    specs = specs_of(wanted, load_hosts(where, wanted), lock, None)
    with Progress() as progress:
        report = on_hosts(specs, progress.event, accept_new=where.accept_new, forks=where.forks)
    return show(report.beside(notes), output)
