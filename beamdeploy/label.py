"""The labels on our containers: who made them, the digest of their words, and the whole spec."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NAME = "beamdeploy.name"
DIGEST = "beamdeploy.digest"
SPEC = "beamdeploy.spec"

_NOT_IN_WORDS = (
    "apiVersion",
    "$schema",
    "description",
    "request",
    "ready",
    "smoke",
    "hardware",
    "image",
    "name",
    "verified",
)
_NOT_IN_WORDS_PATHS = ("container.stop_timeout", "engine.catalog", "engine.unverified")


@dataclass(frozen=True)
class Deployed:
    """What a container was made from: enough to say what differs, and to make it again without a file.

    `ids`: those of its image, as far as a lock said and the history holds; labels do not tell them.
    """

    name: str
    digest: str
    words: tuple[str, ...]
    recipe: Mapping[str, Any]
    settings: Mapping[str, Any]
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """One setting that differs. None: not set."""

    path: str
    old: Any
    new: Any


def label_words(deployed: Deployed) -> tuple[str, ...]:
    """The `--label` words. The spec is compressed and in base64: a label must pass any shell without a backslash."""
    spec = {"words": deployed.words, "recipe": deployed.recipe, "settings": deployed.settings}
    packed = base64.b64encode(zlib.compress(json.dumps(spec, separators=(",", ":")).encode(), 9)).decode()
    labels = ((NAME, deployed.name), (DIGEST, deployed.digest), (SPEC, packed))
    return tuple(word for name, value in labels for word in ("--label", f"{name}={value}"))


def read_labels(labels: Mapping[str, str]) -> Deployed | None:
    """What a container's labels say; None: it is not ours. A spec that cannot be read is an empty one."""
    if NAME not in labels or DIGEST not in labels:
        return None
    spec = _unpacked(labels.get(SPEC, ""))
    return Deployed(
        labels[NAME], labels[DIGEST], tuple(spec.get("words", ())), spec.get("recipe", {}), spec.get("settings", {})
    )


def without_labels(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words that the digest is taken over."""
    ours = {
        index for index, word in enumerate(words) if word.startswith("beamdeploy.") and words[index - 1] == "--label"
    }
    return tuple(word for index, word in enumerate(words) if index not in ours and index + 1 not in ours)


def settings_of(recipe: Mapping[str, Any], *, image: str) -> dict[str, Any]:
    """Recipe path → value for all that shapes the words."""
    sections = {key: value for key, value in recipe.items() if key not in _NOT_IN_WORDS}
    flat = dict(_flattened(sections, ""))
    shaping = {path: value for path, value in flat.items() if path not in _NOT_IN_WORDS_PATHS}
    sources = {path: value for path, value in shaping.items() if not path.endswith(".source")}
    return {"image": image, **sources}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """The settings that differ, in the new one's order."""
    paths = [*new, *(path for path in old if path not in new)]
    return tuple(Change(path, old.get(path), new.get(path)) for path in paths if old.get(path) != new.get(path))


def _flattened(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and (value or not path):
        for key, inner in value.items():
            yield from _flattened(inner, f"{path}.{key}" if path else key)
    elif value != {}:
        yield path, value


def _unpacked(packed: str) -> dict[str, Any]:
    try:
        spec = json.loads(zlib.decompress(base64.b64decode(packed)))
    except (ValueError, zlib.error):
        return {}
    return spec if isinstance(spec, dict) else {}
