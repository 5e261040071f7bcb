"""`beamdeploy test`"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from beamdeploy.cli import complete, options

if TYPE_CHECKING:
    from beamdeploy.errors import Problem
    from beamdeploy.lock import Lock
    from beamdeploy.outcome import Report
    from beamdeploy.recipe import Recipe


@click.command()
@click.argument("recipes", metavar="RECIPE...", nargs=-1, required=True, shell_complete=complete.checkable_files)
@options.overrides
@options.templates
@click.option(
    "--profile", metavar="PROFILE", help="On this emulated server.  [default: what the hardware section asks]"
)
@click.option("--all-variants", is_flag=True, help="Also test every variant of each recipe.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="So many recipes at once.")
@options.output_as("text", "json", "junit")
def test(
    recipes: tuple[str, ...],
    overrides: tuple[tuple[str, str], ...],
    templates: str | None,
    profile: str | None,
    all_variants: bool,
    jobs: int,
    output: str,
) -> int:
    """Test recipes on emulated GPU servers: apply, apply again (nothing may change), smoke, destroy.

    RECIPE is a file or a folder of them. Each gets a fresh sandbox of the server that it asks for, which is taken down
    afterwards. No GPU, server or Docker is used. Ends with 1 when a step fails, with 2 when a recipe is wrong.
    """
    from beamdeploy import trial
    from beamdeploy.report import Progress, show, show_table
    from beamdeploy.trial_files import recipe_files

    loaded, notes = _loaded(recipe_files(recipes), overrides, output, all_variants=all_variants)
    tried = trial.trials(loaded, profile)
    with Progress() as progress:
        report = trial.run_all(tried, templates, progress.event, jobs=jobs)
    if output == "text":
        show_table(("RECIPE", "STEP", "VERDICT", "TIME", "WHY"), tuple(_rows(report)))
    return show(report.beside(notes), output)


def _loaded(
    files: Iterable[str], overrides: tuple[tuple[str, str], ...], output: str, *, all_variants: bool
) -> tuple[tuple[tuple[Recipe, Lock | None, str], ...], tuple[Problem, ...]]:
    """All of them, each with its variant ("": none), and notes on them. InputError: all that is wrong with any."""
    from beamdeploy.cli.targets import load_wanted
    from beamdeploy.errors import InputError
    from beamdeploy.trial_files import variants_of
    from beamdeploy.variants import CHOSEN

    asked = next((value for path, value in overrides if path == CHOSEN), "")
    loaded: list[tuple[Recipe, Lock | None, str]] = []
    problems: list[Problem] = []
    notes: list[Problem] = []
    for file in files:
        for name in dict.fromkeys((asked, *(variants_of(file) if all_variants else ()))):
            chosen = ((CHOSEN, name),) if name and name != asked else ()
            try:
                recipe, lock, said = load_wanted(file, (*overrides, *chosen), output)
                loaded.append((recipe, lock, name))
                notes += said
            except InputError as error:
                problems += error.problems
    if problems:
        raise InputError(problems)
    return tuple(loaded), tuple(notes)


def _rows(report: Report) -> Iterator[Sequence[str]]:
    for recipe in report.hosts:
        for step in cast(Iterable[Mapping[str, Any]], recipe.details["checks"]):
            yield recipe.name, step["check"], step["verdict"], f"{step['seconds']:.1f} s", step["why"]
