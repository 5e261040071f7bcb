"""`beamdeploy lock`"""

from __future__ import annotations

import click

from beamdeploy.cli import options


@click.command()
@click.argument("recipe")
@options.hosts
@options.output
def lock(
    recipe: str,
    inventory: str | None,
    limit: str | None,
    model_dir: str | None,
    gpus: tuple[int, ...] | None,
    accept_new: bool,
    output: str,
) -> int:
    """Pull the image of RECIPE on a host and write its digest to the lock beside the recipe.

    With several hosts, the first one (see -l) is asked. The file is written only when the digest is known.
    """
    from beamdeploy.cli.targets import load_hosts, load_recipe_file
    from beamdeploy.lock import write_lock
    from beamdeploy.outcome import HostReport, Report
    from beamdeploy.pin import pin
    from beamdeploy.remote import open_session
    from beamdeploy.report import Progress, show

    wanted = load_recipe_file(recipe)
    host = load_hosts(inventory, limit, model_dir, gpus)[0]
    with Progress() as progress, open_session(host, accept_new=accept_new) as session:
        locked = pin(session, host, wanted, lambda phase, detail: progress.event(host.name, phase, detail))
    write_lock(locked)
    details = {"file": locked.file, "reference": locked.reference, "digest": locked.digest}
    summary = f"{locked.reference} is {locked.digest}, written to {locked.file}"
    return show(Report("Lock", 0, (HostReport(host.name, "locked", 0, summary, details),)), output)
