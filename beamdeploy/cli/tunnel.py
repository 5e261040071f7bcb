"""`beamdeploy tunnel`"""

from __future__ import annotations

import threading

import click

from beamdeploy.cli import complete, options


@click.command()
@click.argument("target", metavar="RECIPE|NAME", shell_complete=complete.recipe_files)
@options.one_host
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="The port on 127.0.0.1; 0 is any.  [default: as on the host, or any that is free]",
)
def tunnel(
    target: str,
    where: options.Where,
    port: int | None,
) -> int:
    """Open a server's endpoint as a port of this machine, until Ctrl-C, which ends it with 0.

    The base URL is the first line on stdout. A connection to the host that is lost is opened again by itself.
    """
    from beamdeploy.cli.reach import one, wanted
    from beamdeploy.cli.targets import load_hosts
    from beamdeploy.client import as_curl
    from beamdeploy.remote import open_session
    from beamdeploy.report import Progress, show_problems, show_text
    from beamdeploy.served import served
    from beamdeploy.tunnel import Link, check, listen
    from beamdeploy.tunnel import tunnel as opened

    asked, _ = wanted(target, (), "text")
    host = one(load_hosts(where), asked)
    progress = Progress()

    def say(phase: str, detail: str) -> None:
        progress.event(host.name, phase, detail)

    session = open_session(host, accept_new=where.accept_new)
    there = served(session, asked)
    link = Link(lambda: open_session(host), session, there, say)
    warning = check(link, there)
    show_problems([warning] if warning else ())
    with opened(link, listen(port, there.recipe.container.port), say) as open_tunnel:
        show_text(f"{open_tunnel.base_url}\n\n{as_curl(there, open_tunnel.base_url)}\n")
        _until_interrupted()
    return 0


def _until_interrupted() -> None:
    """Ctrl-C is how a tunnel ends: no failure."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return
