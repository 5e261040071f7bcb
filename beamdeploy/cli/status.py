"""`beamdeploy status`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from beamdeploy.cli import complete, options

if TYPE_CHECKING:
    from beamdeploy.errors import Problem
    from beamdeploy.outcome import Report
    from beamdeploy.render import Spec


@click.command()
@click.argument("target", metavar="[RECIPE|NAME]", required=False, shell_complete=complete.recipe_files)
@options.hosts
@options.overrides
@click.option("--deep", is_flag=True, help="Also ask each container for its GPUs, and each server for a completion.")
@click.option("-w", "--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@options.interval(5.0)
@options.output
def status(
    target: str | None,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    deep: bool,
    watch: bool,
    interval: float,
    output: str,
) -> int:
    """Say what beamdeploy runs on each host, since when, and whether it is ready.

    With a RECIPE it also says whether what runs is what the recipe says. Ends with 6 when something is not ready.
    A front can answer while the engine hangs or has lost its GPUs: --deep sees it, and starts a process in the
    container for it.
    """
    from beamdeploy import status as look
    from beamdeploy.cli.targets import deployment_name, is_recipe, load_hosts, load_wanted
    from beamdeploy.deploy import specs_of
    from beamdeploy.kept import Kept
    from beamdeploy.report import show
    from beamdeploy.report.live import watched

    hosts = load_hosts(where)
    specs: dict[str, Spec] = {}
    notes: tuple[Problem, ...] = ()
    if target is not None and is_recipe(target):
        wanted, lock, notes = load_wanted(target, overrides, output)
        specs = {spec.host.name: spec for spec in specs_of(wanted, hosts, lock, None)}
    name = deployment_name(target)

    with Kept(hosts, accept_new=where.accept_new, forks=where.forks) as kept:

        def looked() -> Report:
            return look.status(kept, name, specs, deep=deep).beside(notes)

        return watched(looked, interval, output) if watch else show(looked(), output)
