"""What a schema cannot say: all rules, and what they find in a recipe. One module a subject."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

from beamdeploy import documents, engines, hardware, recipe, schema, variants
from beamdeploy.documents import MAX_PROBLEMS, Document
from beamdeploy.engines.catalog import catalog
from beamdeploy.engines.traits import Traits, traits
from beamdeploy.errors import InputError, Problem
from beamdeploy.lock import Lock, load_lock
from beamdeploy.models import model_of
from beamdeploy.recipe import Recipe
from beamdeploy.rules import (
    arguments,
    combinations,
    container,
    engine,
    environment,
    flags,
    gpus,
    image,
    limits,
    model,
    nodes,
    parallel,
    request,
    speculative,
    values,
)
from beamdeploy.rules.foreign import rules_of
from beamdeploy.rules.rule import Finding, Rule, Subject

RULES: tuple[Rule, ...] = (
    *engine.RULES,
    *flags.RULES,
    *arguments.RULES,
    *values.RULES,
    *parallel.RULES,
    *model.RULES,
    *gpus.RULES,
    *combinations.RULES,
    *limits.RULES,
    *speculative.RULES,
    *nodes.RULES,
    *container.RULES,
    *environment.RULES,
    *image.RULES,
    *request.RULES,
)
"""All rules that are checked here. `pages.all_rules()` has those of the other modules as well."""


def recipe_problems(document: Document) -> tuple[Problem, ...]:
    """Everything that is wrong with a well-formed recipe; the rules are asked when it holds to the schema."""
    names = variants.names(document)
    problems = recipe.recipe_problems(document)
    if problems:
        return problems
    found = [each for name in (None, *names) for each in _one(variants.resolved(document, name))]
    # what all variants share is told once
    kept = {(each.rule, each.line, each.col, each.what): each for each in found}
    return tuple(kept.values()) if names else tuple(found)


def _one(document: Document) -> tuple[Problem, ...]:
    """Everything that is wrong with a recipe of which the variant is chosen."""
    problems = recipe.recipe_problems(document)
    if problems:
        return problems
    built = recipe.build(schema.defaults(document.data, "recipe"), document.file)
    return check(document, built, _lock_beside(document.file))


def _lock_beside(file: str) -> Lock | None:
    """The lock of a recipe; None: there is none, or it is none, which is said where that file is checked."""
    try:
        return load_lock(file)
    except InputError:
        return None


def check(
    document: Document, wanted: Recipe, lock: Lock | None, overrides: tuple[tuple[str, str], ...] = ()
) -> tuple[Problem, ...]:
    """Everything that the rules find in a recipe that holds to the schema, in the order of the file.

    `overrides`: the -e PATH=VALUE of this run; what they are to blame for is said to be there.
    """
    found = _findings(document, subject(wanted, lock), overrides)
    return tuple(sorted(found, key=lambda each: (each.line or 0, each.col or 0, each.rule)))


def subject(wanted: Recipe, lock: Lock | None) -> Subject:
    """The recipe with all that is known of its engine, GPU family and model."""
    known = engines.facts_of(wanted.source["engine"]) if wanted.engine.name in _names() else None
    weights, drafting = wanted.model.weights, wanted.speculative
    served = model_of(weights.source, wanted.model.served_name)
    drafter = drafting.drafter if drafting else None
    return Subject(
        recipe=wanted,
        lock=lock,
        engine=known,
        catalog=catalog(known.name, wanted.engine.catalog or known.catalog) if known else None,
        traits=(traits(known.name) if known else None) or Traits(),
        family=hardware.family(wanted.hardware.gpu),
        model=served,
        variant=served.variant(weights.source) if served else None,
        drafter=served.drafter(drafter.source) if served and drafter else None,
    )


@cache
def _names() -> frozenset[str]:
    return frozenset(engines.names())


def _findings(document: Document, looked_at: Subject, overrides: tuple[tuple[str, str], ...]) -> Iterator[Problem]:
    for rule in (*RULES, *rules_of(looked_at.recipe.engine.name)):
        assert rule.check is not None
        for found in islice(rule.check(looked_at), MAX_PROBLEMS):
            yield _problem(document, rule, found, overrides)


def _problem(document: Document, rule: Rule, found: Finding, overrides: tuple[tuple[str, str], ...]) -> Problem:
    level, place = found.level or rule.level, ".".join(map(str, found.place))
    option = next((f"-e {path}={value}" for path, value in reversed(overrides) if path == place), None)
    if option is not None:
        return Problem(found.what, found.remedy, option, rule=rule.id, level=level)
    return documents.problem(document, found.place, found.what, found.remedy, rule=rule.id, level=level, key=found.key)
