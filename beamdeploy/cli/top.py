"""`beamdeploy top`"""

from __future__ import annotations

import click

from beamdeploy.cli import options


@click.command()
@options.hosts
@options.interval(2.0)
@options.output
def top(where: options.Where, interval: float, output: str) -> int:
    """Show the GPUs of each host, who uses them, and the requests of each deployment, again and again until Ctrl-C.

    Without a terminal, or with -o json, once. Each host keeps one connection. "not ours": a process that no deployment
    of beamdeploy holds. Requests are shown where the engine counts them.
    """
    from beamdeploy.cli.targets import load_hosts
    from beamdeploy.kept import Kept
    from beamdeploy.report import show, show_problems, show_table
    from beamdeploy.report.live import is_live, tables_of, watched
    from beamdeploy.top import Top, tables

    with Kept(load_hosts(where), accept_new=where.accept_new, forks=where.forks) as kept:
        shown = Top(kept)
        if output == "text" and is_live():
            return watched(shown.look, interval, output, tables_of(tables))
        report = shown.look()
        if output != "text":
            return show(report, output)
        for head, rows in tables(report):
            show_table(head, rows)
        show_problems(report.all_problems)
        return report.exit
