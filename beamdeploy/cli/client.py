"""`beamdeploy client`"""

from __future__ import annotations

import click

from beamdeploy.cli import complete, options

_FORMS = ("env", "curl", "python", "openai")


@click.command()
@click.argument("target", metavar="RECIPE|NAME", shell_complete=complete.recipe_files)
@options.one_host
@options.overrides
@click.option("--as", "form", type=click.Choice(_FORMS), default="env", show_default=True, help="What to print.")
@click.option(
    "--base-url", metavar="URL", help="Where the server is reached.  [default: as `beamdeploy tunnel` opens it]"
)
def client(
    target: str, where: options.Where, overrides: tuple[tuple[str, str], ...], form: str, base_url: str | None
) -> int:
    """Print client settings for what a RECIPE serves, with its sampling and template options.

    With -i the URL names the host where its port is open to others; the NAME of a deployment is looked up there.

    The engines take neither from the checkpoint: a client has to send them with every request.
    """
    from beamdeploy.cli.reach import one, wanted
    from beamdeploy.cli.targets import load_hosts
    from beamdeploy.client import base_url as default_url
    from beamdeploy.client import settings
    from beamdeploy.remote import open_session
    from beamdeploy.report import show_text
    from beamdeploy.served import served_by, served_there

    asked, _ = wanted(target, overrides, "text")
    host = one(load_hosts(where), asked) if isinstance(asked, str) or where.inventory else None
    if isinstance(asked, str):
        assert host is not None
        with open_session(host, accept_new=where.accept_new) as session:
            there = served_there(session, asked)
    else:
        there = served_by(asked)
    show_text(settings(there, form, base_url or default_url(there, host)))
    return 0
