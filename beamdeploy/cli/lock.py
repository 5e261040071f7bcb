"""`beamdeploy lock`"""

from __future__ import annotations

import click

from beamdeploy.cli import options
from beamdeploy.cli.bare import with_bare
from beamdeploy.errors import CHANGES_PENDING, DONE


@click.command(cls=with_bare("--upgrade", "all"))
@click.argument("recipe")
@click.option(
    "--from",
    "source",
    metavar="HOST",
    help="Take image and weights as this host of the inventory has them; an image that it lacks is pulled there.",
)
@click.option("--check", is_flag=True, help="Write nothing; end with 10 when the lock is not what would be written.")
@click.option(
    "--upgrade",
    metavar="[=image|weights]",
    type=click.Choice(("all", "image", "weights")),
    help="Ask again for what is locked already; without it only what is missing or no longer fits is asked.",
)
@click.option(
    "--insecure-registry",
    "insecure",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Ask this registry, or those of a network (10.0.0.0/8), over plain HTTP, as dockerd is told to.",
)
@options.one_host
@options.output
def lock(
    recipe: str,
    source: str | None,
    check: bool,
    upgrade: str | None,
    insecure: tuple[str, ...],
    where: options.Where,
    output: str,
) -> int:
    """Write down what exactly the image and weights of RECIPE are, in the lock beside it.

    Digests come from the image's registry, and each file's size and sha256 from the hub; your logins to both are
    used. With --from they come from a host that is known to be good. The file is written only when all is known.
    """
    from beamdeploy.cli.locking import lock_from, refuse_hosts, show_lock
    from beamdeploy.cli.targets import load_hosts, load_recipe_file
    from beamdeploy.lock import load_lock, stale, write_lock
    from beamdeploy.pin import Wish, pin
    from beamdeploy.report import Progress

    if source is None:
        refuse_hosts(where)
    wanted, old = load_recipe_file(recipe), load_lock(recipe)
    if check and upgrade is None and source is None:
        problems = stale(wanted, old) if old else ()
        return show_lock(wanted, old, old, problems, output, exit=CHANGES_PENDING if problems or not old else DONE)
    wish = Wish(upgrade in ("all", "image"), upgrade in ("all", "weights"), insecure)
    with Progress() as progress:
        if source is not None:
            hosts = load_hosts(where)
            new, notes = lock_from(source, hosts, wanted, old, wish, where.accept_new, progress.event)
        else:
            new, notes = pin(wanted, old, wish, lambda phase, detail: progress.event("lock", phase, detail))
    changed = old is None or new != old
    if changed and not check:
        write_lock(new)
    return show_lock(wanted, old, new, notes, output, exit=CHANGES_PENDING if changed and check else DONE, host=source)
