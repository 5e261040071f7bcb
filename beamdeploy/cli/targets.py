"""What the words of a command name: recipe, lock, hosts, and where progress goes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from beamdeploy.inventory import Host, load_inventory, select

if TYPE_CHECKING:
    from beamdeploy.lock import Lock
    from beamdeploy.recipe import Recipe


def load_hosts(
    inventory: str | None, limit: str | None, model_dir: str | None, gpus: tuple[int, ...] | None
) -> tuple[Host, ...]:
    """The hosts that `-i` and `-l` name. InputError: none, or the inventory is wrong."""
    loaded = load_inventory(inventory, model_dir=model_dir, gpus=gpus, environ=os.environ)
    return select(loaded, limit)


def load_wanted(recipe: str, overrides: Iterable[tuple[str, str]]) -> tuple[Recipe, Lock | None]:
    """The recipe and its lock. InputError: all that is wrong with them."""
    from beamdeploy.lock import load_lock
    from beamdeploy.recipe import load_recipe

    return load_recipe(recipe, overrides), load_lock(recipe)


def is_recipe(target: str) -> bool:
    """Whether a word names a recipe file and not a deployment."""
    return target.endswith((".yaml", ".yml")) or os.sep in target or os.path.isfile(target)


def load_recipe_file(recipe: str) -> Recipe:
    """The recipe alone. InputError: all that is wrong with it."""
    from beamdeploy.recipe import load_recipe

    return load_recipe(recipe)


def deployment_name(target: str | None) -> str | None:
    """The deployment that a recipe file or a bare name names."""
    if target is None or not is_recipe(target):
        return target
    return load_recipe_file(target).name
