"""`beamdeploy schema`"""

from __future__ import annotations

import click


@click.command()
@click.argument("name", type=click.Choice(["recipe", "inventory", "lock", "report"]), default="recipe")
def schema(name: str) -> int:
    """Print a JSON Schema (2020-12), for editors and other tools."""
    from importlib.resources import files

    click.echo((files("beamdeploy") / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"), nl=False)
    return 0
