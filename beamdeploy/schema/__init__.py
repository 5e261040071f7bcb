"""Values against a packaged JSON Schema (2020-12): every fault in words, at the line where it is written.

Three annotations give a schema its own words: `x-pattern-says` beside `pattern` ("a container name: letters, digits,
_ . -"), `x-names-say` beside `patternProperties` or `propertyNames`, and `x-not-says` beside `not`.

Rules: BD030 unknown key · BD031 empty (null) · BD032 key missing · BD033 wrong kind of value · BD034 not a choice ·
BD035 text of the wrong form · BD036 too small or too large · BD037 too few, too many, too short or too long ·
BD038 twice in a list · BD039 name of a key · BD040 needs another key · BD041 keys that exclude each other ·
BD042 any other fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from beamdeploy.documents import MAX_PROBLEMS, Document, Place
from beamdeploy.errors import Problem
from beamdeploy.schema.branches import branch_faults
from beamdeploy.schema.defaults import defaults, defaults_from
from beamdeploy.schema.keywords import (
    BOUNDS,
    barred_faults,
    bound_faults,
    choice_faults,
    dependent_faults,
    name_fault,
    not_faults,
    other_faults,
    pattern_faults,
    required_faults,
    type_faults,
    unique_faults,
    unknown_faults,
)
from beamdeploy.schema.validator import Error, Schema, built, load_schema, validator_of
from beamdeploy.schema.value import Around, Fault, null_fault

__all__ = ["check", "check_against", "defaults", "defaults_from", "load_schema"]


def check(document: Document, schema_name: str) -> tuple[Problem, ...]:
    """What is wrong with the values of `document`, by line; `schema_name` is "recipe", "inventory" or "lock"."""
    return _problems(document, validator_of(schema_name))


def check_against(document: Document, schema: Schema) -> tuple[Problem, ...]:
    """`check` against a schema given as a mapping; it is prepared anew at each call."""
    return _problems(document, built(schema))


def _problems(document: Document, validator: Any) -> tuple[Problem, ...]:
    around = Around(document, validator.schema, _faults)
    found: dict[tuple[Place, str, str], Fault] = {}
    for fault in (fault for error in validator.iter_errors(document.data) for fault in _faults(error, around)):
        if _already_told(document, fault.path):
            continue
        if len(found) >= MAX_PROBLEMS:
            fault = Fault((), "BD026", f"more than {MAX_PROBLEMS} problems; not all are told", "is it the right file?")
        # null is told once, not for its type and its choices; so is one missing key of two branches
        found.setdefault((fault.path, fault.rule, "" if fault.rule == "BD031" else fault.what), fault)
        if fault.rule == "BD026":
            break
    problems = [
        document.problem(fault.path, fault.what, fault.remedy, rule=fault.rule, key=fault.key)
        for fault in found.values()
    ]
    return tuple(sorted(problems, key=lambda each: (each.line or 0, each.col or 0, each.rule, each.what)))


def _already_told(document: Document, path: Place) -> bool:
    return bool(document.faults) and any(path[:end] in document.faults for end in range(len(path) + 1))


def _faults(error: Error, around: Around) -> Iterable[Fault]:
    path: Place = tuple(error.absolute_path)
    keyword = str(error.validator)
    if _is_name(error):
        return (name_fault(error, path),)
    if error.instance is None and keyword in ("type", "enum", "const", "anyOf", "oneOf"):
        return (null_fault(path),)
    return _BY_KEYWORD.get(keyword, other_faults)(error, path, around)


def _is_name(error: Error) -> bool:
    steps = list(error.absolute_schema_path)
    return any(
        step == "propertyNames" and (at == 0 or steps[at - 1] not in ("properties", "$defs"))
        for at, step in enumerate(steps)
    )


_BY_KEYWORD: Mapping[str, Callable[[Error, Place, Around], Iterable[Fault]]] = {
    "additionalProperties": unknown_faults,
    "unevaluatedProperties": unknown_faults,
    "required": required_faults,
    "type": type_faults,
    "enum": choice_faults,
    "const": choice_faults,
    "pattern": pattern_faults,
    "properties": barred_faults,
    "uniqueItems": unique_faults,
    "dependentRequired": dependent_faults,
    "not": not_faults,
    "anyOf": branch_faults,
    "oneOf": branch_faults,
    **dict.fromkeys(BOUNDS, bound_faults),
}
