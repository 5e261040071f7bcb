"""Of several nodes: whether the ranks' interface has their address, and their ports are free."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.look.facts import Facts
from beamdeploy.preflight.check import Check
from beamdeploy.preflight.names import own
from beamdeploy.render import Spec


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """Nothing for a server on one node."""
    if spec.rank is not None:
        yield _interface(spec, facts)
        yield from _ports(spec, facts)


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
