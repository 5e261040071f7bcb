"""`beamdeploy import`"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

_GPU = click.option("--gpu", metavar="FAMILY", help="Which GPUs it is for, such as H200: the file does not say it.")


@click.group(name="import")
def import_() -> None:
    """Make a recipe of what somebody runs already."""


@import_.command("docker-run")
@click.argument("file")
@_GPU
def docker_run(file: str, gpu: str | None) -> int:
    """Print the recipe of the `docker run` in FILE (- for standard input); what it cannot say goes to stderr."""
    from beamdeploy.dockerrun import read_text
    from beamdeploy.importing import imported

    recipe, notes = imported(read_text(_text(file)), gpu=gpu)
    return _shown(file, recipe, notes)


@import_.command("compose")
@click.argument("file")
@click.option("--service", metavar="NAME", help="Which service, where several look like an engine.")
@_GPU
def compose(file: str, service: str | None, gpu: str | None) -> int:
    """Print the recipe of a service of the compose FILE (- for standard input); what it cannot say goes to stderr."""
    from beamdeploy.composefile import read_compose
    from beamdeploy.importing import imported

    run, grace, lost = read_compose(_text(file), service)
    recipe, notes = imported(run, gpu=gpu)
    if grace is not None:
        recipe = {**recipe, "container": {**recipe["container"], "stop_timeout": grace}}
    return _shown(file, recipe, (*lost, *notes))


@import_.command("vllm-recipe")
@click.argument("file")
@click.option("--image", metavar="NAME", help="The image, where the file names none or another is meant.")
@click.option("--variant", default="default", show_default=True, metavar="NAME", help="Of a recipe's variants, which.")
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Over how many GPUs, where the file does not say."
)
@_GPU
def vllm_recipe(file: str, image: str | None, variant: str, count: int | None, gpu: str | None) -> int:
    """Print the recipe of vLLM's own YAML in FILE (- for standard input); what it cannot say goes to stderr.

    FILE is one for `vllm serve --config`, or a recipe of the project vllm-project/recipes.
    """
    from beamdeploy.importing import imported
    from beamdeploy.vllmrecipe import read_vllm

    run, lost = read_vllm(_text(file), image=image, variant=variant, gpu=gpu, count=count)
    recipe, notes = imported(run, gpu=gpu)
    return _shown(file, recipe, (*lost, *notes))


def _shown(file: str, recipe: Mapping[str, Any], notes: Iterable[str]) -> int:
    from yaml import safe_dump

    from beamdeploy.errors import Problem
    from beamdeploy.report import show_problems, show_text

    remedy = "See whether it matters, and say it in the recipe or the inventory."
    show_problems([Problem(note, remedy, file=file, level="warning") for note in dict.fromkeys(notes)])
    show_text(safe_dump(dict(recipe), sort_keys=False).rstrip("\n"))
    return 0


def _text(file: str) -> str:
    import sys

    from beamdeploy.errors import InputError, Problem
    from beamdeploy.regular import text_of

    try:
        return sys.stdin.read() if file == "-" else text_of(file, pipes=True)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Problem(f"it cannot be read: {error}", "Name a text file, or -.", file=file)]) from None
