"""JSON Schema as it is meant: nothing fetched, `$` the end of the text, 4.0 no integer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import jsonschema
from jsonschema import Draft202012Validator
from referencing import Registry

from beamdeploy.schema.packaged import Schema, load_schema

Error = Any  # jsonschema.ValidationError, of which every attribute is typed as possibly unset


@cache
def validator_of(name: str) -> Any:
    return built(load_schema(name))


def built(schema: Schema) -> Any:
    # an empty registry without a retriever: nothing is ever fetched, whatever a schema refers to
    return _strict()(schema, registry=Registry())


@cache
def _strict() -> Any:
    """Draft 2020-12, with `4.0` no integer (it would be rendered as 4.0) and patterns as JSON Schema means them."""
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    extend: Any = jsonschema.validators.extend  # untyped there
    keywords = {"pattern": _pattern_errors, "properties": _properties_errors, "uniqueItems": _unique_errors}
    return extend(Draft202012Validator, validators=keywords, type_checker=types)


def _pattern_errors(_: Any, pattern: str, instance: object, __: Schema) -> Iterator[Error]:
    if isinstance(instance, str) and not regex_of(pattern).search(instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _unique_errors(_: Any, wanted: object, instance: object, __: Schema) -> Iterator[Error]:
    """In linear time, which comparing each with each is not."""
    if wanted and isinstance(instance, list) and repeats(instance):
        yield jsonschema.ValidationError("an item is in the list twice")


def repeats(items: Sequence[object]) -> list[int]:
    """The places of the items that stood in the list before."""
    first: dict[str, int] = {}
    return [at for at, item in enumerate(items) if first.setdefault(json.dumps(item, sort_keys=True), at) != at]


def _properties_errors(validator: Any, properties: Schema, instance: object, schema: Schema) -> Iterator[Error]:
    """As in jsonschema, but a key whose schema is `false` is told with its path, which is lost there."""
    for error in Draft202012Validator.VALIDATORS["properties"](validator, properties, instance, schema):
        if error.schema is not False:
            yield error
    for name in instance if isinstance(instance, dict) else ():
        if properties.get(name) is False:
            yield jsonschema.ValidationError(f"{name} is not allowed here", path=[name])


@cache
def regex_of(pattern: str) -> re.Pattern[str]:
    r"""ECMA 262's reading: `$` is the end of the text, not a line break before it; `\d` and `\w` are ASCII."""
    return re.compile(re.sub(r"(\\.|\[(?:\\.|[^\]\\])*\])|\$", lambda m: m.group(1) or r"\Z", pattern), re.ASCII)
