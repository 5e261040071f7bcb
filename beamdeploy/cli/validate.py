"""`beamdeploy validate`"""

from __future__ import annotations

import click

from beamdeploy.cli import options


@click.command()
@click.argument("files", nargs=-1, required=True)
@options.output
def validate(files: tuple[str, ...], output: str) -> int:
    """Check recipes, inventories and locks without a server; say everything that is wrong, with its place.

    FILES are YAML files, folders of them, or - for standard input. Ends with 2 when something is wrong.
    """
    from beamdeploy.check import check_all
    from beamdeploy.report import show

    return show(check_all(files), output)
