"""`beamdeploy logs`"""

from __future__ import annotations

import click

from beamdeploy.cli import complete, options


@click.command()
@click.argument("target", metavar="RECIPE|NAME", shell_complete=complete.recipe_files)
@options.hosts
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines as they come, until Ctrl-C.")
@click.option("-n", "--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.  [default: all]")
@click.option("--phase", is_flag=True, help="Only the lines with which a phase of the start begins, and its name.")
def logs(
    target: str,
    where: options.Where,
    follow: bool,
    tail: int | None,
    phase: bool,
) -> int:
    """Show the log of a deployment, also of one that has ended.

    A connection that is lost while it is followed is opened again; no line is left out or said twice.
    """
    from beamdeploy.cli.targets import deployment_name, load_hosts
    from beamdeploy.logs import logs as show_logs
    from beamdeploy.report import Progress, log_line, show_problems

    hosts = load_hosts(where)
    several = len(hosts) > 1
    ended = show_logs(
        hosts,
        str(deployment_name(target)),
        log_line(several=several),
        Progress().event,
        tail=tail,
        follow=follow,
        phases=phase,
        accept_new=where.accept_new,
        forks=where.forks,
    )
    show_problems(ended.all_problems)
    return ended.exit
