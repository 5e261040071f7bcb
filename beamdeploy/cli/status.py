"""`beamdeploy status`"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from beamdeploy.cli import complete, options
from beamdeploy.errors import DONE

if TYPE_CHECKING:
    from beamdeploy.fleet import Forks
    from beamdeploy.outcome import Report


@click.command()
@click.argument("target", metavar="[RECIPE|NAME]", required=False, shell_complete=complete.recipe_files)
@options.hosts
@options.overrides
@click.option("--deep", is_flag=True, help="Also ask each container for its GPUs, and each server for a completion.")
@click.option("-w", "--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: the pause between two looks.",
)
@options.forks
@options.output
def status(
    target: str | None,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    deep: bool,
    watch: bool,
    interval: float,
    forks: Forks,
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
    from beamdeploy.report import show

    hosts = load_hosts(where)
    specs = {}
    if target is not None and is_recipe(target):
        wanted, lock = load_wanted(target, overrides)
        specs = {spec.host.name: spec for spec in specs_of(wanted, hosts, lock, None)}
    name = deployment_name(target)

    def looked() -> Report:
        return look.status(hosts, name, specs, accept_new=where.accept_new, deep=deep, forks=forks)

    return _watched(looked, interval, output) if watch else show(looked(), output)


def _watched(looked: Callable[[], Report], interval: float, output: str) -> int:
    """Until Ctrl-C; the exit code is that of the last look."""
    from beamdeploy.report.live import LiveTable
    from beamdeploy.run import now

    exit_code = DONE
    with LiveTable(output) as shown:
        try:
            while True:
                report = looked()
                exit_code = report.exit
                shown.show(report, now())
                time.sleep(interval)
        except KeyboardInterrupt:
            return exit_code
