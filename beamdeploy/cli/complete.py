"""What a shell offers for a word that is being typed. Nothing here may fail or say anything: the shell shows it all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from beamdeploy.errors import InputError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from beamdeploy.inventory import Inventory

_MOST = 200


def recipe_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files that may be recipes, here, one folder below, and where the word points to; else any file."""
    return _files_or_any(name for name in _yaml_files(incomplete) if not _is_other(name))


def checkable_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """YAML files and the folders that hold some."""
    names = list(_yaml_files(incomplete))
    folders = sorted({f"{os.path.dirname(name)}/" for name in names if os.path.dirname(name)})
    return _files_or_any([*(each for each in folders if each.startswith(incomplete) and each != incomplete), *names])


def inventories(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`sandbox`, the folders called inventories and what lies in them; else any file."""
    names = ["sandbox", *(name for name in _yaml_files(incomplete) if "inventor" in name)]
    return _files_or_any(name for name in names if name.startswith(incomplete))


def hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Hosts and groups of the inventory that the line names; the last of several when the word holds commas."""
    from click.shell_completion import CompletionItem

    before, comma, last = incomplete.rpartition(",")
    inventory = _inventory(ctx.params.get("inventory"))
    if inventory is None:
        return []
    groups = {name: f"{len(members)} hosts" for name, members in inventory.groups.items()}
    named = {**groups, **{host.name: host.address or "" for host in inventory.hosts}}
    return [
        CompletionItem(f"{before}{comma}{name}", help=said or None)
        for name, said in named.items()
        if name.startswith(last)
    ]


def rule_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of rules with their titles; the last of several when the word holds commas."""
    from click.shell_completion import CompletionItem

    from beamdeploy.rules.pages import all_rules

    before, comma, last = incomplete.rpartition(",")
    found = [rule for rule in all_rules() if rule.id.startswith(last.upper())]
    return [CompletionItem(f"{before}{comma}{rule.id}", help=rule.title) for rule in found]


def _inventory(named: object) -> Inventory | None:
    from beamdeploy.inventory import load_inventory

    try:
        return load_inventory(named if isinstance(named, str) else None, environ=os.environ)
    except InputError:
        return None


def _yaml_files(incomplete: str) -> Iterator[str]:
    """YAML files that the word may become, at most some hundred."""
    folder = os.path.dirname(incomplete)
    patterns = ("*.y*ml", "*/*.y*ml") if not folder else ("*.y*ml",)
    start = Path(os.path.expanduser(folder) or ".")
    try:
        found = sorted(str(path.relative_to(start)) for pattern in patterns for path in start.glob(pattern))
    except OSError:
        return
    named = (f"{folder.rstrip('/')}/{name}" if folder else name for name in found if not name.startswith("."))
    yield from [name for name in named if name.startswith(incomplete)][:_MOST]


def _is_other(name: str) -> bool:
    return name.endswith(".lock.yaml") or "inventor" in name


def _files_or_any(names: Iterable[str]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    items = [CompletionItem(name) for name in names]
    # an item of this type asks the shell for its own completion of file names
    return items or [CompletionItem("", type="file")]
