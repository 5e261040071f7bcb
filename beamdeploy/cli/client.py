"""`beamdeploy client`"""

from __future__ import annotations

import click

from beamdeploy.cli import options

_FORMS = ("env", "curl", "python", "openai")


@click.command()
@options.recipe
@options.overrides
@click.option("--as", "form", type=click.Choice(_FORMS), default="env", show_default=True, help="What to print.")
@click.option(
    "--base-url", metavar="URL", help="Where the server is reached.  [default: as `beamdeploy tunnel` opens it]"
)
def client(recipe: str, overrides: tuple[tuple[str, str], ...], form: str, base_url: str | None) -> int:
    """Print client settings for what RECIPE serves, with its sampling and template options.

    The engines take neither from the checkpoint: a client has to send them with every request.
    """
    from beamdeploy.cli.targets import load_wanted
    from beamdeploy.client import base_url as default_url
    from beamdeploy.client import settings
    from beamdeploy.report import show_text
    from beamdeploy.served import served_by

    there = served_by(load_wanted(recipe, overrides)[0])
    show_text(settings(there, form, base_url or default_url(there)))
    return 0
