"""Which kind of file a document is, and whether a file in a folder is one of ours at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from beamdeploy.documents import Document
from beamdeploy.errors import Problem
from beamdeploy.regular import bytes_of
from beamdeploy.schema import load_schema

_INVENTORY = re.compile(r"""^["']?[\w.-]+["']?:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*[ \t]+(?:hosts|children):""", re.M)
_GROUP = frozenset({"hosts", "children"})
# one of these may stand in anyone's file, two hardly
_SECTIONS = frozenset({"hardware", "image", "model", "quantization", "engine", "parsers", "speculative", "container"})
_LARGEST_HEAD = 1024 * 1024


def kind_of(document: Document) -> str:
    """recipe, inventory or lock, as the document's keys say."""
    data: Any = document.data
    if data.get("kind") == "Lock" or document.file.endswith(".lock.yaml"):
        return "lock"
    return "inventory" if _is_inventory(data) and "apiVersion" not in data else "recipe"


def is_ours(file: str, document: Document | None, problems: Sequence[Problem]) -> bool:
    """Whether a file of a folder is a recipe, an inventory or a lock, however broken; in doubt it is."""
    if document is not None:
        return _is_ours(document.data)
    if any(problem.rule in ("BD001", "BD002", "BD003") for problem in problems):
        return True  # nothing is known of what it holds
    return _looks_ours(_head(file))


def _is_ours(data: Any) -> bool:
    if str(data.get("apiVersion", "")).startswith("beamdeploy"):
        return True
    if "apiVersion" in data and "kind" in data:
        return False  # of Kubernetes
    return len(_SECTIONS & set(data)) > 1 or _is_inventory(data)


def _is_inventory(data: Any) -> bool:
    return "all" in data or any(isinstance(value, dict) and _GROUP & set(value) for value in data.values())


def _looks_ours(text: str) -> bool:
    """Of a text that is no mapping."""
    if not text.strip() or "beamdeploy" in text or _INVENTORY.search(text):
        return True
    known = load_schema("recipe")["properties"]
    named = re.findall(r"""^["']?(\w+)["']?:""", text, re.MULTILINE)
    return len(_SECTIONS & set(named) & set(known)) > 1


def _head(file: str) -> str:
    try:
        return bytes_of(file, _LARGEST_HEAD).decode("utf-8", "replace")
    except OSError:
        return ""
