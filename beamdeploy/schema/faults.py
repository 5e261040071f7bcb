"""The faults of values against a schema, in words, at the line where each is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from beamdeploy.documents import MAX_PROBLEMS, Document, Place
from beamdeploy.errors import Problem
from beamdeploy.schema.branches import branch_faults
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
from beamdeploy.schema.validator import Error
from beamdeploy.schema.value import Around, Fault, null_fault


def problems(document: Document, validator: Any) -> tuple[Problem, ...]:
    """What `validator` finds in the data of `document`, by line."""
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
    told = [
        document.problem(fault.path, fault.what, fault.remedy, rule=fault.rule, key=fault.key)
        for fault in found.values()
    ]
    return tuple(sorted(told, key=lambda each: (each.line or 0, each.col or 0, each.rule, each.what)))


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
