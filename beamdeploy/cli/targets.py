"""What the words of a command name: recipe, lock, hosts, and where progress goes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from beamdeploy.errors import InputError, Problem
from beamdeploy.failed import limited
from beamdeploy.inventory import Host, load_inventory
from beamdeploy.patterns import select

if TYPE_CHECKING:
    from beamdeploy.cli.options import Rollout, Where
    from beamdeploy.lock import Lock
    from beamdeploy.recipe import Recipe
    from beamdeploy.render import Spec
    from beamdeploy.survey import Options


def load_hosts(where: Where, recipe: Recipe | None = None) -> tuple[Host, ...]:
    """The hosts that `-i` and `-l` name. InputError: none, or the inventory is wrong.

    The word `sandbox` stands for the inventory of a sandbox, which is started for it; `recipe`: for what, if that is
    known.
    """
    inventory = where.inventory
    if inventory == "sandbox":
        from beamdeploy.sandbox import lifetime

        started = lifetime.up(None, lifetime.folder_of(None, os.environ), recipes=(recipe,) if recipe else ())
        inventory = str(started.inventory)
    loaded = load_inventory(inventory, model_dir=where.model_dir, gpus=where.gpus, environ=os.environ)
    return select(loaded, limited(where.inventory, where.limit, os.environ))


def ordered(specs: tuple[Spec, ...], order: str) -> tuple[Spec, ...]:
    """The hosts' specs in the order in which they are to be done; which host is which rank does not depend on it."""
    if order == "shuffle":
        return tuple(random.sample(specs, len(specs)))
    by_name = tuple(sorted(specs, key=lambda spec: spec.host.name)) if "sorted" in order else specs
    return by_name[::-1] if order.startswith("reverse") else by_name


def rollout_options(
    rollout: Rollout, where: Where, *, skip_blocked: bool = False, diff: bool = False, action: str = "apply"
) -> Options:
    """The run's options out of the command line's."""
    from beamdeploy.survey import Options

    return Options(
        accept_new=where.accept_new,
        skip_blocked=skip_blocked,
        lock_wait=rollout.lock_wait,
        serial=rollout.serial,
        canary=rollout.canary,
        max_fail=rollout.max_fail,
        forks=where.forks,
        keep_failed=rollout.keep_failed,
        diff=diff,
        action=action,
    )


def load_wanted(
    recipe: str, overrides: Iterable[tuple[str, str]], output: str
) -> tuple[Recipe, Lock | None, tuple[Problem, ...]]:
    """The recipe, its lock, and what the report is to say beside it. InputError: all that is wrong with them.

    Warnings of the rules are shown at once, and belong to the report where that is for a program.
    """
    from beamdeploy.check.ignores import without_ignored
    from beamdeploy.lock import load_lock
    from beamdeploy.recipe import load_with_document
    from beamdeploy.report import show_problems
    from beamdeploy.rules import check

    overrides = tuple(overrides)
    wanted, document = load_with_document(recipe, overrides)
    lock = load_lock(recipe)
    problems = without_ignored(document, check(document, wanted, lock, overrides))
    if any(problem.level == "error" for problem in problems):
        raise InputError(problem for problem in problems if problem.level != "info")
    warnings = tuple(problem for problem in problems if problem.level == "warning")
    if output == "json":
        return wanted, lock, warnings
    show_problems(warnings)
    return wanted, lock, ()


def is_recipe(target: str) -> bool:
    """Whether a word names a recipe file and not a deployment."""
    return target.endswith((".yaml", ".yml")) or os.sep in target or os.path.isfile(target)


def load_recipe_file(recipe: str) -> Recipe:
    """The recipe alone. InputError: all that is wrong with it."""
    from beamdeploy.recipe import load_recipe

    return load_recipe(recipe)


def deployment_name(target: str | None) -> str | None:
    """The deployment that a recipe file or a bare name names. InputError: the name is empty."""
    if target == "":
        remedy = "Name a deployment or a recipe's file; leave the word out where all are meant. Is a variable not set?"
        raise InputError([Problem("the name of a deployment is empty", remedy, where="command line")])
    if target is None or not is_recipe(target):
        return target
    return load_recipe_file(target).name
