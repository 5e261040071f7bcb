"""Ansible's tree of groups, hosts and variables: walked to flat facts, then put together host by host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from ipaddress import IPv6Address
from itertools import product
from math import prod
from string import ascii_letters

from beamdeploy.documents import Document
from beamdeploy.errors import Problem
from beamdeploy.hostvalues import Fault
from beamdeploy.hostvars import PRIORITY, Origin, Setting, disagreement, read_variables

MAX_HOSTS = 10_000

_RANGE = re.compile(r"\[([^\[\]:]*):([^\[\]:]*)(?::([^\[\]:]*))?\]")
# what the patterns of --limit and the comma form give a meaning to; a "-" first would be an option of ssh
_NAME = re.compile(r"[^\s\-,:;&!*?~@\[\]{}'\"\\/$`()<>|#][^\s,:;&!*?@\[\]{}'\"\\/$`()<>|#]*")


@dataclass(frozen=True)
class Member:
    """A host stands in a group."""

    host: str
    group: str
    origin: Origin


@dataclass(frozen=True)
class Child:
    """A group is there, inside another (None: at the top of the file)."""

    group: str
    parent: str | None
    origin: Origin


@dataclass(frozen=True)
class Variables:
    """Our variables of a host (`of_host`) or a group."""

    owner: str
    of_host: bool
    settings: Mapping[str, Setting]


@dataclass(frozen=True)
class Tree:
    """All hosts in order, with the settings that hold for each, and the hosts of every group."""

    hosts: Mapping[str, Mapping[str, Setting]]
    groups: Mapping[str, tuple[str, ...]]
    origins: Mapping[str, Origin]


Fact = Member | Child | Variables | Problem


def walk(document: Document) -> Iterator[Fact]:
    """Every fact of one file, in its order. What is not of the expected shape is passed over: the schema tells it."""
    for group, body in _items(document.data):
        yield from _walk_group(group, None, body, Origin(document, (group,)))


def _walk_group(group: str, parent: str | None, body: object, origin: Origin) -> Iterator[Fact]:
    if group == "all" and parent is not None:
        yield origin.fault("all is a child of another group", "all holds every group: move it to the top", rule="BD102")
        return
    yield Child(group, parent, origin)
    for section, content in _items(body):
        below = origin.below(section)
        if section == "vars" and isinstance(content, Mapping):
            settings, problems = read_variables(content, below)
            yield Variables(group, False, settings)
            yield from problems
        for name, inner in _items(content):
            if section == "children":
                yield from _walk_group(name, group, inner, below.below(name))
            elif section == "hosts":
                yield from walk_host(name, group, inner, below.below(name))


def walk_host(text: str, group: str, variables: object, origin: Origin) -> Iterator[Fact]:
    """The facts of one entry: a name, perhaps with ranges, user and port, and its variables."""
    named = parse_name(text)
    if isinstance(named, Fault):
        yield origin.fault(named.what, named.remedy, rule=named.rule, key=True)
        return
    settings, problems = read_variables(dict(_items(variables)), origin)
    yield from problems
    said = {field: Setting(field, f"the name {text}", value, origin) for field, value in named.said.items()}
    for host in named.hosts:
        yield from (Member(host, group, origin), Variables(host, True, said), Variables(host, True, settings))


def _items(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, Mapping) else ()


@dataclass(frozen=True)
class Named:
    """What a host's entry says by its name: the hosts, and `user` and `port` where given."""

    hosts: tuple[str, ...]
    said: Mapping[str, str | int]


def parse_name(text: str) -> Named | Fault:
    """`[user@]name[:port]`, where name may hold ranges ("gpu-[01:10]") or be an IPv6 address, bare or in brackets."""
    user, at, rest = text.rpartition("@")
    host, port = _split_port(rest)
    said: dict[str, str | int] = {}
    if at and not re.fullmatch(r"[^\s@:,/{}\\\-][^\s@:,/{}\\]*", user):
        return Fault(f"{text!r} has no proper user before the @", "write user@host", "BD103")
    if port is not None and not (len(port) < 6 and 1 <= int(port) <= 65535):
        return Fault(f"{text!r} has no proper port", "give a number from 1 to 65535", "BD103")
    if at:
        said["user"] = user
    if port is not None:
        said["port"] = int(port)
    hosts = (host,) if is_ipv6(host) else expand(host)
    if isinstance(hosts, Fault):
        return hosts
    bad = [each for each in hosts if not is_ipv6(each) and not (each.isprintable() and _NAME.fullmatch(each))]
    if bad:
        return Fault(f"{bad[0]!r} is no name for a host", "use letters, digits, dots and dashes", "BD103")
    return Named(hosts, said)


def _split_port(text: str) -> tuple[str, str | None]:
    if is_ipv6(text):
        return text, None
    bracketed = re.fullmatch(r"\[([^\[\]]+)\](?::([0-9]+))?", text)
    if bracketed and is_ipv6(bracketed[1]):
        return bracketed[1], bracketed[2]
    with_port = re.fullmatch(r"((?:[^:\[\]]|\[[^\[\]]*\])+):([0-9]+)", text)
    return (with_port[1], with_port[2]) if with_port else (text, None)


def is_ipv6(text: str) -> bool:
    """Whether this is an IPv6 address, perhaps with a %zone."""
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return re.fullmatch(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?", text) is not None


def expand(text: str) -> tuple[str, ...] | Fault:
    """All names that a name with ranges stands for; itself if it has none."""
    parts: list[Sequence[str]] = []
    end = 0
    for match in _RANGE.finditer(text):
        numbers = _range(*match.groups())
        if numbers is None:
            remedy = "write [1:10], [01:10] (equal widths), [a:f] or [1:10:2], from low to high"
            return Fault(f"{text!r} holds no proper range: {match[0]}", remedy, "BD103")
        parts += [(text[end : match.start()],), numbers]
        end = match.end()
    parts.append((text[end:],))
    if prod(map(len, parts)) > MAX_HOSTS:
        return Fault(f"{text!r} stands for more than {MAX_HOSTS} hosts", "make the range smaller", "BD103")
    return tuple("".join(words) for words in product(*parts))


def _range(first: str, last: str, step: str | None) -> Sequence[str] | None:
    """The words of one range, both ends included; None where it is not proper. Widths of "01" are kept."""
    stride = 1 if step is None else int(step) if re.fullmatch("[0-9]{1,9}", step) else 0
    if stride < 1:
        return None
    if re.fullmatch("[A-Za-z]", first) and re.fullmatch("[A-Za-z]", last):
        return ascii_letters[ascii_letters.index(first) : ascii_letters.index(last) + 1 : stride] or None
    if not (re.fullmatch("[0-9]{0,9}", first) and re.fullmatch("[0-9]{1,9}", last)):
        return None
    padded = len(first) > 1 and first.startswith("0")
    if padded and len(first) != len(last):
        return None
    width = len(first) if padded else 0
    numbers = range(int(first or 0), int(last) + 1, stride)
    # one above the limit is enough to refuse it
    return tuple(f"{number:0{width}d}" for number in numbers[: MAX_HOSTS + 1]) or None


def grow(facts: Iterable[Fact]) -> tuple[Tree, tuple[Problem, ...]]:
    """Put the facts of all files together; every conflict is a problem. The tree is of no use then."""
    facts = tuple(facts)
    problems = [fact for fact in facts if isinstance(fact, Problem)]
    members = [fact for fact in facts if isinstance(fact, Member)]
    parents = _parents([fact for fact in facts if isinstance(fact, Child)], members)
    cycle = _cycle(parents)
    if cycle:
        origin = next(fact.origin for fact in facts if isinstance(fact, Child) and fact.group == cycle[0])
        what = f"groups contain each other: {' > '.join(cycle)}"
        problems.append(origin.fault(what, "remove one of these children", rule="BD102", key=True))
        return Tree({}, {}, {}), tuple(problems)
    direct = _direct(members)
    lines = {host: _ancestors(groups, parents) for host, groups in direct.items()}
    of_groups, clashes = _merge([fact for fact in facts if isinstance(fact, Variables) and not fact.of_host], parents)
    of_hosts, more = _merge([fact for fact in facts if isinstance(fact, Variables) and fact.of_host], direct)
    ranks = _ranks(parents, of_groups)
    hosts: dict[str, Mapping[str, Setting]] = {}
    for host, groups in lines.items():
        hosts[host], unclear = _inherit(of_hosts[host], groups, ranks, of_groups)
        more += unclear
    within = {group: tuple(host for host in lines if group in lines[host]) for group in parents}
    origins = {member.host: member.origin for member in reversed(members)}
    # one conflict of two groups shows at each host in both
    return Tree(hosts, within, origins), tuple(dict.fromkeys((*problems, *clashes, *more)))


def _parents(children: list[Child], members: list[Member]) -> dict[str, set[str]]:
    parents: dict[str, set[str]] = {"all": set(), "ungrouped": {"all"}}
    for child in children:
        parents.setdefault(child.group, set())
        if child.parent is not None:
            parents[child.group].add(child.parent)
    for member in members:
        parents.setdefault(member.group, set())
    return {group: above or ({"all"} if group != "all" else set()) for group, above in parents.items()}


def _cycle(parents: Mapping[str, set[str]]) -> tuple[str, ...]:
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def _direct(members: Iterable[Member]) -> dict[str, set[str]]:
    """Each host's own groups. One that is in none but `all` is in `ungrouped`, and only such a one is."""
    groups: dict[str, set[str]] = {}
    for member in members:
        groups.setdefault(member.host, set()).add(member.group)
    return {host: (mine - {"all", "ungrouped"}) or {"ungrouped"} for host, mine in groups.items()}


def _ancestors(groups: Iterable[str], parents: Mapping[str, set[str]]) -> frozenset[str]:
    seen: set[str] = set()
    ahead = list(groups)
    while ahead:
        group = ahead.pop()
        if group not in seen:
            seen.add(group)
            ahead += parents[group]
    return frozenset(seen)


def _merge(facts: Iterable[Variables], owners: Iterable[str]) -> tuple[dict[str, dict[str, Setting]], list[Problem]]:
    """The settings of each owner from everywhere it is named; two that differ are a problem, in one file or in two."""
    merged: dict[str, dict[str, Setting]] = {owner: {} for owner in owners}
    problems = []
    for fact in facts:
        for field, setting in fact.settings.items():
            first = merged[fact.owner].setdefault(field, setting)
            if clash := disagreement(first, setting, rule="BD106"):
                problems.append(clash)
    return merged, problems


def _ranks(
    parents: Mapping[str, set[str]], settings: Mapping[str, Mapping[str, Setting]]
) -> dict[str, tuple[int, int]]:
    """(longest way from `all`, ansible_group_priority): as in Ansible the higher overrides the lower."""
    depths: dict[str, int] = {}
    ranks: dict[str, tuple[int, int]] = {}
    for group in TopologicalSorter(parents).static_order():
        depths[group] = max((depths[parent] + 1 for parent in parents[group]), default=0)
        priority = settings[group][PRIORITY].value if PRIORITY in settings[group] else 1
        ranks[group] = (depths[group], priority if isinstance(priority, int) else 1)
    return ranks


def _inherit(
    own: Mapping[str, Setting],
    groups: Iterable[str],
    ranks: Mapping[str, tuple[int, int]],
    of_groups: Mapping[str, Mapping[str, Setting]],
) -> tuple[dict[str, Setting], list[Problem]]:
    """A host's settings: its own, else of the highest group. Groups of one rank that differ are a problem, not luck."""
    settings: dict[str, Setting] = {}
    rank_of: dict[str, tuple[tuple[int, int], str]] = {}
    problems = []
    for group in sorted(groups, key=lambda each: (ranks[each], each), reverse=True):
        for field, setting in of_groups[group].items():
            if field in own:
                continue
            if field not in settings:
                settings[field], rank_of[field] = setting, (ranks[group], group)
            elif rank_of[field][0] == ranks[group] and settings[field].value != setting.value:
                problems.append(_unclear(setting, group, settings[field], rank_of[field][1]))
    return {**settings, **own}, problems


def _unclear(setting: Setting, group: str, other: Setting, rival: str) -> Problem:
    what = (
        f"the groups {group} and {rival} have hosts in common and give them another {setting.spelling} each "
        f"({other.origin.text})"
    )
    remedy = f"say {setting.spelling} at the hosts, or give one group ansible_group_priority: 2"
    return setting.origin.fault(what, remedy, rule="BD106")
