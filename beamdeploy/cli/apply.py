"""`beamdeploy apply`"""

from __future__ import annotations

import os

import click

from beamdeploy.cli import options


@click.command()
@options.recipe
@options.hosts
@options.overrides
@options.templates
@options.unpinned
@click.option("-C", "--check", is_flag=True, help="Only show the plan, as `beamdeploy plan` does.")
@click.option("--exit-code", is_flag=True, help="With --check: end with 10 when something would change.")
@click.option("--locked", is_flag=True, help="Refuse when the recipe has no lock: the habit of a CI.")
@click.option("--skip-blocked", is_flag=True, help="Go on with the others when a host is blocked.")
@options.rollout
@options.diff
@options.yes
@options.output
@click.pass_context
def apply(
    context: click.Context,
    recipe: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    templates: str | None,
    unpinned: bool,
    check: bool,
    exit_code: bool,
    locked: bool,
    skip_blocked: bool,
    rollout: options.Rollout,
    diff: bool,
    yes: bool,
    output: str,
) -> int:
    """Make the hosts serve what RECIPE says: look, plan, change what differs, and wait until it answers.

    The plan is shown first. On a terminal it asks before a running server is stopped; otherwise it goes on.
    """
    from beamdeploy import deploy
    from beamdeploy.cli.ask import confirm_apply
    from beamdeploy.cli.plan import plan
    from beamdeploy.cli.targets import load_hosts, load_wanted, ordered, rollout_options
    from beamdeploy.failed import note
    from beamdeploy.lock import require_lock
    from beamdeploy.report import Progress, show

    if check:
        shared = {name: value for name, value in context.params.items() if name in {p.name for p in plan.params}}
        return int(context.invoke(plan, **shared))
    wanted, lock, notes = load_wanted(recipe, overrides, output)
    if locked:
        require_lock(recipe, lock)
    hosts = load_hosts(where, wanted)
    specs = ordered(deploy.specs_of(wanted, hosts, lock, templates, to_apply=True, unpinned=unpinned), rollout.order)
    how = rollout_options(rollout, where, skip_blocked=skip_blocked, diff=diff)
    with Progress() as progress:
        report = deploy.apply(specs, how, progress.event, confirm_apply(progress, yes=yes))
    note(where.inventory, report, os.environ)
    return show(report.beside(notes), output)
