"""What on the host stands in the way of a spec: facts → checks, in the order of what fails first. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from beamdeploy.errors import Problem
from beamdeploy.look.facts import Facts
from beamdeploy.preflight import disk, docker, fits, gpus, host, image, memory, names, ports, ranks, weights
from beamdeploy.preflight.check import Check, told
from beamdeploy.preflight.image import image_there, known_by, run_word
from beamdeploy.preflight.names import KEPT, PREVIOUS, kept, name_problems, own, previous
from beamdeploy.preflight.weights import container_user, given_user, staged_folders
from beamdeploy.render import Spec

__all__ = [
    "KEPT",
    "PREVIOUS",
    "Check",
    "checks",
    "container_user",
    "given_user",
    "image_problems",
    "image_there",
    "kept",
    "known_by",
    "name_problems",
    "own",
    "preflight",
    "previous",
    "run_word",
    "staged_folders",
]


def preflight(spec: Spec, facts: Facts) -> tuple[Problem, ...]:
    """Everything that is wrong or worth a word, each said to be on the spec's host. Errors block."""
    found = (each for each in checks(spec, facts) if each.verdict != "ok" or each.remedy)
    return tuple(replace(each.problem, where=f"{spec.host.name}: {each.subject}") for each in found)


def image_problems(spec: Spec, facts: Facts) -> tuple[Problem, ...]:
    """What stands in the way of an image that has only now arrived: its machine, and the CUDA that it needs."""
    found = (each for each in image.checks(spec, facts) if each.verdict == "block")
    return tuple(replace(each.problem, where=f"{spec.host.name}: {each.subject}") for each in found)


def checks(spec: Spec, facts: Facts) -> tuple[Check, ...]:
    """Everything that was looked at."""
    return tuple(_checks(spec, facts))


def _checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    yield from (told(problem, "look") for problem in facts.blockers)
    yield from docker.checks(spec, facts)
    yield from gpus.checks(spec, facts)
    yield from memory.checks(spec, facts)
    yield from image.checks(spec, facts)
    if facts.docker is not None:
        yield from names.checks(spec.recipe.name, facts.containers)
    yield from ports.checks(spec, facts)
    yield from ranks.checks(spec, facts)
    yield from disk.checks(spec, facts)
    yield from host.checks(spec, facts)
    yield from weights.checks(spec, facts)
    yield from fits.checks(spec, facts)
