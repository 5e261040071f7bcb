"""`beamdeploy recipes`"""

from __future__ import annotations

import click

from beamdeploy.cli import options


@click.group()
def recipes() -> None:
    """The recipes that come with beamdeploy."""


@recipes.command("list")
@click.option("--model", metavar="WORD", help="Only models whose name holds this word.")
@click.option("--engine", metavar="NAME", help="Only this engine.")
@click.option("--gpu", metavar="WORD", help="Only GPUs whose name holds this word.")
@options.output
def list_(model: str | None, engine: str | None, gpu: str | None, output: str) -> int:
    """List the recipes and their variants."""
    from dataclasses import asdict

    from beamdeploy.library import entries
    from beamdeploy.outcome import Report
    from beamdeploy.report import show, show_table

    found = entries(model=model, engine=engine, gpu=gpu)
    if output == "json":
        return show(Report("Recipes", 0, details={"recipes": [asdict(entry) for entry in found]}), output)
    rows = [
        (
            f"{e.name}{' --variant ' + e.variant if e.variant else ''}",
            e.model,
            e.engine,
            f"{e.count} {e.gpu}",
            e.verified,
        )
        for e in found
    ]
    show_table(("RECIPE", "MODEL", "ENGINE", "GPUS", "VERIFIED"), rows)
    return 0


@recipes.command()
@click.argument("name")
def show(name: str) -> int:
    """Print the recipe NAME."""
    from beamdeploy.library import file_of
    from beamdeploy.report import show_text

    show_text(file_of(name).read_text(encoding="utf-8").rstrip("\n"))
    return 0


@recipes.command()
@click.argument("name")
@click.argument("target", required=False, type=click.Path())
def copy(name: str, target: str | None) -> int:
    """Copy the recipe NAME to TARGET, a file or a folder.  [default: here]"""
    from pathlib import Path

    from beamdeploy.errors import InputError, Problem
    from beamdeploy.library import file_of
    from beamdeploy.report import show_text

    source = file_of(name)
    there = Path(target or ".")
    file = there / source.name if there.is_dir() else there
    try:
        with file.open("x", encoding="utf-8") as copied:
            copied.write(source.read_text(encoding="utf-8"))
    except FileExistsError:
        raise InputError([Problem(f"{file} is there already", "Name another file.", file=str(file))]) from None
    except OSError as error:
        raise InputError([Problem(f"{file} cannot be written: {error.strerror}", "Name another.")]) from error
    show_text(f"{file}: read it, then beamdeploy validate {file}")
    return 0
