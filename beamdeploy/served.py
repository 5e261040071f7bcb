"""What is served on a host and how it is asked: by a recipe, or by the label of what runs there."""

from __future__ import annotations

import json
from dataclasses import dataclass

from beamdeploy.apikey import key
from beamdeploy.engines import EngineFacts, facts_of
from beamdeploy.errors import HostError, Problem
from beamdeploy.exchange import Carry, carrier, channel_carrier, reached
from beamdeploy.label import NAME, Deployed, read_labels
from beamdeploy.recipe import Json, Recipe, build
from beamdeploy.remote import Session


@dataclass(frozen=True)
class Served:
    """A server, by the recipe that it was made from or should be."""

    recipe: Recipe
    engine: EngineFacts

    @property
    def model(self) -> str:
        return self.recipe.model.served_name

    @property
    def request(self) -> Json:
        """The values that go with every request."""
        return self.recipe.request

    @property
    def place(self) -> str:
        """address:port on its host, as it is reached there."""
        address = reached(self.recipe.container.address)
        shown = f"[{address}]" if ":" in address else address
        return f"{shown}:{self.recipe.container.port}"

    def way(self, session: Session) -> Carry:
        """How one thread asks it."""
        published = self.recipe.container
        return carrier(session, published.address, published.port, key(session, self.recipe.source))

    def channels(self, session: Session) -> Carry:
        """How many threads ask it at once."""
        published = self.recipe.container
        return channel_carrier(session, published.address, published.port, key(session, self.recipe.source))


def served_by(recipe: Recipe) -> Served:
    """What a recipe says is served."""
    return Served(recipe, facts_of(recipe.source["engine"]))


def served(session: Session, target: Recipe | str) -> Served:
    """What a recipe says, or what the deployment of a name serves. HostError: see `served_there`."""
    return served_there(session, target) if isinstance(target, str) else served_by(target)


def served_there(session: Session, name: str) -> Served:
    """What the deployment of this name serves, by its label. HostError: there is none, or its label cannot be read."""
    docker = session.host.docker_words
    words = ("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={NAME}={name}", "--filter", f"name=^/{name}$")
    found = session.run((*docker, *words), timeout=60)
    if not found.ok:
        raise HostError(
            Problem(f"docker ps failed: {found.err.strip()[-200:]}", "beamdeploy status says more.", session.host.name)
        )
    if not found.out.strip():
        raise HostError(
            Problem(f"there is no deployment named {name}", "beamdeploy status shows what runs.", session.host.name)
        )
    return _of_label(session, found.out.split()[0], name)


def deployed_as(session: Session, container: str) -> Deployed | None:
    """What a container's labels say; None: it is not ours, or not there."""
    words = (*session.host.docker_words, "inspect", "--format", "{{json .Config.Labels}}", container)
    return read_labels(json.loads(session.run(words, timeout=60).out or "null") or {})


def _of_label(session: Session, container: str, name: str) -> Served:
    deployed = deployed_as(session, container)
    if deployed is None or not deployed.recipe:
        what = f"the label of {name} does not say what it serves"
        raise HostError(Problem(what, "Name the recipe's file instead.", session.host.name))
    return served_by(build(deployed.recipe))
