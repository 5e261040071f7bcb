"""What `beamdeploy lock` does with hosts, and how its result is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamdeploy.errors import DONE, InputError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from beamdeploy.cli.options import Where
    from beamdeploy.inventory import Host
    from beamdeploy.lock import Lock
    from beamdeploy.pin import Wish
    from beamdeploy.recipe import Recipe


def refuse_hosts(where: Where) -> None:
    """InputError: hosts were named, and none of them is to be asked. An inventory of the environment names none."""
    given = {
        "-i": where.inventory if from_words("inventory") else None,
        "-l": where.limit,
        "--model-dir": where.model_dir,
        "--gpus": where.gpus,
        "--accept-new": where.accept_new or None,
    }
    named = [flag for flag, value in given.items() if value is not None]
    if named:
        what = f"{', '.join(named)} says nothing here: without --from the lock comes from registry and hub"
        remedy = f"Name the host that is known to be good: --from HOST; or leave {', '.join(named)} out."
        raise InputError([Problem(what, remedy, named[0])])


def from_words(name: str) -> bool:
    """Whether an option of this command was given in its words, not by the environment."""
    import click
    from click.core import ParameterSource

    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def lock_from(
    source: str,
    hosts: tuple[Host, ...],
    recipe: Recipe,
    old: Lock | None,
    wish: Wish,
    accept_new: bool,
    say: Callable[[str, str, str], None],
) -> tuple[Lock, tuple[Problem, ...]]:
    """The lock of what one host has. InputError: the inventory has no such host."""
    from beamdeploy.pin import pin_on
    from beamdeploy.remote import open_session

    host = next((each for each in hosts if each.name == source), None)
    if host is None:
        remedy = f"The inventory has: {', '.join(each.name for each in hosts)}"
        raise InputError([Problem(f"--from: no host is called {source!r}", remedy, "--from")])
    with open_session(host, accept_new=accept_new) as session:
        return pin_on(session, host, recipe, old, wish, lambda phase, detail: say(host.name, phase, detail))


def show_lock(
    recipe: Recipe,
    old: Lock | None,
    new: Lock | None,
    problems: tuple[Problem, ...],
    output: str,
    *,
    exit: int,
    host: str | None = None,
) -> int:
    """Show what is locked, and for people how it differs from what was."""
    from beamdeploy.lock import lock_file, text_of
    from beamdeploy.outcome import HostReport, Report
    from beamdeploy.report import show
    from beamdeploy.report.show import show_lines
    from beamdeploy.report.text import diff_lines

    file = lock_file(recipe.file)
    if new is None:
        problems = (*problems, Problem(f"{file}: there is none", "beamdeploy lock writes it.", where="lock"))
    details = {"file": file, "changed": new != old or exit != DONE, **(_details(new) if new else {})}
    done = f"{file}: {_said(old, new, exit)}" if new else f"{file}: there is none"
    asked = (HostReport(host, "stale" if exit else "locked", exit, done, details),) if host else ()
    if output == "text" and new is not None:
        before, after = (text_of(each).splitlines() if each else [] for each in (old, new))
        show_lines(diff_lines(before, after, (f"{file} (before)", file)))
        show_lines([((f"{file}: {_said(old, new, exit)}", ""),)])
    return show(Report("Lock", exit, asked, problems, details), output)


def _said(old: Lock | None, new: Lock, exit: int) -> str:
    if exit:
        return "stale"
    return "nothing changed" if new == old else "written"


def _details(lock: Lock) -> Mapping[str, object]:
    weights = {
        path: {"source": held.source, "revision": held.revision, "files": len(held.files), "bytes": _bytes(lock, path)}
        for path, held in lock.weights.items()
    }
    return {"reference": lock.reference, "digest": lock.digest, "weights": weights}


def _bytes(lock: Lock, path: str) -> int:
    return sum(one.size for one in lock.weights[path].files.values())
