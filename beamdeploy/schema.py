"""Values against a packaged JSON Schema (2020-12): every fault in words, at the line where it is written.

Three annotations give a schema its own words: `x-pattern-says` beside `pattern` ("a container name: letters, digits,
_ . -"), `x-names-say` beside `patternProperties` or `propertyNames`, and `x-not-says` beside `not`.

Rules: BD030 unknown key · BD031 empty (null) · BD032 key missing · BD033 wrong kind of value · BD034 not a choice ·
BD035 text of the wrong form · BD036 too small or too large · BD037 too few, too many, too short or too long ·
BD038 twice in a list · BD039 name of a key · BD040 needs another key · BD041 keys that exclude each other ·
BD042 any other fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
from jsonschema import Draft202012Validator
from referencing import Registry

from beamdeploy.documents import MAX_PROBLEMS, Document, Place, dotted
from beamdeploy.errors import Problem

Schema = Mapping[str, Any]
_Error = Any  # jsonschema.ValidationError, of which every attribute is typed as possibly unset


def check(document: Document, schema_name: str) -> tuple[Problem, ...]:
    """What is wrong with the values of `document`, by line; `schema_name` is "recipe", "inventory" or "lock"."""
    return _problems(document, _validator(schema_name))


def check_against(document: Document, schema: Schema) -> tuple[Problem, ...]:
    """`check` against a schema given as a mapping; it is prepared anew at each call."""
    return _problems(document, _built(schema))


@cache
def load_schema(name: str) -> Schema:
    """The packaged schema as a mapping; read-only by agreement, it is shared."""
    schema: Schema = json.loads(files("beamdeploy").joinpath("schemas", f"{name}.schema.json").read_bytes())
    return schema


def defaults(data: object, schema_name: str) -> Any:
    """A deep copy of valid `data` in which keys that are absent have the schema's `default`."""
    return defaults_from(data, load_schema(schema_name))


def defaults_from(data: object, schema: Schema) -> Any:
    """`defaults` from a schema given as a mapping."""
    return _filled(deepcopy(data), schema, schema)


@cache
def _validator(name: str) -> Any:
    return _built(load_schema(name))


def _built(schema: Schema) -> Any:
    # an empty registry without a retriever: nothing is ever fetched, whatever a schema refers to
    return _strict()(schema, registry=Registry())


@cache
def _strict() -> Any:
    """Draft 2020-12, with `4.0` no integer (it would be rendered as 4.0) and patterns as JSON Schema means them."""
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    extend: Any = jsonschema.validators.extend  # untyped there
    keywords = {"pattern": _pattern_errors, "properties": _properties_errors, "uniqueItems": _unique_errors}
    return extend(Draft202012Validator, validators=keywords, type_checker=types)


def _pattern_errors(_: Any, pattern: str, instance: object, __: Schema) -> Iterator[_Error]:
    if isinstance(instance, str) and not _regex(pattern).search(instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _unique_errors(_: Any, wanted: object, instance: object, __: Schema) -> Iterator[_Error]:
    """In linear time, which comparing each with each is not."""
    if wanted and isinstance(instance, list) and _repeats(instance):
        yield jsonschema.ValidationError("an item is in the list twice")


def _repeats(items: Sequence[object]) -> list[int]:
    """The places of the items that stood in the list before."""
    first: dict[str, int] = {}
    return [at for at, item in enumerate(items) if first.setdefault(json.dumps(item, sort_keys=True), at) != at]


def _properties_errors(validator: Any, properties: Schema, instance: object, schema: Schema) -> Iterator[_Error]:
    """As in jsonschema, but a key whose schema is `false` is told with its path, which is lost there."""
    for error in Draft202012Validator.VALIDATORS["properties"](validator, properties, instance, schema):
        if error.schema is not False:
            yield error
    for name in instance if isinstance(instance, dict) else ():
        if properties.get(name) is False:
            yield jsonschema.ValidationError(f"{name} is not allowed here", path=[name])


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    r"""ECMA 262's reading: `$` is the end of the text, not a line break before it; `\d` and `\w` are ASCII."""
    return re.compile(re.sub(r"(\\.|\[(?:\\.|[^\]\\])*\])|\$", lambda m: m.group(1) or r"\Z", pattern), re.ASCII)


@dataclass(frozen=True)
class _Fault:
    path: Place
    rule: str
    what: str
    remedy: str
    key: bool = False


@dataclass(frozen=True)
class _Place:
    """Where an error is told: the document, and the schema that `#/…` references mean."""

    document: Document
    root: Schema


def _problems(document: Document, validator: Any) -> tuple[Problem, ...]:
    around = _Place(document, validator.schema)
    found: dict[tuple[Place, str, str], _Fault] = {}
    for fault in (fault for error in validator.iter_errors(document.data) for fault in _faults(error, around)):
        if _already_told(document, fault.path):
            continue
        if len(found) >= MAX_PROBLEMS:
            fault = _Fault((), "BD026", f"more than {MAX_PROBLEMS} problems; not all are told", "is it the right file?")
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


def _faults(error: _Error, around: _Place) -> Iterable[_Fault]:
    path: Place = tuple(error.absolute_path)
    keyword = str(error.validator)
    if _is_name(error):
        return (_name_fault(error, path),)
    if error.instance is None and keyword in ("type", "enum", "const", "anyOf", "oneOf"):
        return (_null_fault(path),)
    return _BY_KEYWORD.get(keyword, _other)(error, path, around)


def _is_name(error: _Error) -> bool:
    steps = list(error.absolute_schema_path)
    return any(
        step == "propertyNames" and (at == 0 or steps[at - 1] not in ("properties", "$defs"))
        for at, step in enumerate(steps)
    )


def _name_fault(error: _Error, path: Place) -> _Fault:
    schema: Schema = error.schema if isinstance(error.schema, Mapping) else {}
    says = schema.get("x-names-say") or schema.get("x-pattern-says")
    if error.validator == "enum":
        says = f"one of {_listed(schema['enum'])}"
    wanted = says or f"text that matches {schema.get('pattern', error.validator_value)}"
    what = f"{dotted(path)}: the name {_shown(error.instance)} is not {wanted}"
    return _Fault((*path, str(error.instance)), "BD039", what, _renamed(error, wanted), key=True)


def _renamed(error: _Error, wanted: str) -> str:
    near = _near(str(error.instance), error.validator_value) if error.validator == "enum" else None
    return f"did you mean {near}?" if near else "rename the key"


def _null_fault(path: Place) -> _Fault:
    what = f"{dotted(path)} is empty (null): remove the key or give a value"
    return _Fault(path, "BD031", what, 'remove the key or give a value; empty text is ""')


def _unknown(error: _Error, path: Place, around: _Place) -> Iterable[_Fault]:
    known = error.schema.get("properties", {})
    patterns = error.schema.get("patternProperties", {})
    names = [name for name in error.instance if name not in known and not _any_match(patterns, name)]
    if isinstance(error.validator_value, Mapping):
        names = []  # its own errors are reported below it
    for name in names:
        if patterns and not known:
            says = error.schema.get("x-names-say") or f"text that matches {' or '.join(patterns)}"
            what = f"{dotted(path)}: the name {_shown(name)} is not {says}"
            yield _Fault((*path, name), "BD039", what, "rename the key", key=True)
            continue
        what = f"unknown key {dotted((*path, name))}"
        free = [each for each in known if each not in error.instance] or list(known)
        yield _Fault((*path, name), "BD030", what, _unknown_remedy(name, path, free, around.root), key=True)


def _any_match(patterns: Iterable[str], name: str) -> bool:
    return any(_regex(pattern).search(name) for pattern in patterns)


def _unknown_remedy(name: str, path: Place, known: Sequence[str], root: Schema) -> str:
    if near := _near(name, known):
        return f"did you mean {near}?"
    elsewhere = [where for where in _homes(name, root) if where[:-1] != path]
    if elsewhere:
        return f"did you mean {' or '.join(dotted(where) for where in elsewhere[:2])}?"
    return f"remove it; known here: {_listed(known)}" if known else "remove it"


def _near(word: str, choices: Iterable[object]) -> str | None:
    """The choice that was most likely meant: the same but for case, - and _, else the closest."""
    plain = {_plain(str(each)): str(each) for each in choices}
    near = get_close_matches(_plain(word), plain, 1, 0.7)
    return plain[near[0]] if near else None


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")


def _homes(name: str, root: Schema) -> list[Place]:
    """Where else in the schema a key of this name belongs."""
    return [path for path in _property_paths(root, root, (), 0) if path[-1] == name]


def _property_paths(schema: Schema, root: Schema, path: Place, depth: int) -> Iterator[Place]:
    for name, below in _resolved(schema, root).get("properties", {}).items():
        yield (*path, name)
        if depth < 6 and isinstance(below, Mapping):
            yield from _property_paths(below, root, (*path, name), depth + 1)


def _resolved(schema: Schema, root: Schema) -> Schema:
    """`schema`, with its `$ref` into the same file followed; `{}` where it leads nowhere."""
    for _ in range(10):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        target: Any = root
        for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            target = target.get(part, {}) if isinstance(target, Mapping) else {}
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **rest}
    return schema


def _required(error: _Error, path: Place, around: _Place) -> Iterable[_Fault]:
    for name in error.validator_value:
        if name not in error.instance:
            here = (*path, name)
            what = f"{dotted(here)} is missing"
            yield _Fault(path, "BD032", what, _add(error.schema, name, around.root), key=bool(path))


def _add(schema: Schema, name: str, root: Schema) -> str:
    wanted = _resolved(schema.get("properties", {}).get(name, {}), root)
    example = wanted.get("const", (wanted.get("examples") or [None])[0])
    if example is None or isinstance(example, (dict, list)):
        return f"add {name}"
    return f"add it, for example {name}: {_yaml(example)}"


_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing (null)",
}


def _kind(value: object) -> str:
    """What a value is, in words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return "a number"
    kinds: dict[type, str] = {str: "text", dict: "a mapping", list: "a list", type(None): "empty (null)"}
    return kinds.get(type(value), type(value).__name__)


def _type(error: _Error, path: Place, around: _Place) -> Iterable[_Fault]:
    value = error.validator_value
    return (_type_fault([value] if isinstance(value, str) else list(value), error.instance, path, around),)


def _type_fault(expected: Sequence[str], value: object, path: Place, around: _Place) -> _Fault:
    if value is None:
        return _null_fault(path)
    wanted = " or ".join(dict.fromkeys(_KINDS.get(each, each) for each in expected))
    what = f"{dotted(path)}: {wanted} is expected, this is {_this(value, path, around)}"
    return _Fault(path, "BD033", what, _type_remedy(expected, value, path, around))


def _this(value: object, path: Place, around: _Place) -> str:
    """`a number (1.10 is read as 1.1)`: the kind of a value, and what was written if that is not the same."""
    written = around.document.written.get(path)
    if written is not None and isinstance(value, (int, float)):
        same = written == _yaml(value)
        return f"{_kind(value)}" if same and isinstance(value, bool) else _number(value, written, same=same)
    return _kind(value)


def _number(value: object, written: str, *, same: bool) -> str:
    if isinstance(value, bool):
        return f"{_yaml(value)} (written {written})"
    return f"a number: {written}" if same else f"a number: {written} is read as {_yaml(value)}"


def _type_remedy(expected: Sequence[str], value: object, path: Place, around: _Place) -> str:
    scalar = not isinstance(value, (dict, list))
    if "string" in expected and scalar:
        return f'quote it: "{around.document.written.get(path, _yaml(value))}"'
    if {"number", "integer"} & set(expected) and isinstance(value, str):
        return _number_remedy(expected, value)
    if "boolean" in expected and isinstance(value, str):
        return f"remove the quotes: {value.lower()}" if value.lower() in ("true", "false") else "write true or false"
    if "integer" in expected and isinstance(value, float):
        return f"write {int(value)}" if value.is_integer() else "write a number without a fraction"
    if "array" in expected:
        return f"write a list: [{_yaml(value)}]" if scalar else "write a list: one `- value` a line"
    return f"write {_FORMS.get(expected[0], 'another kind of value')}"


_FORMS = {
    "object": "a mapping: `key: value` lines below it",
    "string": "one text, not several",
    "integer": "one whole number",
    "number": "one number",
    "boolean": "true or false",
}


def _number_remedy(expected: Sequence[str], value: str) -> str:
    whole = re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", value, re.ASCII)
    if whole or ("number" in expected and re.fullmatch(r"-?(0|[1-9][0-9]{0,17})\.[0-9]+", value, re.ASCII)):
        return f"remove the quotes: {value}"
    return "write a whole number in decimal digits" if "number" not in expected else "write a number in decimal digits"


def _choice(error: _Error, path: Place, around: _Place) -> Iterable[_Fault]:
    choices = [error.validator_value] if error.validator == "const" else list(error.validator_value)
    return (_choice_fault(choices, error.instance, path, around),)


def _choice_fault(choices: Sequence[object], value: object, path: Place, around: _Place) -> _Fault:
    if value is None:
        return _null_fault(path)
    written = around.document.written.get(path)
    if written is not None and written in choices:
        what = f"{dotted(path)}: text is expected, this is {_this(value, path, around)}"
        return _Fault(path, "BD033", what, f'quote it: "{written}"')
    wanted = _listed(choices) if len(choices) == 1 else f"one of {_listed(choices)}"
    what = f"{dotted(path)}: {_shown(value)} is not {wanted}"
    near = _near(str(value), choices) if isinstance(value, str) else None
    one = _yaml(choices[0]) if len(choices) == 1 else None
    return _Fault(path, "BD034", what, f"did you mean {near}?" if near else f"write {one or 'one of them'}")


def _pattern(error: _Error, path: Place, _: _Place) -> Iterable[_Fault]:
    says = error.schema.get("x-pattern-says")
    wanted = says or f"text that matches {error.validator_value}"
    remedy = "give it this form" if says else "see the key's description in the schema"
    return (_Fault(path, "BD035", f"{dotted(path)}: {_shown(error.instance)} is not {wanted}", remedy),)


_BOUNDS = {
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


def _bound(error: _Error, path: Place, _: _Place) -> Iterable[_Fault]:
    form, rule = _BOUNDS[str(error.validator)]
    wanted = form.format(error.validator_value)
    if error.validator_value == 1:
        wanted = re.sub(r"1 (character|item|key)s", r"one \1", wanted)
    size = f", it is {len(error.instance)}" if rule == "BD037" else f", it is {_shown(error.instance)}"
    if rule == "BD037" and not error.instance:
        what = f"{dotted(path)} is empty: {wanted} is needed"
        return (_Fault(path, rule, what, "give a value or remove the key"),)
    return (_Fault(path, rule, f"{dotted(path)}: {wanted} is needed{size}", f"give {wanted}"),)


def _unique(error: _Error, path: Place, _: _Place) -> Iterable[_Fault]:
    for at in _repeats(error.instance):
        here = (*path, at)
        what = f"{dotted(here)}: {_shown(error.instance[at])} is in the list twice"
        yield _Fault(here, "BD038", what, "remove one of them")


def _dependent(error: _Error, path: Place, _: _Place) -> Iterable[_Fault]:
    for name, needed in error.validator_value.items():
        if name not in error.instance:
            continue
        for other in needed:
            if other not in error.instance:
                what = f"{dotted((*path, name))} needs {dotted((*path, other))}, which is missing"
                yield _Fault((*path, name), "BD040", what, f"add {other}, or remove {name}", key=True)


def _never(error: _Error, path: Place, _: _Place) -> Iterable[_Fault]:
    says = error.schema.get("x-not-says") if isinstance(error.schema, Mapping) else None
    banned = error.validator_value.get("required") if isinstance(error.validator_value, Mapping) else None
    if says is None and banned:
        says = f"{_listed(banned)} cannot be given together" if len(banned) > 1 else f"{banned[0]} cannot be given here"
    what = f"{dotted(path)}: {says or 'this combination is not allowed'}"
    return (_Fault(path, "BD041", what, "remove one of them" if banned else "change one of the values"),)


def _barred(_: _Error, path: Place, __: _Place) -> Iterable[_Fault]:
    return (_Fault(path, "BD041", f"{dotted(path)} cannot be given here", "remove it", key=True),)


def _other(error: _Error, path: Place, _: _Place) -> Iterable[_Fault]:
    return (_Fault(path, "BD042", f"{dotted(path)}: {error.message}", "see the key's description in the schema"),)


def _branches(error: _Error, path: Place, around: _Place) -> Iterable[_Fault]:
    """The fault of the branch that was meant: by kind of value, then by fixed values, then by the keys that fit."""
    groups: dict[int, list[_Error]] = {}
    for each in error.context or ():
        groups.setdefault(int(each.relative_schema_path[0]), []).append(each)
    if not groups:
        return (_several(error, path, around),)
    alive = [at for at, errors in groups.items() if not any(_at_root(each, "type") for each in errors)]
    if not alive:
        return (_type_fault(_types_of(groups), error.instance, path, around),)
    if not isinstance(error.instance, (dict, list)):
        return _scalar_branches([groups[at] for at in alive], error, path, around)
    if all(each.validator == "required" and _at_root(each, "required") for at in alive for each in groups[at]):
        return _needs_one([groups[at] for at in alive], error, path, around)
    best = min(alive, key=lambda at: _distance(groups[at], error, at, around))
    return [fault for each in groups[best] for fault in _faults(each, around)]


def _at_root(error: _Error, *keywords: str) -> bool:
    return error.validator in keywords and not error.relative_path


def _types_of(groups: Mapping[int, Sequence[_Error]]) -> list[str]:
    types: list[str] = []
    for each in (each for errors in groups.values() for each in errors if _at_root(each, "type")):
        value = each.validator_value
        types.extend([value] if isinstance(value, str) else value)
    return list(dict.fromkeys(types))


def _scalar_branches(
    groups: Sequence[Sequence[_Error]], error: _Error, path: Place, around: _Place
) -> Iterable[_Fault]:
    """One branch left: its faults. Several: one fault that names what each of them takes."""
    groups = [errors for errors in groups if not _foreign(errors, error.instance)] or groups
    if len(groups) == 1:
        return [fault for each in groups[0] for fault in _faults(each, around)]
    choices = [value for errors in groups for each in errors for value in _choices_of(each)]
    forms = [str(each.schema["x-pattern-says"]) for errors in groups for each in errors if _says(each)]
    if choices and not forms:
        return (_choice_fault(choices, error.instance, path, around),)
    wanted = [f"one of {_listed(choices)}"] if choices else []
    said = " or ".join([*wanted, *forms]) or "of a form that is known here"
    near = _near(str(error.instance), choices)
    remedy = f"did you mean {near}?" if near else "give it one of these forms"
    return (_Fault(path, "BD035", f"{dotted(path)}: {_shown(error.instance)} is not {said}", remedy),)


def _foreign(errors: Sequence[_Error], value: object) -> bool:
    """Whether a branch takes fixed values only, and none of the value's own type."""
    choices = [choice for each in errors for choice in _choices_of(each)]
    return bool(choices) and all(type(choice) is not type(value) for choice in choices)


def _choices_of(error: _Error) -> list[object]:
    if error.validator == "const":
        return [error.validator_value]
    return list(error.validator_value) if error.validator == "enum" else []


def _says(error: _Error) -> bool:
    return error.validator == "pattern" and "x-pattern-says" in error.schema


def _needs_one(groups: Sequence[Sequence[_Error]], error: _Error, path: Place, around: _Place) -> Iterable[_Fault]:
    """Branches that only ask for keys: none of them is complete."""
    missing = [[name for name in each.validator_value if name not in error.instance] for each, *_ in groups]
    started = [
        names for (each, *_), names in zip(groups, missing, strict=True) if len(names) < len(each.validator_value)
    ]
    ways = started or missing
    said = " or ".join(" and ".join(names) for names in ways)
    what = f"{dotted(path)}: {said} is missing"
    return (_Fault(path, "BD032", what, f"add {said}", key=bool(path)),)


def _distance(errors: Sequence[_Error], error: _Error, at: int, around: _Place) -> tuple[int, ...]:
    """How far a value is from a branch: wrong fixed values, keys that it lacks or wants, then all faults."""
    branch = _resolved(error.validator_value[at], around.root)
    fixed = sum(each.validator in ("const", "enum") and len(each.relative_path) <= 1 for each in errors)
    known = branch.get("properties", {})
    foreign = sum(name not in known for name in error.instance) if isinstance(error.instance, dict) else 0
    wanted = sum(_at_root(each, "required") for each in errors)
    return fixed, foreign, wanted, len(errors)


def _several(error: _Error, path: Place, around: _Place) -> _Fault:
    """`oneOf` of which more than one fits: usually keys that exclude each other."""
    asked = [_resolved(branch, around.root).get("required", []) for branch in error.validator_value]
    given = [name for names in asked for name in names if isinstance(error.instance, dict) and name in error.instance]
    given = list(dict.fromkeys(given))
    if len(given) < 2:
        what = f"{dotted(path)}: this fits more than one form"
        return _Fault(path, "BD041", what, "see the key's description in the schema")
    what = f"{dotted(path)}: {' and '.join(given)} exclude each other"
    return _Fault((*path, given[-1]), "BD041", what, f"keep one of {_listed(given)}", key=True)


_BY_KEYWORD: Mapping[str, Callable[[_Error, Place, _Place], Iterable[_Fault]]] = {
    "additionalProperties": _unknown,
    "unevaluatedProperties": _unknown,
    "required": _required,
    "type": _type,
    "enum": _choice,
    "const": _choice,
    "pattern": _pattern,
    "properties": _barred,
    "uniqueItems": _unique,
    "dependentRequired": _dependent,
    "not": _never,
    "anyOf": _branches,
    "oneOf": _branches,
    **dict.fromkeys(_BOUNDS, _bound),
}


def _yaml(value: object) -> str:
    """A value as it is written in YAML (a flow value)."""
    return value if isinstance(value, str) else json.dumps(value)


def _shown(value: object) -> str:
    """A value for a message: one line, not too long; text in its quotes if it is not plain to see."""
    words = value if isinstance(value, str) and re.fullmatch(r"[!-~]+", value) else json.dumps(value)
    return words if len(words) <= 60 else words[:57] + "..."


def _listed(values: Iterable[object]) -> str:
    return ", ".join(_yaml(each) for each in values)


def _filled(value: Any, schema: Schema, root: Schema) -> Any:
    """`value` with defaults filled in, in place."""
    schema = _resolved(schema, root)
    for part in [*schema.get("allOf", ()), *_fitting(value, schema, root)]:
        value = _filled(value, part, root)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        value[:] = [_filled(each, schema["items"], root) for each in value]
    if isinstance(value, dict):
        _fill_mapping(value, schema, root)
    return value


def _fill_mapping(value: dict[str, Any], schema: Schema, root: Schema) -> None:
    known = schema.get("properties", {})
    for name, below in known.items():
        if name not in value and "default" in (resolved := _resolved(below, root)):
            value[name] = deepcopy(resolved["default"])
        if name in value:
            value[name] = _filled(value[name], below, root)
    rest = schema.get("additionalProperties")
    if isinstance(rest, Mapping):
        value.update({name: _filled(each, rest, root) for name, each in value.items() if name not in known})


def _fitting(value: object, schema: Schema, root: Schema) -> list[Schema]:
    """The first branch of `oneOf` or `anyOf` that `value` fits."""
    branches = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    if not branches:
        return []
    validator = _built(root)
    return [branch for branch in branches if validator.evolve(schema=branch).is_valid(value)][:1]
