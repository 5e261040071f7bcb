"""Several nodes for one model: which host is which rank, and what each must know of the others. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beamdeploy.engines import EngineFacts
from beamdeploy.errors import Problem
from beamdeploy.inventory import Host
from beamdeploy.recipe import Recipe

HEAD = 0
_IPV4 = r"\d{1,3}(\.\d{1,3}){3}"


@dataclass(frozen=True)
class Rank:
    """One host's part. `hosts`: all of the deployment by rank, the first is the head; `head`: the head's address.

    `port`: the first of the head's ports; `replicas`: data-parallel replicas on each node, None where they are not
    counted by node; `first_replica`: the number of this node's first.
    """

    number: int
    hosts: tuple[str, ...]
    head: str
    port: int
    interface: str
    address: str
    replicas: int | None = None

    @property
    def first_replica(self) -> int:
        return self.number * (self.replicas or 0)

    @property
    def said(self) -> str:
        """ "rank 1 of 2" """
        return f"rank {self.number} of {len(self.hosts)}"


def placed(
    recipe: Recipe, hosts: Sequence[Host], engine: EngineFacts
) -> tuple[Mapping[str, Rank], tuple[Problem, ...]]:
    """Host → its rank; none for one node. The hosts in their order make one deployment after the other."""
    nodes = recipe.engine.nodes
    if nodes == 1:
        return {}, ()
    problems = tuple(_problems(recipe, hosts))
    if problems:
        return {}, problems
    groups = [hosts[at : at + nodes] for at in range(0, len(hosts), nodes)]
    return {
        host.name: _rank(recipe, number, group, engine) for group in groups for number, host in enumerate(group)
    }, ()


def heads(recipe: Recipe, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """The hosts that answer requests."""
    return tuple(hosts[:: recipe.engine.nodes])


def rank_ports(engine: EngineFacts, first: int) -> tuple[int, ...]:
    """The ports that a head opens for its followers."""
    return tuple(first + port - engine.rank_ports[0] for port in engine.rank_ports)


def environment(rank: Rank | None, engine: EngineFacts, said: Mapping[str, str]) -> dict[str, str]:
    """The variables that bind an engine's ranks to their interface; what the recipe says itself comes first."""
    if rank is None:
        return dict(said)
    own = {name: rank.interface if what == "interface" else rank.address for name, what in engine.rank_env.items()}
    return {**said, **{name: value for name, value in own.items() if name not in said}}


def settings(rank: Rank | None) -> Mapping[str, Any]:
    """What of a rank is in the words, by the names that a plan shows."""
    if rank is None:
        return {}
    return {
        "inventory.rank": rank.number,
        "inventory.ranks": list(rank.hosts),
        "inventory.head": f"{rank.head}:{rank.port}",
        "inventory.rank_interface": rank.interface,
        "inventory.rank_address": rank.address,
    }


def rank_of(settings: Mapping[str, Any]) -> Rank | None:
    """The rank that a deployment's settings tell; None: it is on one node."""
    if "inventory.rank" not in settings:
        return None
    head, _, port = str(settings["inventory.head"]).rpartition(":")
    return Rank(
        settings["inventory.rank"],
        tuple(settings["inventory.ranks"]),
        head,
        int(port),
        settings["inventory.rank_interface"],
        settings["inventory.rank_address"],
    )


def _rank(recipe: Recipe, number: int, group: Sequence[Host], engine: EngineFacts) -> Rank:
    host = group[number]
    return Rank(
        number,
        tuple(each.name for each in group),
        str(_address(group[HEAD])),
        recipe.engine.rank_port or engine.rank_ports[0],
        str(host.rank_interface),
        str(_address(host)),
        _replicas(recipe),
    )


def _replicas(recipe: Recipe) -> int | None:
    """vLLM alone counts the replicas of a node; the others spread them as any rank."""
    replicas = recipe.engine.data_parallel or 1
    return replicas // recipe.engine.nodes if recipe.engine.name == "vllm" and replicas > 1 else None


def _address(host: Host) -> str | None:
    if host.rank_address is not None:
        return host.rank_address
    return host.address if host.address and re.fullmatch(_IPV4, host.address) else None


def _problems(recipe: Recipe, hosts: Sequence[Host]) -> Iterator[Problem]:
    nodes = recipe.engine.nodes
    if len(hosts) % nodes:
        what = f"engine.nodes is {nodes}, and {len(hosts)} host{'s are' if len(hosts) > 1 else ' is'} chosen"
        remedy = f"Choose a multiple of {nodes} with -i and -l: {nodes} after {nodes}, in their order, serve together."
        yield Problem(what, remedy, file=recipe.file, rule="BD055")
    for host in hosts:
        if host.rank_interface is None:
            what = f"rank_interface is not set for {host.name}, which is one of several nodes"
            yield Problem(
                what, "Say in the inventory over which interface ranks talk, like eth0.", host.name, rule="BD056"
            )
        if _address(host) is None:
            what = f"rank_address is not set for {host.name}, and its address is not an IPv4 address"
            yield Problem(what, "Give the IPv4 address of that interface in the inventory.", host.name, rule="BD056")
