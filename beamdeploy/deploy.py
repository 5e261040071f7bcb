"""Plan and apply specs on their hosts: look at all, plan all, then act in waves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from beamdeploy import errors, recap, secrets
from beamdeploy.engines import facts_of
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.fleet import each, waves
from beamdeploy.inventory import Host
from beamdeploy.lock import Lock
from beamdeploy.outcome import HostReport, Report
from beamdeploy.ranks import placed
from beamdeploy.recipe import Recipe
from beamdeploy.render import Spec, render
from beamdeploy.run import Run, SayHost
from beamdeploy.survey import Options, Planned, Seen, deployments, look_at_all, only_look_at_all, together

if TYPE_CHECKING:
    from beamdeploy.steps import Acted

Confirm = Callable[[tuple[HostReport, ...]], bool]


def specs_of(
    recipe: Recipe,
    hosts: Iterable[Host],
    lock: Lock | None,
    templates: str | None,
    *,
    to_apply: bool = False,
    unpinned: bool = True,
) -> tuple[Spec, ...]:
    """The spec of each host. InputError: all that is wrong on all hosts, and `to_apply` what is `lacking`."""
    hosts = tuple(hosts)
    specs: list[Spec] = []
    ranks, misplaced = placed(recipe, hosts, facts_of(recipe.source["engine"]))
    problems: list[Problem] = list(misplaced)
    for host in hosts if not misplaced else ():
        try:
            specs.append(render(recipe, host, lock, templates=templates, rank=ranks.get(host.name)))
        except InputError as error:
            problems.extend(problem for problem in error.problems if problem not in problems)
    if to_apply:
        problems.extend(lacking(recipe, specs, unpinned=unpinned))
    if problems:
        raise InputError(problems)
    return tuple(specs)


def lacking(recipe: Recipe, specs: Sequence[Spec], *, unpinned: bool) -> tuple[Problem, ...]:
    """What an apply needs and a look does not: secrets that come from here, an image by digest unless `unpinned`."""
    floating = specs and not specs[0].image.pinned and not recipe.unpinned and not unpinned
    return (*_secret_problems(recipe), *((_unpinned(recipe),) if floating else ()))


def plan(specs: tuple[Spec, ...], options: Options, say: SayHost) -> Report:
    """What apply would do, by a look that cannot change anything.

    Exit CHANGES_PENDING is the caller's to ask for: see `pending`.
    """
    with ExitStack() as stack:
        looked = together(only_look_at_all(specs, options, Run(stack, say, options.forks)), specs)
        reports = tuple(_planned(name, found, options) for name, found in looked.items())
    return recap.shared(Report("Plan", errors.worst(report.exit for report in reports), reports))


def pending(report: Report) -> bool:
    """Whether any host of a plan would be changed."""
    return any(map(recap.has_steps, report.hosts))


def drift(specs: tuple[Spec, ...], options: Options, ignore: Iterable[str], say: SayHost) -> Report:
    """What is not as it should be: as `plan` says it, and what another hand changed. CHANGES_PENDING: something is.

    `ignore`: settings that may differ, as patterns ("docker.*").
    """
    patterns = tuple(ignore)
    with ExitStack() as stack:
        looked = only_look_at_all(specs, options, Run(stack, say, options.forks))
    reports = tuple(
        recap.failed(name, found)
        if isinstance(found, HostError)
        else recap.drifted(found.spec, *recap.without(found.plan, patterns))
        for name, found in looked.items()
    )
    return recap.shared(Report("Drift", errors.worst(report.exit for report in reports), reports))


def apply(specs: tuple[Spec, ...], options: Options, say: SayHost, confirm: Confirm) -> Report:
    """Bring the hosts to their specs. `confirm` sees the plans before anything changes and may refuse."""
    with ExitStack() as stack:
        run = Run(stack, say, options.forks)
        looked = together(look_at_all(specs, options, run), specs)
        reports = {name: _planned(name, found, options) for name, found in looked.items()}
        able = _able(looked)
        blocked = any(report.outcome == "blocked" for report in reports.values())
        if blocked and not options.skip_blocked:
            reports |= _left(able, reports, "another host is blocked")
        elif confirm(tuple(reports.values())):
            reports |= _act_in_waves(
                {name: each for name, each in able.items() if each.plan.steps}, reports, options, run
            )
        else:
            reports |= _left(able, reports, "not confirmed")
    # the plans were shown before anything was done
    ended = tuple(replace(report, plan=None) for report in reports.values())
    return recap.shared(Report(options.action.capitalize(), errors.worst(report.exit for report in ended), ended))


def _secret_problems(recipe: Recipe) -> tuple[Problem, ...]:
    """What is wrong with the secrets that come from here, before any host is asked."""
    try:
        secrets.given(recipe, os.environ)
    except InputError as error:
        return error.problems
    return ()


def _unpinned(recipe: Recipe) -> Problem:
    return Problem(
        f"image.reference {recipe.image.word} has no digest, and there is no lock",
        "Run `beamdeploy lock`, give name@sha256:…, say why in image.unpinned, or apply with --unpinned.",
        file=recipe.file,
        rule="BD051",
    )


def _planned(name: str, found: Planned | Seen | HostError, options: Options) -> HostReport:
    if isinstance(found, HostError):
        return recap.failed(name, found)
    return recap.planned(found.spec, found.plan, diff=options.diff)


def _able(looked: Mapping[str, Planned | HostError]) -> dict[str, Planned]:
    return {
        name: found for name, found in looked.items() if isinstance(found, Planned) and found.plan.outcome != "blocked"
    }


def _left(able: Iterable[str], reports: Mapping[str, HostReport], why: str) -> dict[str, HostReport]:
    return {name: recap.not_attempted(reports[name], why) for name in able}


def _act_in_waves(
    able: Mapping[str, Planned], reports: Mapping[str, HostReport], options: Options, run: Run
) -> dict[str, HostReport]:
    """The reports of all waves; those after too many failures, or after Ctrl-C, are not attempted.

    Hosts that serve together are one in a wave.
    """
    ended: dict[str, HostReport] = {}
    sets = {hosts[0]: hosts for hosts in _sets(able)}
    for wave in waves(tuple(sets), options.serial, canary=options.canary):
        failures = sum(any(ended[host].exit != errors.DONE for host in sets[name]) for name in sets if name in ended)
        interrupted = any(report.exit == errors.INTERRUPTED for report in ended.values())
        hosts = tuple(host for name in wave for host in sets[name])
        if failures > options.max_fail or interrupted:
            ended |= _left(hosts, reports, "an earlier wave failed")
        else:
            ended |= _act_on_all({name: sets[name] for name in wave}, able, options, run)
    return ended


def _sets(able: Mapping[str, Planned]) -> Iterable[tuple[str, ...]]:
    """The hosts that have something to do, those of one deployment together."""
    specs = [planned.spec for planned in able.values()]
    return (tuple(host for host in hosts if host in able) for hosts in deployments(specs))


def _act_on_all(
    wave: Mapping[str, tuple[str, ...]], able: Mapping[str, Planned], options: Options, run: Run
) -> dict[str, HostReport]:
    # Imported when something is to be done: what starts, follows and asks a server costs half of a no-op's time.
    from beamdeploy.execute import execute, report
    from beamdeploy.together import execute_together

    def work(name: str) -> Mapping[str, Acted | HostError]:
        if able[name].spec.rank is None:
            return {name: execute(able[name], options, run)}
        return execute_together({host: able[host] for host in wave[name]}, options, run)

    hosts = {host: able[host] for name in wave for host in wave[name]}
    try:
        results = each(wave, work, at_once=options.forks.hosts)
    except KeyboardInterrupt:
        return {name: recap.interrupted(planned.plan, run.phases.get(name, "")) for name, planned in hosts.items()}
    ended: dict[str, Acted | HostError] = {}
    for name, result in results.items():
        ended |= {name: result} if isinstance(result, HostError) else result
    return {host: report(planned, ended[host]) for host, planned in hosts.items()}
