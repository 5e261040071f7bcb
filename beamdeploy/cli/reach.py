"""What tunnel, chat and bench need of their words: one host, and a recipe or a deployment's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from beamdeploy.errors import InputError, Problem

if TYPE_CHECKING:
    from beamdeploy.inventory import Host
    from beamdeploy.recipe import Recipe


def one(hosts: tuple[Host, ...], target: Recipe | str) -> Host:
    """The one host, of several nodes their head. InputError: there are several."""
    from beamdeploy.ranks import heads

    hosts = hosts if isinstance(target, str) else heads(target, hosts)
    if len(hosts) == 1:
        return hosts[0]
    names = ", ".join(host.name for host in hosts[:5]) + (", …" if len(hosts) > 5 else "")
    raise InputError([Problem(f"the inventory names {len(hosts)} hosts: {names}", "Name one of them with -l.")])


def wanted(target: str, overrides: Iterable[tuple[str, str]], output: str) -> tuple[Recipe | str, tuple[Problem, ...]]:
    """The recipe in a file, or the name of a deployment; and what the report is to say beside it."""
    from beamdeploy.cli.targets import is_recipe, load_wanted

    if not is_recipe(target):
        return target, ()
    recipe, _, notes = load_wanted(target, overrides, output)
    return recipe, notes
