"""Of several nodes: whether the ranks' interface has their address, and their ports are free."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.label import read_labels
from beamdeploy.look.facts import Facts
from beamdeploy.preflight.check import Check
from beamdeploy.preflight.names import own
from beamdeploy.ranks import rank_of
from beamdeploy.render import Spec


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """Nothing for a server that is and was on one node."""
    yield from _elsewhere(spec, facts)
    if spec.rank is not None:
        yield _interface(spec, facts)
        yield from _ports(spec, facts)


def _elsewhere(spec: Spec, facts: Facts) -> Iterator[Check]:
    """A server on other hosts cannot be exchanged as one: its ranks there would be left over, or not brought back."""
    current = own(spec.recipe.name, facts.containers)
    deployed = read_labels(current.labels) if current is not None else None
    if deployed is None:
        return
    was, wanted = rank_of(deployed.settings), spec.rank
    before, after = (rank.hosts if rank else (spec.host.name,) for rank in (was, wanted))
    if before != after:
        what = f"{spec.recipe.name} runs here as one server on {', '.join(before)}, and is wanted on {', '.join(after)}"
        yield Check("ranks", what, "block", f"Destroy it first, on {', '.join(before)}.")


def _interface(spec: Spec, facts: Facts) -> Check:
    assert spec.rank is not None
    name, address = spec.rank.interface, spec.rank.address
    if facts.addresses is None:
        remedy = "Install iproute2 (`ip`) on the host."
        return Check("rank interface", f"whether {name} has {address} could not be asked", "warn", remedy)
    if (name, address) in facts.addresses:
        return Check("rank interface", f"{name} has {address} ({spec.rank.said})")
    there = ", ".join(f"{each} {has}" for each, has in facts.addresses if each != "lo") or "none but loopback"
    what = f"{name} has not the address {address} of {spec.rank.said}; the host has: {there}"
    return Check("rank interface", what, "block", "Correct rank_interface and rank_address in the inventory.")


def _ports(spec: Spec, facts: Facts) -> Iterator[Check]:
    """The head opens them; what our own running head holds is its own."""
    current = own(spec.recipe.name, facts.containers)
    if not spec.rank_ports or (current is not None and current.running):
        return
    held = [each for each in facts.listeners if each.port in spec.rank_ports]
    if not held:
        yield Check("rank ports", f"{spec.rank_ports[0]} to {spec.rank_ports[-1]} are free")
    for each in held:
        who = f"{each.program} (pid {each.pid})" if each.program else "another program"
        what = f"port {each.port}, on which the ranks meet, is taken by {who}"
        yield Check("rank ports", what, "block", "Stop it, or set engine.rank_port.")
