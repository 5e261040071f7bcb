"""The GPUs: there, of the recipe's family, healthy, and usable by a container."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy import hardware
from beamdeploy.look.facts import Facts, Gpu, Gpus, System
from beamdeploy.preflight.check import Check
from beamdeploy.render import Spec

_AMD = frozenset({"amd-smi", "rocm-smi"})


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """Everything about the GPUs but who holds their memory."""
    gpus = facts.gpus
    if gpus is None:
        # where nvidia-smi failed, a blocker has said so
        if not any(problem.rule in ("BD237", "BD238") for problem in facts.blockers):
            yield _none(spec, facts.system)
        return
    wanted = tuple(gpu for gpu in gpus.gpus if gpu.index in spec.gpus)
    yield from _there(spec, gpus)
    yield from _family(spec, wanted)
    yield from _driver(spec, gpus)
    yield from _mig(wanted)
    yield from _ecc(wanted)
    yield from _mode(wanted)
    yield from _fabric(wanted, facts.system)


def _none(spec: Spec, system: System) -> Check:
    wanted = spec.recipe.hardware
    asks = f"hardware asks for {wanted.count} x {wanted.gpu}"
    if system.programs & _AMD or "/dev/kfd" in system.there:
        tool = next(iter(sorted(system.programs & _AMD)), "/dev/kfd")
        what = f"this host has AMD GPUs ({tool}), which are not supported: the engines' images here are built for CUDA"
        return Check("GPUs", what, "block", f"{asks}: choose a host with NVIDIA GPUs.", "BD247")
    what = "no NVIDIA driver was found (nvidia-smi is not there)"
    return Check("GPUs", what, "block", f"{asks}: install the driver, or choose another host.", "BD247")


def _there(spec: Spec, gpus: Gpus) -> Iterator[Check]:
    present = {gpu.index for gpu in gpus.gpus}
    lacking = [index for index in spec.gpus if index not in present]
    if lacking:
        yield Check(
            "GPUs",
            f"GPU {listed(lacking)} is not there; the host has {len(present)}",
            "block",
            f"hardware.count is {spec.recipe.hardware.count}: choose another host, or list its GPUs in the inventory.",
        )
    else:
        yield Check("GPUs", f"{listed(spec.gpus)} of {len(present)}")


def _family(spec: Spec, wanted: tuple[Gpu, ...]) -> Iterator[Check]:
    gpu = spec.recipe.hardware.gpu
    names = sorted({each.name for each in wanted})
    others = [name for name in names if not hardware.is_of(gpu, name)]
    if others:
        yield Check(
            "GPUs",
            f"hardware.gpu is {gpu}, the host has {', '.join(others)}",
            "block",
            "Use a recipe for that GPU: kernels and number formats are chosen for one family.",
            "BD249",
        )
        return
    for name in names:
        capability = next(each.compute_capability for each in wanted if each.name == name)
        yield Check("family", f"{name}" + (f", compute capability {capability}" if capability else ""))


def _driver(spec: Spec, gpus: Gpus) -> Iterator[Check]:
    least = spec.recipe.hardware.min_driver
    if least and hardware.older(gpus.driver, least):
        yield Check(
            "GPUs",
            f"the driver is {gpus.driver}, hardware.min_driver is {least}",
            "block",
            "Update the NVIDIA driver on the host.",
            "BD250",
        )
        return
    cuda = gpus.cuda or hardware.cuda_of(gpus.driver)
    yield Check("driver", f"{gpus.driver or 'of unknown version'}" + (f", runs CUDA {cuda}" if cuda else ""))


def _mig(wanted: tuple[Gpu, ...]) -> Iterator[Check]:
    on = [gpu.index for gpu in wanted if gpu.mig]
    if on:
        yield Check(
            "MIG",
            f"MIG is on for GPU {listed(on)}: a container gets no whole GPU there",
            "block",
            f"Turn it off while nothing runs (`nvidia-smi -i {listed(on, ',')} -mig 0`), or use other GPUs.",
        )
    elif any(gpu.mig is False for gpu in wanted):
        yield Check("MIG", "off")


def _ecc(wanted: tuple[Gpu, ...]) -> Iterator[Check]:
    bad = [gpu for gpu in wanted if gpu.ecc_errors]
    if bad:
        each = ", ".join(f"GPU {gpu.index}: {gpu.ecc_errors}" for gpu in bad)
        remedy = (
            "Reset the GPU or reboot; if they come back, look at `nvidia-smi -q -d ROW_REMAPPER` and have it replaced."
        )
        yield Check("ECC", f"uncorrected memory errors since the driver was loaded ({each})", "warn", remedy)
    elif any(gpu.ecc_errors == 0 for gpu in wanted):
        yield Check("ECC", "no uncorrected errors")


def _mode(wanted: tuple[Gpu, ...]) -> Iterator[Check]:
    for mode in sorted({gpu.compute_mode for gpu in wanted} - {""}):
        on = [gpu.index for gpu in wanted if gpu.compute_mode == mode]
        if mode == "Default":
            yield Check("compute mode", mode)
            continue
        remedy = f"Set it back: `nvidia-smi -i {listed(on, ',')} -c DEFAULT`."
        if mode == "Prohibited":
            yield Check("compute mode", f"Prohibited on GPU {listed(on)}: nothing may compute there", "block", remedy)
        else:
            what = f"{mode} on GPU {listed(on)}: a second process of the engine on one GPU is refused"
            yield Check("compute mode", what, "warn", remedy)


def _fabric(wanted: tuple[Gpu, ...], system: System) -> Iterator[Check]:
    """GPUs behind NVLink switches can start no CUDA before the fabric manager has joined them (error 802)."""
    outside = [gpu for gpu in wanted if gpu.fabric and gpu.fabric != "Completed"]
    remedy = "Start it (`systemctl start nvidia-fabricmanager`, of the driver's own version); see `nvidia-smi -q`."
    if outside:
        state = ", ".join(f"GPU {gpu.index}: {gpu.fabric}" for gpu in outside)
        yield Check("NVLink fabric", f"the GPUs have not joined the NVLink fabric ({state})", "block", remedy)
    elif any(gpu.fabric for gpu in wanted):
        yield Check("NVLink fabric", "joined")
    elif system.fabric_manager is False:
        what = "there are NVLink switches, and the fabric manager does not run"
        # it may run in a virtual machine of its own, which a guest does not see
        yield Check("NVLink fabric", what, "warn", remedy)


def listed(numbers: tuple[int, ...] | list[int], between: str = ", ") -> str:
    """ "0, 1, 2"."""
    return between.join(map(str, numbers))
