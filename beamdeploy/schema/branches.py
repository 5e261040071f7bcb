"""`oneOf` and `anyOf`: the fault of the form that was meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from beamdeploy.documents import Place, dotted
from beamdeploy.schema.packaged import resolved
from beamdeploy.schema.validator import Error
from beamdeploy.schema.value import Around, Fault, choice_fault, listed, nearest, shown, type_fault


def branch_faults(error: Error, path: Place, around: Around) -> Iterable[Fault]:
    """The fault of the branch that was meant: by kind of value, then by fixed values, then by the keys that fit."""
    groups: dict[int, list[Error]] = {}
    for each in error.context or ():
        groups.setdefault(int(each.relative_schema_path[0]), []).append(each)
    if not groups:
        return (_several(error, path, around),)
    alive = [at for at, errors in groups.items() if not any(_at_root(each, "type") for each in errors)]
    if not alive:
        return (type_fault(_types_of(groups), error.instance, path, around),)
    if not isinstance(error.instance, (dict, list)):
        return _scalar_branches([groups[at] for at in alive], error, path, around)
    if all(each.validator == "required" and _at_root(each, "required") for at in alive for each in groups[at]):
        return _needs_one([groups[at] for at in alive], error, path, around)
    best = min(alive, key=lambda at: _distance(groups[at], error, at, around))
    return [fault for each in groups[best] for fault in around.faults(each, around)]


def _at_root(error: Error, *keywords: str) -> bool:
    return error.validator in keywords and not error.relative_path


def _types_of(groups: Mapping[int, Sequence[Error]]) -> list[str]:
    types: list[str] = []
    for each in (each for errors in groups.values() for each in errors if _at_root(each, "type")):
        value = each.validator_value
        types.extend([value] if isinstance(value, str) else value)
    return list(dict.fromkeys(types))


def _scalar_branches(groups: Sequence[Sequence[Error]], error: Error, path: Place, around: Around) -> Iterable[Fault]:
    """One branch left: its faults. Several: one fault that names what each of them takes."""
    groups = [errors for errors in groups if not _foreign(errors, error.instance)] or groups
    if len(groups) == 1:
        return [fault for each in groups[0] for fault in around.faults(each, around)]
    choices = [value for errors in groups for each in errors for value in _choices_of(each)]
    forms = [str(each.schema["x-pattern-says"]) for errors in groups for each in errors if _says(each)]
    if choices and not forms:
        return (choice_fault(choices, error.instance, path, around),)
    wanted = [f"one of {listed(choices)}"] if choices else []
    said = " or ".join([*wanted, *forms]) or "of a form that is known here"
    near = nearest(str(error.instance), choices)
    remedy = f"did you mean {near}?" if near else "give it one of these forms"
    return (Fault(path, "BD035", f"{dotted(path)}: {shown(error.instance)} is not {said}", remedy),)


def _foreign(errors: Sequence[Error], value: object) -> bool:
    """Whether a branch takes fixed values only, and none of the value's own type."""
    choices = [choice for each in errors for choice in _choices_of(each)]
    return bool(choices) and all(type(choice) is not type(value) for choice in choices)


def _choices_of(error: Error) -> list[object]:
    if error.validator == "const":
        return [error.validator_value]
    return list(error.validator_value) if error.validator == "enum" else []


def _says(error: Error) -> bool:
    return error.validator == "pattern" and "x-pattern-says" in error.schema


def _needs_one(groups: Sequence[Sequence[Error]], error: Error, path: Place, around: Around) -> Iterable[Fault]:
    """Branches that only ask for keys: none of them is complete."""
    missing = [[name for name in each.validator_value if name not in error.instance] for each, *_ in groups]
    started = [
        names for (each, *_), names in zip(groups, missing, strict=True) if len(names) < len(each.validator_value)
    ]
    ways = started or missing
    said = " or ".join(" and ".join(names) for names in ways)
    what = f"{dotted(path)}: {said} is missing"
    return (Fault(path, "BD032", what, f"add {said}", key=bool(path)),)


def _distance(errors: Sequence[Error], error: Error, at: int, around: Around) -> tuple[int, ...]:
    """How far a value is from a branch: wrong fixed values, keys that it lacks or wants, then all faults."""
    branch = resolved(error.validator_value[at], around.root)
    fixed = sum(each.validator in ("const", "enum") and len(each.relative_path) <= 1 for each in errors)
    known = branch.get("properties", {})
    foreign = sum(name not in known for name in error.instance) if isinstance(error.instance, dict) else 0
    wanted = sum(_at_root(each, "required") for each in errors)
    return fixed, foreign, wanted, len(errors)


def _several(error: Error, path: Place, around: Around) -> Fault:
    """`oneOf` of which more than one fits: usually keys that exclude each other."""
    asked = [resolved(branch, around.root).get("required", []) for branch in error.validator_value]
    given = [name for names in asked for name in names if isinstance(error.instance, dict) and name in error.instance]
    given = list(dict.fromkeys(given))
    if len(given) < 2:
        what = f"{dotted(path)}: this fits more than one form"
        return Fault(path, "BD041", what, "see the key's description in the schema")
    what = f"{dotted(path)}: {' and '.join(given)} exclude each other"
    return Fault((*path, given[-1]), "BD041", what, f"keep one of {listed(given)}", key=True)
