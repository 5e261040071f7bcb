"""GPU memory: how much is in use, by whom, and whether what is left is enough."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.engines.traits import traits
from beamdeploy.fit import fit
from beamdeploy.label import read_labels
from beamdeploy.look.facts import Container, Facts, Gpu, GpuProcess, Gpus
from beamdeploy.preflight.check import Check
from beamdeploy.preflight.gpus import listed
from beamdeploy.preflight.names import own, previous
from beamdeploy.render import Spec

IDLE_MIB = 2048
"""A GPU that computes nothing still holds some hundred MiB for its driver and monitoring tools."""
_UTILIZATION = 0.9
_MIB = 2**20


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """A check for each GPU that something else holds; our own server is stopped before the new one needs it."""
    if facts.gpus is None:
        return
    wanted = tuple(gpu for gpu in facts.gpus.gpus if gpu.index in spec.gpus)
    held = {gpu: foreign_mib(gpu, facts.gpus, serving(spec.recipe.name, facts)) for gpu in wanted}
    for gpu, mib in held.items():
        if mib > IDLE_MIB:
            yield _held(spec, facts, gpu, mib)
    free = [gpu.index for gpu, mib in held.items() if mib <= IDLE_MIB]
    if free:
        yield Check("GPU memory", f"GPU {listed(free)}: {_free(spec, facts)}")


def strangers(facts: Facts, ours: frozenset[str]) -> dict[int, int]:
    """Index of a GPU → MiB that others than these containers hold; those alone that they hold much of."""
    found = facts.gpus.gpus if facts.gpus is not None else ()
    held = {gpu.index: foreign_mib(gpu, facts.gpus, ours) for gpu in found if facts.gpus is not None}
    return {index: mib for index, mib in held.items() if mib > IDLE_MIB}


def foreign_mib(gpu: Gpu, gpus: Gpus, ours: frozenset[str]) -> int:
    """MiB of a GPU that are in use and not by these containers.

    While one of ours runs, what no process is known for counts as its: nvidia-smi tells of a process only to those
    who may see it.
    """
    here = [process for process in gpus.processes if process.gpu_uuid == gpu.uuid]
    others = [process for process in here if process.container and process.container not in ours]
    unknown = [process for process in here if not process.container]
    if ours:
        running = any(process.container in ours for process in here)
        return sum(process.memory_mib or 0 for process in (*others, *(unknown if running else ())))
    return gpu.memory_used_mib or 0


def serving(name: str, facts: Facts) -> frozenset[str]:
    """The ids of this deployment's containers that run."""
    found = (own(name, facts.containers), previous(name, facts.containers))
    return frozenset(each.id for each in found if each is not None and each.running)


def _free(spec: Spec, facts: Facts) -> str:
    return "held by this deployment's own server, or free" if serving(spec.recipe.name, facts) else "free"


def _held(spec: Spec, facts: Facts, gpu: Gpu, mib: int) -> Check:
    assert facts.gpus is not None
    ours = serving(spec.recipe.name, facts)
    strangers = [p for p in facts.gpus.processes if p.gpu_uuid == gpu.uuid and p.container not in ours]
    who = "; ".join(_named(process, facts.containers) for process in strangers) or "a process that nvidia-smi hides"
    of = "" if gpu.memory_total_mib is None else f" of {gpu.memory_total_mib}"
    saw = f"GPU {gpu.index}: {mib}{of} MiB in use by {who}"
    lacking = _lacking(spec, facts, gpu.memory_total_mib, mib)
    if not lacking or _serves(spec, facts):
        return Check("GPU memory", saw, "warn", "Stop it if it is not needed; nothing is stopped here.")
    remedy = "Stop it, or list other GPUs in the inventory; nothing is stopped here that is not this deployment's."
    return Check("GPU memory", f"{saw}: not enough is left for {lacking}", "block", remedy)


def _lacking(spec: Spec, facts: Facts, total: int | None, held: int) -> str:
    """For what too little is left; "": for nothing that is known.

    An engine that we know takes its share of the whole memory; of another server the weights are known alone.
    """
    if traits(spec.recipe.engine.name) is not None:
        share = spec.recipe.engine.gpu_memory_utilization or _UTILIZATION
        return "" if total is not None and held <= (1 - share) * total else f"utilization {share:g}"
    found = fit(spec.recipe, total * _MIB, facts.weights) if total is not None else None
    if found is None or found.weights <= (found.memory - held * _MIB):
        return ""
    return f"the weights, which take {found.weights / 2**30:.1f} GiB"


def _serves(spec: Spec, facts: Facts) -> bool:
    """Whether what is wanted runs already: then nothing is to be started that could lack memory."""
    ours = own(spec.recipe.name, facts.containers)
    deployed = read_labels(ours.labels) if ours is not None and ours.running else None
    return deployed is not None and deployed.digest == spec.digest


def _named(process: GpuProcess, containers: tuple[Container, ...]) -> str:
    """ "python3 (pid 4242, container front)"."""
    if not process.container:
        return f"{process.name} (pid {process.pid})"
    known = next((each for each in containers if each.id == process.container), None)
    name = known.name if known is not None else process.container[:12]
    deployed = read_labels(known.labels) if known is not None else None
    whose = f", deployment {deployed.name}" if deployed is not None else ""
    return f"{process.name} (pid {process.pid}, container {name}{whose})"
