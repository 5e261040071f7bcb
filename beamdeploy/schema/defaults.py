"""The defaults that a schema gives for keys that are absent; never those of one form of several (`oneOf`, `anyOf`)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from beamdeploy.schema.packaged import Schema, load_schema, resolved


def defaults(data: object, schema_name: str) -> Any:
    """A deep copy of valid `data` in which keys that are absent have the schema's `default`."""
    return defaults_from(data, load_schema(schema_name))


def defaults_from(data: object, schema: Schema) -> Any:
    """`defaults` from a schema given as a mapping."""
    return _filled(deepcopy(data), schema, schema)


def _filled(value: Any, schema: Schema, root: Schema) -> Any:
    """`value` with defaults filled in, in place."""
    schema = resolved(schema, root)
    for part in schema.get("allOf", ()):
        value = _filled(value, part, root)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        value[:] = [_filled(each, schema["items"], root) for each in value]
    if isinstance(value, dict):
        _fill_mapping(value, schema, root)
    return value


def _fill_mapping(value: dict[str, Any], schema: Schema, root: Schema) -> None:
    known = schema.get("properties", {})
    for name, below in known.items():
        wanted = resolved(below, root)
        if name not in value and "default" in wanted:
            value[name] = deepcopy(wanted["default"])
        if name in value:
            value[name] = _filled(value[name], below, root)
    rest = schema.get("additionalProperties")
    if isinstance(rest, Mapping):
        value.update({name: _filled(each, rest, root) for name, each in value.items() if name not in known})
