"""`beamdeploy doctor`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from beamdeploy.cli import complete, options

if TYPE_CHECKING:
    from beamdeploy.errors import Problem
    from beamdeploy.render import Spec


@click.command()
@click.argument("target", metavar="[RECIPE|NAME]", required=False, shell_complete=complete.recipe_files)
@click.option("--log", metavar="FILE", help="Explain this log (- is stdin) and ask no host.")
@click.option("--engine", metavar="NAME", help="With --log: whose log it is.  [default: told by its lines]")
@options.hosts
@options.overrides
@options.output
def doctor(
    target: str | None,
    log: str | None,
    engine: str | None,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    output: str,
) -> int:
    """Say why a deployment does not serve: the first cause, the line that shows it, and what to change.

    On hosts it looks at docker, GPUs, containers and logs, asks each running server for a small completion, and
    whether its container still sees the GPUs. With a RECIPE also at what stands in its way. Ends with 0 when nothing
    is found, 1 when something failed, 6 when a server is not ready.
    """
    from beamdeploy import doctor as examination
    from beamdeploy.cli.targets import deployment_name, is_recipe, load_hosts, load_wanted
    from beamdeploy.deploy import specs_of
    from beamdeploy.report import show

    if log is not None:
        return show(examination.doctor_log(_text(log), engine, None if log == "-" else log), output)
    hosts = load_hosts(where)
    specs: dict[str, Spec] = {}
    notes: tuple[Problem, ...] = ()
    if target is not None and is_recipe(target):
        wanted, lock, notes = load_wanted(target, overrides, output)
        specs = {spec.host.name: spec for spec in specs_of(wanted, hosts, lock, None)}
    report = examination.doctor(hosts, deployment_name(target), specs, accept_new=where.accept_new, forks=where.forks)
    return show(report.beside(notes), output)


def _text(log: str) -> str:
    import sys

    from beamdeploy.errors import InputError, Problem
    from beamdeploy.regular import bytes_of

    try:
        return (sys.stdin.buffer.read() if log == "-" else bytes_of(log, pipes=True)).decode(errors="replace")
    except OSError as error:
        what = f"--log cannot be read: {error.strerror or error}"
        raise InputError([Problem(what, "Name a file, or - for standard input.", file=log)]) from None
