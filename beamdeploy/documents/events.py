"""The events of a YAML text, from libyaml when PyYAML has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from beamdeploy.documents.place import Mark

# the pure loader says the same, slower
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def events(text: str) -> Iterator[Any]:
    """Events until the end of the stream, as lazily as the loader gives them."""
    loader = _LOADER(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def mark_of(event: Any) -> Mark:
    start = event.start_mark
    return Mark(start.line + 1, start.column + 1)
