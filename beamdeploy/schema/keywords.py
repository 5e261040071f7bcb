"""The fault that each keyword of a schema finds, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from beamdeploy.documents import Place, dotted
from beamdeploy.schema.packaged import Schema, resolved
from beamdeploy.schema.validator import Error, regex_of, repeats
from beamdeploy.schema.value import Around, Fault, as_yaml, choice_fault, listed, nearest, shown, type_fault


def name_fault(error: Error, path: Place) -> Fault:
    schema: Schema = error.schema if isinstance(error.schema, Mapping) else {}
    says = schema.get("x-names-say") or schema.get("x-pattern-says")
    if error.validator == "enum":
        says = f"one of {listed(schema['enum'])}"
    wanted = says or f"text that matches {schema.get('pattern', error.validator_value)}"
    what = f"{dotted(path)}: the name {shown(error.instance)} is not {wanted}"
    return Fault((*path, str(error.instance)), "BD039", what, _renamed(error, wanted), key=True)


def _renamed(error: Error, wanted: str) -> str:
    near = nearest(str(error.instance), error.validator_value) if error.validator == "enum" else None
    return f"did you mean {near}?" if near else "rename the key"


def unknown_faults(error: Error, path: Place, around: Around) -> Iterable[Fault]:
    known = error.schema.get("properties", {})
    patterns = error.schema.get("patternProperties", {})
    names = [name for name in error.instance if name not in known and not _any_match(patterns, name)]
    if isinstance(error.validator_value, Mapping):
        names = []  # its own errors are reported below it
    for name in names:
        if patterns and not known:
            says = error.schema.get("x-names-say") or f"text that matches {' or '.join(patterns)}"
            what = f"{dotted(path)}: the name {shown(name)} is not {says}"
            yield Fault((*path, name), "BD039", what, "rename the key", key=True)
            continue
        what = f"unknown key {dotted((*path, name))}"
        free = [each for each in known if each not in error.instance]
        yield Fault((*path, name), "BD030", what, _unknown_remedy(name, path, free, known, around.root), key=True)


def _any_match(patterns: Iterable[str], name: str) -> bool:
    return any(regex_of(pattern).search(name) for pattern in patterns)


def _unknown_remedy(name: str, path: Place, free: Sequence[str], known: Iterable[str], root: Schema) -> str:
    """`free`: the keys that are not set yet, which a slip most often stands for; an override means one that is set."""
    known = list(known)
    if near := nearest(name, known, 0.9) or nearest(name, free) or nearest(name, known):
        return f"did you mean {near}?"
    elsewhere = [where for where in _homes(name, root) if where[:-1] != path]
    if elsewhere:
        return f"did you mean {' or '.join(dotted(where) for where in elsewhere[:2])}?"
    return f"remove it; known here: {listed(free or known)}" if known else "remove it"


def _homes(name: str, root: Schema) -> list[Place]:
    """Where else in the schema a key of this name belongs."""
    return [path for path in _property_paths(root, root, (), 0) if path[-1] == name]


def _property_paths(schema: Schema, root: Schema, path: Place, depth: int) -> Iterator[Place]:
    for name, below in resolved(schema, root).get("properties", {}).items():
        yield (*path, name)
        if depth < 6 and isinstance(below, Mapping):
            yield from _property_paths(below, root, (*path, name), depth + 1)


def required_faults(error: Error, path: Place, around: Around) -> Iterable[Fault]:
    for name in error.validator_value:
        if name not in error.instance:
            here = (*path, name)
            what = f"{dotted(here)} is missing"
            yield Fault(path, "BD032", what, _add(error.schema, name, around.root), key=bool(path))


def _add(schema: Schema, name: str, root: Schema) -> str:
    wanted = resolved(schema.get("properties", {}).get(name, {}), root)
    example = wanted.get("const", (wanted.get("examples") or [None])[0])
    if example is None or isinstance(example, (dict, list)):
        return f"add {name}"
    return f"add it, for example {name}: {as_yaml(example)}"


def type_faults(error: Error, path: Place, around: Around) -> Iterable[Fault]:
    value = error.validator_value
    return (type_fault([value] if isinstance(value, str) else list(value), error.instance, path, around),)


def choice_faults(error: Error, path: Place, around: Around) -> Iterable[Fault]:
    choices = [error.validator_value] if error.validator == "const" else list(error.validator_value)
    return (choice_fault(choices, error.instance, path, around),)


def pattern_faults(error: Error, path: Place, _: Around) -> Iterable[Fault]:
    says = error.schema.get("x-pattern-says")
    wanted = says or f"text that matches {error.validator_value}"
    remedy = "give it this form" if says else "see the key's description in the schema"
    return (Fault(path, "BD035", f"{dotted(path)}: {shown(error.instance)} is not {wanted}", remedy),)


BOUNDS = {
    "minimum": ("at least {}", "BD036"),
    "maximum": ("at most {}", "BD036"),
    "exclusiveMinimum": ("more than {}", "BD036"),
    "exclusiveMaximum": ("less than {}", "BD036"),
    "multipleOf": ("a multiple of {}", "BD036"),
    "minLength": ("at least {} characters", "BD037"),
    "maxLength": ("at most {} characters", "BD037"),
    "minItems": ("at least {} items", "BD037"),
    "maxItems": ("at most {} items", "BD037"),
    "minProperties": ("at least {} keys", "BD037"),
    "maxProperties": ("at most {} keys", "BD037"),
}


def bound_faults(error: Error, path: Place, _: Around) -> Iterable[Fault]:
    form, rule = BOUNDS[str(error.validator)]
    wanted = form.format(error.validator_value)
    if error.validator_value == 1:
        wanted = re.sub(r"1 (character|item|key)s", r"one \1", wanted)
    size = f", it is {len(error.instance)}" if rule == "BD037" else f", it is {shown(error.instance)}"
    if rule == "BD037" and not error.instance:
        what = f"{dotted(path)} is empty: {wanted} is needed"
        return (Fault(path, rule, what, "give a value or remove the key"),)
    return (Fault(path, rule, f"{dotted(path)}: {wanted} is needed{size}", f"give {wanted}"),)


def unique_faults(error: Error, path: Place, _: Around) -> Iterable[Fault]:
    for at in repeats(error.instance):
        here = (*path, at)
        what = f"{dotted(here)}: {shown(error.instance[at])} is in the list twice"
        yield Fault(here, "BD038", what, "remove one of them")


def dependent_faults(error: Error, path: Place, _: Around) -> Iterable[Fault]:
    for name, needed in error.validator_value.items():
        if name not in error.instance:
            continue
        for other in needed:
            if other not in error.instance:
                what = f"{dotted((*path, name))} needs {dotted((*path, other))}, which is missing"
                yield Fault((*path, name), "BD040", what, f"add {other}, or remove {name}", key=True)


def not_faults(error: Error, path: Place, _: Around) -> Iterable[Fault]:
    says = error.schema.get("x-not-says") if isinstance(error.schema, Mapping) else None
    banned = error.validator_value.get("required") if isinstance(error.validator_value, Mapping) else None
    if says is None and banned:
        says = f"{listed(banned)} cannot be given together" if len(banned) > 1 else f"{banned[0]} cannot be given here"
    what = f"{dotted(path)}: {says or 'this combination is not allowed'}"
    remedy = error.schema.get("x-not-remedy") if isinstance(error.schema, Mapping) else None
    rule = "BD035" if isinstance(error.instance, str) else "BD041"
    return (Fault(path, rule, what, remedy or ("remove one of them" if banned else "change one of the values")),)


def barred_faults(_: Error, path: Place, __: Around) -> Iterable[Fault]:
    return (Fault(path, "BD041", f"{dotted(path)} cannot be given here", "remove it", key=True),)


def other_faults(error: Error, path: Place, _: Around) -> Iterable[Fault]:
    return (Fault(path, "BD042", f"{dotted(path)}: {error.message}", "see the key's description in the schema"),)
