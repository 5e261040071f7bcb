"""Test recipes end to end without a server: each on a sandbox of its own, which is taken down whatever happens."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from beamdeploy import contract, deploy, takedown
from beamdeploy.errors import DONE, FAILED, BeamdeployError, HostError, InputError, Problem
from beamdeploy.fleet import each
from beamdeploy.inventory import Host, load_inventory
from beamdeploy.kept import Kept
from beamdeploy.lock import Lock
from beamdeploy.outcome import HostReport, Report
from beamdeploy.recipe import Recipe
from beamdeploy.run import SayHost
from beamdeploy.sandbox import lifetime
from beamdeploy.sandbox.profiles import profile_for, profile_named, profiles
from beamdeploy.smoke.check import shortened
from beamdeploy.status import status
from beamdeploy.survey import Options

PASS, FAIL, SKIP = "pass", "fail", "skip"
STAND_INS = ("tokenspeed", "vllm", "sglang")
"""The engines that a sandbox's image can stand for."""
PATIENCE = 120
"""Seconds that a start may take: the stand-in engine loads in less than one, whatever a recipe allows the real one."""


@dataclass(frozen=True)
class Trial:
    """A recipe to be tested. `lock`: of its image alone, since the weights of a sandbox are no real ones."""

    recipe: Recipe
    lock: Lock | None
    profile: str
    variant: str = ""

    @property
    def name(self) -> str:
        """As the report names it."""
        return f"{self.recipe.file} --variant {self.variant}" if self.variant else self.recipe.file


@dataclass(frozen=True)
class Shown:
    """One thing that was asked, and what came of it."""

    request: str
    answer: str


@dataclass(frozen=True)
class Step:
    """What came of one step: `verdict` is pass, fail or skip. `why`: what was seen, or what is wrong."""

    check: str
    verdict: str
    why: str
    remedy: str = ""
    seconds: float = 0.0
    evidence: tuple[Shown, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A trial and its sandbox as the host that it is."""

    trial: Trial
    host: Host
    templates: str | None
    say: SayHost


class Sandboxes:
    """The sandboxes of a run. Once closed none is left, and no thread that still works can start one."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._folders: set[Path] = set()
        self._closed = False

    def up(self, name: str, trial: Trial) -> lifetime.Running:
        """A fresh sandbox. HostError: it does not start, or the run is over."""
        folder = self._home / name
        with self._lock:
            if self._closed:
                raise HostError(Problem("the run is over", where=name))
            self._folders.add(folder)
            return lifetime.up(trial.profile, folder, (), recipes=(trial.recipe,))

    def down(self, name: str) -> None:
        """End it and all that runs in it; fine where there is none."""
        lifetime.down(self._home / name)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._closed = True
            for folder in self._folders:
                lifetime.down(folder)


def trials(wanted: Iterable[tuple[Recipe, Lock | None, str]], profile: str | None) -> tuple[Trial, ...]:
    """Each recipe (of a variant) with the profile that it asks for, or that one. InputError: what no sandbox is."""
    wanted = tuple(wanted)
    named = profile_named(profile).name if profile else None
    chosen = [named or _fitting(recipe) for recipe, *_ in wanted]
    lacking = [_no_profile(recipe) for (recipe, *_), name in zip(wanted, chosen, strict=True) if name is None]
    lacking += [_no_stand_in(recipe) for recipe, *_ in wanted if recipe.engine.name not in STAND_INS]
    lacking += [_several(recipe) for recipe, *_ in wanted if recipe.engine.nodes > 1]
    if lacking:
        raise InputError(lacking)
    return tuple(
        Trial(_hurried(recipe), replace(lock, weights={}) if lock else None, cast(str, name), variant)
        for (recipe, lock, variant), name in zip(wanted, chosen, strict=True)
    )


def run_all(tried: Iterable[Trial], templates: str | None, say: SayHost, *, jobs: int = 1) -> Report:
    """Test them, so many at once. No sandbox is left, also on Ctrl-C."""
    by_name = {trial.name: trial for trial in tried}
    folders = {name: f"test-{os.getpid()}-{index}" for index, name in enumerate(by_name)}
    sandboxes = Sandboxes(lifetime.home(os.environ))

    def work(name: str) -> tuple[Step, ...]:
        say(name, "sandbox", f"an emulated {by_name[name].profile} server")
        try:
            started = sandboxes.up(folders[name], by_name[name])
            return _tested(_stage(by_name[name], started, templates, say))
        finally:
            sandboxes.down(folders[name])

    try:
        results = each(by_name, work, at_once=jobs)
    finally:
        with _undisturbed():
            sandboxes.close()
    reports = tuple(_report(by_name[name], results[name]) for name in by_name)
    failed = any(report.exit for report in reports)
    return Report("Test", FAILED if failed else DONE, reports)


def _fitting(recipe: Recipe) -> str | None:
    found = profile_for(recipe.hardware.gpu, recipe.hardware.count)
    return found.name if found else None


def _no_profile(recipe: Recipe) -> Problem:
    return Problem(
        f"no sandbox profile is a server with {recipe.hardware.count} {recipe.hardware.gpu} GPUs",
        f"Name one with --profile: {', '.join(profiles())}.",
        file=recipe.file,
    )


def _no_stand_in(recipe: Recipe) -> Problem:
    what = f"the sandbox has no stand-in for the engine {recipe.engine.name}"
    return Problem(what, f"It has one for {', '.join(STAND_INS)}; `beamdeploy validate` checks any.", file=recipe.file)


def _several(recipe: Recipe) -> Problem:
    what = f"engine.nodes is {recipe.engine.nodes}, and a sandbox is one server"
    return Problem(what, "`beamdeploy validate` checks it; the ranks meet on real hosts.", file=recipe.file)


def _hurried(recipe: Recipe) -> Recipe:
    limits = recipe.ready
    hurried = replace(limits, timeout=min(limits.timeout, PATIENCE), stall=min(limits.stall, PATIENCE))
    return replace(recipe, ready=hurried)


def _stage(trial: Trial, started: lifetime.Running, templates: str | None, say: SayHost) -> Stage:
    host = load_inventory(str(started.inventory), environ={}).hosts[0]
    secret = started.folder / "stand-in-secret"
    secret.write_text("stand-in\n", encoding="utf-8")
    secrets = {name: {"file": str(secret)} for name in trial.recipe.container.secrets}
    recipe = replace(trial.recipe, container=replace(trial.recipe.container, secrets=secrets))
    return Stage(replace(trial, recipe=recipe), host, templates, say)


def _tested(stage: Stage) -> tuple[Step, ...]:
    """All steps in their order; after one that failed the others are skipped."""
    done: list[Step] = []
    failed = ""
    for name, step in STEPS.items():
        if failed:
            done.append(Step(name, SKIP, f"{failed} failed"))
            continue
        began = time.monotonic()
        made = _made(name, step, replace(stage, say=_sayer(stage, name)))
        done.append(replace(made, seconds=round(time.monotonic() - began, 3)))
        failed = name if made.verdict == FAIL else ""
    return tuple(done)


def _sayer(stage: Stage, step: str) -> SayHost:
    """The progress of a recipe: its step, and what goes on there in a word."""
    return lambda host, phase, detail: stage.say(stage.trial.name, step, phase)


def _made(name: str, step: Callable[[str, Stage], Step], stage: Stage) -> Step:
    try:
        return step(name, stage)
    except BeamdeployError as error:
        return Step(name, FAIL, "; ".join(each.what for each in error.problems), error.problems[0].remedy)


def _apply(name: str, stage: Stage) -> Step:
    return _judged(name, _applied(stage, lambda plans: True))


def _apply_again(name: str, stage: Stage) -> Step:
    """What would change is not done: that it would is the failure."""
    planned: list[str] = []

    def confirm(plans: tuple[HostReport, ...]) -> bool:
        planned.extend(shortened(f"{line.what}: {line.reason}", 160) for plan in plans for line in plan.plan or ())
        return not planned

    made = _judged(name, _applied(stage, confirm))
    if planned:
        remedy = "What is rendered must be the same each time: look for a value that changes in a template."
        return replace(made, verdict=FAIL, why=f"it would change something: {'; '.join(planned)}", remedy=remedy)
    return made


def _applied(stage: Stage, confirm: deploy.Confirm) -> HostReport:
    trial = stage.trial
    specs = deploy.specs_of(trial.recipe, (stage.host,), trial.lock, stage.templates, to_apply=True)
    return deploy.apply(specs, Options(), stage.say, confirm).hosts[0]


def _smoke(name: str, stage: Stage) -> Step:
    report = contract.ask_all((stage.host,), stage.trial.recipe, ("all",), stage.say, accept_new=False).hosts[0]
    checks = cast(Iterable[Mapping[str, Any]], report.details.get("checks", ()))
    shown = tuple(Shown(each["check"], f"{each['verdict']}: {each['why']}") for each in checks)
    return replace(_judged(name, report), evidence=shown)


def _destroy(name: str, stage: Stage) -> Step:
    deployment = stage.trial.recipe.name
    report = takedown.destroy((stage.host,), deployment, stage.say, lambda *_: True, accept_new=False).hosts[0]
    made = _judged(name, report)
    if made.verdict == FAIL:
        return made
    with Kept((stage.host,), accept_new=False) as kept:
        left = status(kept, deployment, {}).hosts[0]
    return made if left.outcome == "nothing" else replace(made, verdict=FAIL, why=f"it is still there: {left.summary}")


def _judged(name: str, report: HostReport) -> Step:
    wrong = [problem for problem in report.problems if problem.level == "error"]
    shown = (Shown(f"beamdeploy {name.split()[0]}", f"{report.outcome} ({report.exit}): {report.summary}"),)
    if report.exit == DONE:
        return Step(name, PASS, report.summary, evidence=shown)
    why = "; ".join(problem.what for problem in wrong) or report.summary
    return Step(name, FAIL, why, wrong[0].remedy if wrong else "", evidence=shown)


STEPS: Mapping[str, Callable[[str, Stage], Step]] = {
    "apply": _apply,
    "apply again": _apply_again,
    "smoke": _smoke,
    "destroy": _destroy,
}


def _report(trial: Trial, result: tuple[Step, ...] | HostError) -> HostReport:
    if isinstance(result, HostError):
        first = result.problems[0]
        result = (Step("sandbox", FAIL, first.what, first.remedy), *(Step(name, SKIP, "no sandbox") for name in STEPS))
    wrong = tuple(
        Problem(f"{step.check}: {step.why}", step.remedy, file=trial.recipe.file)
        for step in result
        if step.verdict == FAIL
    )
    passed = sum(step.verdict == PASS for step in result)
    summary = f"{passed} of {len(result)} steps on an emulated {trial.profile} server; no GPU was used"
    details = {"profile": trial.profile, "checks": [asdict(step) for step in result]}
    return HostReport(trial.name, "failed" if wrong else "ok", FAILED if wrong else DONE, summary, details, wrong)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C does not keep sandboxes alive. Signals can be had in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
