"""`beamdeploy render`"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from beamdeploy.cli import options

if TYPE_CHECKING:
    from beamdeploy.errors import Problem


@click.command()
@options.recipe
@options.one_host
@options.overrides
@options.templates
@click.option("--resolved", is_flag=True, help="Print the recipe itself: with its variant, -e and all defaults.")
@options.output_as("text", "json", "compose", "systemd", "quadlet")
def render(
    recipe: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    templates: str | None,
    resolved: bool,
    output: str,
) -> int:
    """Print the docker run command of RECIPE, ready to be pasted into a shell.

    `-o compose`, `systemd` and `quadlet` print a file for these instead; what it starts beamdeploy does not manage.

    Without an inventory it is for a server that is not known yet: set MODEL_DIR there to the folder of the weights (in
    a unit, on its Environment= line).
    """
    from beamdeploy.cli.targets import load_hosts, load_wanted
    from beamdeploy.deploy import specs_of
    from beamdeploy.errors import InputError, Problem
    from beamdeploy.exporting import shown
    from beamdeploy.label import without_labels
    from beamdeploy.outcome import HostReport, Report
    from beamdeploy.render import nowhere
    from beamdeploy.report import pasted, show, show_text
    from beamdeploy.report.paste import UNKNOWN_DIR

    wanted, lock, notes = load_wanted(recipe, overrides, output)
    if resolved:
        return _resolved(wanted.source, notes, output)
    hosts = load_hosts(where) if where.inventory else (nowhere(where.model_dir, where.gpus),)
    specs = specs_of(wanted, hosts, lock, templates)
    if output == "text":
        return pasted([(spec.host.name, spec.words) for spec in specs])
    if output != "json":
        if len(specs) > 1:
            what = f"a file of {output} is for one host, and {len(specs)} are meant"
            raise InputError([Problem(what, "Name one of them with -l.", where="command line")])
        unknown = UNKNOWN_DIR if not where.inventory and where.model_dir is None else ""
        show_text(shown(without_labels(specs[0].words), output, specs[0].stop_timeout, unknown).rstrip("\n"))
        return 0
    details = [{"words": list(s.words), "digest": s.digest, "templates": list(s.templates)} for s in specs]
    reports = [HostReport(s.host.name, "rendered", 0, details=d) for s, d in zip(specs, details, strict=True)]
    return show(Report("Render", 0, tuple(reports), notes), output)


def _resolved(source: Mapping[str, Any], notes: tuple[Problem, ...], output: str) -> int:
    from yaml import safe_dump

    from beamdeploy.outcome import Report
    from beamdeploy.report import show, show_text

    if output != "text":
        return show(Report("Render", 0, problems=notes, details={"recipe": source}), "json")
    show_text(safe_dump(dict(source), sort_keys=False).rstrip("\n"))
    return 0
