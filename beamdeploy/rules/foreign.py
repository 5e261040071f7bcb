"""Rules that come with an engine which is not ours: its rules.py, and only when the user trusts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from beamdeploy import engines
from beamdeploy.errors import InputError, Problem
from beamdeploy.rules.rule import Finding, Rule, Subject


@cache
def rules_of(engine: str) -> tuple[Rule, ...]:
    """The rules of a foreign engine's folder; where it is not trusted, one that says so. InputError: it is broken."""
    file = next((path for each in engines.foreign() if (path := each / engine / "rules.py").is_file()), None)
    if file is None or engine not in engines.names() or str(file.parent) != str(engines.place(engine)):
        return ()
    return _loaded(file) if os.environ.get(engines.TRUSTED) == "1" else (_NOT_TRUSTED,)


def _loaded(file: Path) -> tuple[Rule, ...]:
    spec = spec_from_file_location(f"beamdeploy_engine_{file.parent.name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return tuple(rule for rule in module.RULES if isinstance(rule, Rule) and rule.check is not None)
    except Exception as error:  # whatever somebody's module raises is said with its file
        what = f"{file}: {type(error).__name__}: {error}"
        raise InputError([Problem(what, "Mend it, or run without --trust-engines.", file=str(file))]) from error


def _untrusted(subject: Subject) -> Iterator[Finding]:
    what = f"engine.name: the rules.py of the engine {subject.recipe.engine.name} was not run"
    yield Finding("engine.name", what, "Read it, and run with --trust-engines.")


_NOT_TRUSTED = Rule(
    "BD306",
    "A foreign engine's rules were not run",
    "info",
    "An engine of --engines may bring rules of its own as Python. They run only with --trust-engines.",
    "beamdeploy --engines DIR validate RECIPE",
    "beamdeploy --engines DIR --trust-engines validate RECIPE",
    "",
    _untrusted,
)
RULES = (_NOT_TRUSTED,)
