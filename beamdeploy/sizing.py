"""Whether a recipe fits: into a GPU family, or into the GPUs of each host with what is staged there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace

from beamdeploy import errors, recap
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.fit import Fit, fit
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.hardware import FAMILIES, family
from beamdeploy.look import Question, look
from beamdeploy.look.facts import Facts, Weights
from beamdeploy.outcome import HostReport, PlanLine, Report
from beamdeploy.preflight.fits import gib, judged
from beamdeploy.recipe import Recipe
from beamdeploy.render import Spec
from beamdeploy.run import Run, SayHost

_MIB = 2**20
_WIDTH = 50
_SHADES = {"weights": "#", "drafter": "d", "KV cache": "=", "drafter's cache": "-", "margin": "~"}


def on_family(recipe: Recipe, gpu: str | None, count: int | None) -> Report:
    """The fit by what is known of the GPU and the model; no host is asked. InputError: the family is not known."""
    name, number = gpu or recipe.hardware.gpu, count or recipe.hardware.count
    known = family(name)
    if known is None:
        names = ", ".join(each.name for each in FAMILIES)
        raise InputError([Problem(f"the memory of {name} is not known here", f"Known: {names}.", where="--gpu")])
    place = f"{number} x {known.name}"
    report = _report(place, with_gpus(recipe, name, number), known.memory_gb * 10**9, {}, "as sold")
    return Report("Fit", report.exit, (report,))


def with_gpus(recipe: Recipe, gpu: str, count: int) -> Recipe:
    """The same on other GPUs: the tensor parallel size goes with their number where it was the same before."""
    engine = recipe.engine
    if engine.tensor_parallel == recipe.hardware.count:
        engine = replace(engine, tensor_parallel=count)
    return replace(recipe, engine=engine, hardware=replace(recipe.hardware, gpu=gpu, count=count))


def on_hosts(specs: Iterable[Spec], say: SayHost, *, accept_new: bool, forks: Forks = AS_USUAL) -> Report:
    """The fit into each host's GPUs, by what is staged there where it is."""
    by_name = {spec.host.name: spec for spec in specs}
    with ExitStack() as stack:
        run = Run(stack, say, forks)

        def work(name: str) -> HostReport:
            session = run.opened_to_look(by_name[name].host, accept_new=accept_new)
            run.say(name, "look", "")
            return _on_host(by_name[name], look(session, question(by_name[name])))

        results = each(by_name, work, at_once=forks.hosts)
    reports = tuple(_told(name, results[name]) for name in by_name)
    return Report("Fit", errors.worst(report.exit for report in reports), reports)


def question(spec: Spec) -> Question:
    """The GPUs and the folders, and nothing of docker."""
    return Question(model_dir=spec.host.model_dir, folders=spec.recipe.folders, docker=(), need_gpus=True)


def _on_host(spec: Spec, facts: Facts) -> HostReport:
    sizes = [gpu.memory_total_mib for gpu in (facts.gpus.gpus if facts.gpus else ()) if gpu.index in spec.gpus]
    known = [size for size in sizes if size is not None]
    if len(known) < len(spec.gpus):
        what = f"the memory of GPU {', '.join(map(str, spec.gpus))} is not told on this host"
        problems = facts.blockers or (Problem(what, "See beamdeploy preflight.", where="GPUs"),)
        placed = tuple(problem.at(spec.host.name) for problem in problems)
        return HostReport(spec.host.name, "blocked", errors.BLOCKED, what, problems=placed)
    names = sorted({gpu.name for gpu in (facts.gpus.gpus if facts.gpus else ()) if gpu.index in spec.gpus})
    return _report(spec.host.name, spec.recipe, min(known) * _MIB, facts.weights, ", ".join(names))


def _report(name: str, recipe: Recipe, memory: int, staged: Mapping[str, Weights | None], whose: str) -> HostReport:
    found = fit(recipe, memory, staged)
    if found is None:
        what = "the size of the weights is known neither from staged files nor from model.weights.source"
        remedy = "Stage them (beamdeploy stage) and name a host with -i."
        return HostReport(name, "not known", errors.DONE, what, {}, (Problem(what, remedy, name, level="warning"),))
    check = judged(found)
    exit = errors.BLOCKED if check.verdict == "block" else errors.DONE
    outcome = {"ok": "fits", "warn": "tight", "block": "blocked"}[check.verdict]
    problems = () if check.verdict == "ok" else (check.problem.at(f"{name}: fit"),)
    details = {"fit": {**asdict(found), "usable": found.usable, "needed": found.needed, "verdict": found.verdict}}
    return HostReport(name, outcome, exit, check.saw, details, problems, tuple(_table(found, recipe, whose)))


def _table(found: Fit, recipe: Recipe, whose: str) -> Iterator[PlanLine]:
    parts = {
        "weights": found.weights,
        "drafter": found.drafter,
        "KV cache": found.kv,
        "drafter's cache": found.drafter_kv,
        "margin": found.margin,
    }
    said = {
        "weights": "exact, by the headers" if found.exact else "estimated",
        "KV cache": f"{found.context} tokens x {found.sequences}",
        "margin": "stated: graphs, activations, CUDA itself",
    }
    yield PlanLine(" ", "memory", gib(found.memory), whose)
    yield PlanLine(" ", "usable", gib(found.usable), f"utilization {found.utilization:g}")
    for part, size in parts.items():
        if size or part in ("weights", "margin"):
            yield PlanLine(" ", f"{_SHADES[part]} {part}", gib(size), said.get(part, ""))
    left = found.usable - found.needed
    yield PlanLine(" " if left >= 0 else "!", "left", gib(left))
    for index in range(recipe.hardware.count):
        yield PlanLine(" ", f"GPU {index}", bar(parts, found.memory, found.usable))
    if found.most_context:
        yield PlanLine(" ", "largest context", f"{found.most_context} tokens", f"with {found.sequences} sequences")
        yield PlanLine(" ", "most sequences", str(found.most_sequences), f"of {found.context} tokens")
    for note in found.notes:
        yield PlanLine("~", "assumed", note)


def bar(parts: Mapping[str, int], memory: int, usable: int) -> str:
    """ "[####dd===~~......|...]": what is needed of a GPU's memory, "|" where the usable part ends."""
    filled, at = "", 0
    for part, size in parts.items():
        at += size
        filled += _SHADES[part] * (round(at / memory * _WIDTH) - len(filled))
    end = round(usable / memory * _WIDTH)
    padded = filled.ljust(_WIDTH, ".")
    return f"[{padded[:end]}|{padded[end:]}]"


def _told(name: str, result: HostReport | HostError) -> HostReport:
    return recap.failed(name, result) if isinstance(result, HostError) else result
