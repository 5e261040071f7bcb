"""The host itself: its memory, what containers may lock of it, and its clock."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.look.facts import Facts, System
from beamdeploy.preflight.check import Check
from beamdeploy.render import Spec
from beamdeploy.weights.staging import human

_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_SKEW = 30
_RDMA = "/dev/infiniband"


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """What was told; nothing where it was not."""
    yield from _memory(spec, facts.system)
    yield from _memlock(facts)
    yield from _clock(facts.system)


def _memory(spec: Spec, system: System) -> Iterator[Check]:
    if system.memory_total is None:
        return
    available = "" if system.memory_available is None else f", {human(system.memory_available)} available"
    saw = f"{human(system.memory_total)}{available}"
    size = spec.recipe.container.shm_size
    shared = int(size[:-1]) * _UNITS[size[-1]] if size and size[-1] in _UNITS and size[:-1].isdigit() else 0
    if shared > system.memory_total:
        what = f"{saw}: container.shm_size {size} is more than the host has"
        yield Check("memory", what, "warn", "What is written to shared memory takes memory: lower container.shm_size.")
    else:
        yield Check("memory", saw + (f"; container.shm_size may take {size} of it" if shared else ""))


def _memlock(facts: Facts) -> Iterator[Check]:
    limit = facts.docker.memlock if facts.docker is not None else ""
    if not limit:
        return
    saw = f"containers may lock {limit if limit == 'unlimited' else human(int(limit))}"
    if limit == "unlimited" or _RDMA not in facts.system.there:
        yield Check("memlock", saw if limit == "unlimited" else f"{saw}: enough without RDMA")
        return
    remedy = 'Set LimitMEMLOCK=infinity for the docker service, or docker_args: ["--ulimit", "memlock=-1"] in the '
    yield Check("memlock", f"{saw}: too little for RDMA, which this host has", "warn", f"{remedy}inventory.")


def _clock(system: System) -> Iterator[Check]:
    if system.clock is None:
        return
    if abs(system.skew) < _SKEW:
        yield Check("clock", "agrees with this machine's")
        return
    way = "ahead of" if system.skew > 0 else "behind"
    what = f"the host's clock is {abs(system.skew):.0f} s {way} this machine's"
    yield Check("clock", what, "warn", "Let NTP set both (`timedatectl`): logs, tokens and certificates depend on it.")
