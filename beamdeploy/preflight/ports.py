"""The published port: free, ours or taken, and who can reach it."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.label import read_labels
from beamdeploy.look.facts import Container, Facts, Listener
from beamdeploy.preflight.check import Check
from beamdeploy.preflight.names import PREVIOUS
from beamdeploy.render import Spec


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """Whether the port can be published, and past what."""
    wanted = spec.recipe.container
    taken = tuple(_taken(spec, facts))
    yield from taken or (Check("port", f"{wanted.address}:{wanted.port} is free or this deployment's own"),)
    if wanted.address.strip("[]") == "::1" or wanted.address.startswith("127."):
        yield Check("exposure", f"{wanted.address} is reached from the host itself only")
    else:
        how = "docker publishes past ufw" if wanted.network is None else "it is on the host's network"
        # what no rule of the recipe has refused has a key, or is an address of one network
        yield Check("exposure", f"{wanted.address}:{wanted.port} is open to the network: {how}")


def _taken(spec: Spec, facts: Facts) -> Iterator[Check]:
    wanted = spec.recipe.container
    ours = {spec.recipe.name, spec.recipe.name + PREVIOUS}
    holder = next(
        (
            c
            for c in facts.containers
            if c.name not in ours and c.running and _publishes(c, wanted.address, wanted.port)
        ),
        None,
    )
    if holder is not None:
        yield _port_taken(spec, f"the container {holder.name} ({holder.image})")
        return
    if any(c.name in ours and c.running and _holds(c, wanted.port) for c in facts.containers):
        return
    taken = next((each for each in facts.listeners if _same(each, wanted.address, wanted.port)), None)
    if taken is not None:
        who = f"{taken.program} (pid {taken.pid})" if taken.program else "another program"
        yield _port_taken(spec, f"{who} on {taken.address}:{taken.port}")


def _holds(container: Container, port: int) -> bool:
    """Whether one of ours has the port: published, or as its label says where it is on the host's network."""
    deployed = read_labels(container.labels)
    section = deployed.recipe.get("container", {}) if deployed else {}
    if section.get("network") == "host":
        return str(section.get("publish", "")).endswith(f":{port}")
    return port in (published for _, published, _ in container.ports)


def _port_taken(spec: Spec, who: str) -> Check:
    wanted = spec.recipe.container
    return Check(
        "port",
        f"port {wanted.address}:{wanted.port} is taken by {who}",
        "block",
        "Stop it, or choose another port in container.publish.",
    )


def _publishes(container: Container, address: str, port: int) -> bool:
    return any(theirs == port and _overlap(ip, address) for ip, theirs, _ in container.ports)


def _same(listener: Listener, address: str, port: int) -> bool:
    return listener.port == port and _overlap(listener.address, address)


def _overlap(one: str, other: str) -> bool:
    anywhere = ("0.0.0.0", "::", "[::]", "*", "")
    return one.strip("[]") == other.strip("[]") or one in anywhere or other in anywhere
