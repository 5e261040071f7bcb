"""Whose container it is: ours by its label, of another deployment, or a stranger's."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.errors import Problem
from beamdeploy.label import read_labels
from beamdeploy.look.facts import Container
from beamdeploy.preflight.check import Check, told

PREVIOUS = ".previous"
"""Suffix of the container that is kept aside while a new one starts."""
KEPT = ".failed"
"""Suffix of a new server that failed, and was kept for a look."""


def checks(name: str, containers: tuple[Container, ...]) -> Iterator[Check]:
    """Whether the deployment's name is free or its own."""
    found = tuple(name_problems(name, containers))
    ours = own(name, containers)
    if ours is not None:
        yield Check("name", f"{name} is this deployment's container ({ours.state})")
    elif not found:
        yield Check("name", f"no container is named {name}")
    yield from (told(problem, "name") for problem in found)


def own(spec_name: str, containers: tuple[Container, ...]) -> Container | None:
    """Our container of that name; None: there is none."""
    return _named(spec_name, spec_name, containers)


def previous(spec_name: str, containers: tuple[Container, ...]) -> Container | None:
    """The container that an earlier apply kept aside."""
    return _named(spec_name + PREVIOUS, spec_name, containers)


def kept(spec_name: str, containers: tuple[Container, ...]) -> Container | None:
    """The container that failed in an earlier apply, and was kept for a look."""
    return _named(spec_name + KEPT, spec_name, containers)


def _named(name: str, deployment: str, containers: tuple[Container, ...]) -> Container | None:
    found = next((container for container in containers if container.name == name), None)
    deployed = read_labels(found.labels) if found is not None else None
    return found if deployed is not None and deployed.name == deployment else None


def name_problems(name: str, containers: tuple[Container, ...]) -> Iterator[Problem]:
    """A container of the deployment's name that another one made, or nobody of ours, is never touched."""
    found = next((container for container in containers if container.name == name), None)
    deployed = read_labels(found.labels) if found is not None else None
    if found is not None and deployed is None:
        yield _stranger(found)
    if found is not None and deployed is not None and deployed.name != name:
        yield _of_another(found, deployed.name)


def _of_another(container: Container, deployment: str) -> Problem:
    """One name is one deployment: a container that was renamed by hand belongs to the one that its label names."""
    return Problem(
        f"the container {container.name} ({container.image}, {container.state}) belongs to another deployment of "
        f"beamdeploy: {container.name} is asked for, its label says {deployment}",
        f"It is not touched. If it was renamed by hand, give it its name back (docker rename {container.name} "
        f"{deployment}), or give the recipe another name.",
        "name",
        rule="BD263",
    )


def _stranger(container: Container) -> Problem:
    return Problem(
        f"a container named {container.name} ({container.image}, {container.state}) is there, and does not carry "
        "beamdeploy's label",
        f"It is not touched. Stop and remove it by hand (docker stop {container.name}; docker rm {container.name}), "
        "or give the recipe another name.",
        "name",
        rule="BD263",
    )
