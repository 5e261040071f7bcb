"""`beamdeploy import`"""

from __future__ import annotations

import click


@click.group(name="import")
def import_() -> None:
    """Make a recipe of a command that somebody runs already."""


@import_.command("docker-run")
@click.argument("file")
@click.option("--gpu", metavar="FAMILY", help="Which GPUs it is for, such as H200: the command does not say it.")
def docker_run(file: str, gpu: str | None) -> int:
    """Print the recipe of the `docker run` in FILE (- for standard input); what it cannot say goes to stderr."""
    from yaml import safe_dump

    from beamdeploy.dockerrun import read_text
    from beamdeploy.errors import Problem
    from beamdeploy.importing import imported
    from beamdeploy.report import show_problems, show_text

    recipe, notes = imported(read_text(_text(file)), gpu=gpu)
    remedy = "See whether it matters."
    show_problems([Problem(note, remedy, file=file, level="warning") for note in notes])
    show_text(safe_dump(dict(recipe), sort_keys=False).rstrip("\n"))
    return 0


def _text(file: str) -> str:
    import sys
    from pathlib import Path

    from beamdeploy.errors import InputError, Problem

    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Problem(f"{file} cannot be read: {error}", "Name a text file, or -.", file=file)]) from None
