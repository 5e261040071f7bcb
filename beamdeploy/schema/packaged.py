"""The packaged schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

Schema = Mapping[str, Any]


@cache
def load_schema(name: str) -> Schema:
    """The packaged schema as a mapping; read-only by agreement, it is shared."""
    schema: Schema = json.loads(files("beamdeploy").joinpath("schemas", f"{name}.schema.json").read_bytes())
    return schema


def resolved(schema: Schema, root: Schema) -> Schema:
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
