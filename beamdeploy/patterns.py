"""Which hosts of an inventory `--limit` leaves: Ansible's patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

from beamdeploy.errors import InputError, Problem
from beamdeploy.hosttree import expand, is_ipv6
from beamdeploy.hostvalues import Fault
from beamdeploy.inventory import Host, Inventory


def select(inventory: Inventory, limit: str | None) -> tuple[Host, ...]:
    """The hosts that `--limit` leaves, in the inventory's order; None: all.

    Ansible's patterns: host, group, `all`, `*`, globs, ranges, `group[0]`, `group[0:2]`; `a:b` and `a,b` either, `!c`
    not, `&d` also. InputError: a word that names nothing (a slip in `!c` would deploy to c), or nobody is left.
    """
    if limit is None:
        return inventory.hosts
    words = tuple(_split(limit, inventory))
    if not words:
        # an unset variable of a script, which must not mean every host
        remedy = "name hosts or groups, or leave --limit out for all"
        raise InputError((Problem("--limit is empty", remedy, where="--limit", rule="BD118"),))
    named = {word: _named(word.lstrip("!&"), inventory) for word in words}
    problems = tuple(_unknown(word, inventory) for word, hosts in named.items() if hosts is None)
    if problems:
        raise InputError(problems)
    chosen = _combine({word: hosts or frozenset() for word, hosts in named.items()}, inventory)
    if not chosen:
        remedy = f"the inventory has: {_some(host.name for host in inventory.hosts)}"
        raise InputError((Problem(f"--limit {limit} leaves no host", remedy, where="--limit", rule="BD118"),))
    return tuple(host for host in inventory.hosts if host.name in chosen)


def _combine(named: Mapping[str, frozenset[str]], inventory: Inventory) -> frozenset[str]:
    """Unions first, then intersections, then exclusions, in whatever order they are written; as Ansible does."""
    either = [hosts for word, hosts in named.items() if word[0] not in "!&"]
    chosen = frozenset().union(*either) if either else frozenset(host.name for host in inventory.hosts)
    for word, hosts in named.items():
        chosen = chosen & hosts if word[0] == "&" else chosen
    return chosen.difference(*(hosts for word, hosts in named.items() if word[0] == "!"))


def _split(limit: str, inventory: Inventory) -> Iterator[str]:
    """The words between commas, or colons where these are not part of a host's name, address or brackets."""
    names = {host.name for host in inventory.hosts}
    for part in filter(None, (part.strip() for part in limit.split(","))):
        bare = part.lstrip("!&").strip("[]")
        whole = bare in names or is_ipv6(bare)
        for word in (part,) if whole else re.findall(r"(?:[^:\[\]]|\[[^\]]*\]?|\])+", part):
            if word.strip():
                yield word.strip()


def _named(word: str, inventory: Inventory) -> frozenset[str] | None:
    """The hosts that one word names; None: it names nothing in this inventory."""
    names = [host.name for host in inventory.hosts]
    if word in ("all", "*"):
        return frozenset(names)
    if word in inventory.groups:
        return frozenset(inventory.groups[word]) | ({word} & set(names))
    if (part := re.fullmatch(r"(.+)\[(-?\d{1,6})(?:([:-])(\d{0,6}))?\]", word)) and part[1] in inventory.groups:
        return _subscript(inventory.groups[part[1]], int(part[2]), part[3], part[4])
    ranged = expand(word)
    globs = [word.strip("[]")] if is_ipv6(word.strip("[]")) else [word] if isinstance(ranged, Fault) else list(ranged)
    found = {name for name in names for glob in globs if name == glob or fnmatchcase(name, glob)}
    for group, hosts in inventory.groups.items():
        if any(fnmatchcase(group, glob) for glob in globs):
            found.update(hosts)
    return frozenset(found) or None


def _subscript(hosts: tuple[str, ...], first: int, dash: str | None, last: str | None) -> frozenset[str]:
    """`[0]`, `[-1]`, `[0:2]`, `[1:]`: both ends are meant, as in Ansible."""
    if dash is None:
        return frozenset(hosts[first : first + 1 or None])
    return frozenset(hosts[first : int(last) + 1] if last else hosts[first:])


def _unknown(word: str, inventory: Inventory) -> Problem:
    bare = word.lstrip("!&")
    if not bare:
        remedy = (
            f"name a host or group after it, such as {word}{inventory.hosts[0].name if inventory.hosts else 'gpu-a'}"
        )
        return Problem(f"--limit: nothing follows {word!r}", remedy, where="--limit", rule="BD117")
    known = [*(host.name for host in inventory.hosts), *inventory.groups]
    near = get_close_matches(bare, known, 3)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"the inventory has: {_some(known)}"
    return Problem(f"--limit: no host or group is called {bare!r}", remedy, where="--limit", rule="BD117")


def _some(names: Iterable[str]) -> str:
    names = tuple(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
