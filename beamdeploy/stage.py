"""Bring the right weights onto every host, once: nothing has its name before every byte of it is verified."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from beamdeploy import errors
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.inventory import Host
from beamdeploy.lock import LockedFolder, wanted_folders
from beamdeploy.outcome import HostReport, Report
from beamdeploy.recipe import Recipe
from beamdeploy.remote import open_session
from beamdeploy.render import Spec
from beamdeploy.run import Run, SayHost, told
from beamdeploy.stage_folder import Filled, From, Manner, Staging, stage_folder
from beamdeploy.weights import hub
from beamdeploy.weights.hashing import hash_folders
from beamdeploy.weights.holders import HERE, Borrowed, Holders
from beamdeploy.weights.listing import is_read
from beamdeploy.weights.parts import Say
from beamdeploy.weights.staging import human


def stage(
    recipe: Recipe,
    specs: tuple[Spec, ...],
    source: From,
    manner: Manner,
    say: SayHost,
    *,
    accept_new: bool,
    forks: Forks = AS_USUAL,
) -> Report:
    """Stage every folder of the recipe on every host. InputError: nothing says what is right."""
    by_name = {spec.host.name: spec for spec in specs}
    with ExitStack() as stack:
        run = Run(stack, say, forks)
        here = stack.enter_context(open_session(Host(HERE, connection="local", model_dir=source.path)))
        shared = Staging(recipe, {}, source, manner, Holders([]), {}, {}, here)
        if source.host is not None:
            shared.sessions[source.host.name] = run.opened(source.host, accept_new=accept_new)
            shared.roots[source.host.name] = str(source.host.model_dir)
        if not source.hub:
            shared.holders.give(source.host.name if source.host else HERE)
        locked = specs[0].weights if specs else {}
        shared = _with_wanted(shared, locked, say)

        def work(name: str) -> HostReport:
            if name not in shared.sessions:
                shared.sessions[name] = run.opened(by_name[name].host, accept_new=accept_new)
            shared.roots[name] = str(by_name[name].host.model_dir)
            return stage_host(by_name[name], shared, run.sayer(name))

        targets = [name for name in by_name if source.host is None or name != source.host.name]
        results = each(targets, work, at_once=forks.hosts)
    reports = tuple(reported(name, results[name]) for name in targets)
    return Report("Stage", errors.worst(report.exit for report in reports), reports)


def _with_wanted(shared: Staging, locked: Mapping[str, LockedFolder], say: SayHost) -> Staging:
    """What each folder must hold: as locked, else as the hub says, else as the source has it."""
    wanted = dict(locked)
    for folder in wanted_folders(shared.recipe):
        at = hub.parse_source(folder.source)
        if folder.path in wanted:
            continue
        if not shared.source.hub:
            wanted[folder.path] = _as_source_has_it(shared, folder.path, say)
        elif at is not None:
            wanted[folder.path] = hub.fetch_folder(at, shared.manner.environ)
        else:
            what = f"nothing says where {folder.path} comes from: there is no lock, and its source is no hub"
            raise InputError([Problem(what, "Say --from HOST or --from PATH.", file=shared.recipe.file)])
    return replace(shared, wanted=wanted)


def _as_source_has_it(shared: Staging, path: str, say: SayHost) -> LockedFolder:
    source = shared.source.host
    session = shared.sessions[source.name] if source else shared.here
    deep = hash_folders(session, session.host, (path,), lambda phase, detail: say(session.host.name, phase, detail))
    hashes = deep.folders[path]
    if hashes is None or not hashes.files:
        what = f"{session.host.name} has no {posixpath.join(str(session.host.model_dir), path)}"
        raise HostError(Problem(what, "check --from", "stage"))
    return LockedFolder(None, None, {name: one for name, one in hashes.files.items() if is_read(name)})


def stage_host(spec: Spec, shared: Staging, say: Say) -> HostReport:
    """One host: each folder looked at, filled, verified, and only then given its name."""
    sender = Borrowed(shared.holders)
    done: tuple[str, ...] = ()
    try:
        filled = {path: stage_folder(spec, shared, sender, path, say) for path in shared.wanted}
        done = () if shared.source.hub else (spec.host.name,)
    finally:
        sender.give_back(*done)
    changed = any(one.moved is not None for one in filled.values())
    return HostReport(
        spec.host.name,
        "changed" if changed else "unchanged",
        errors.DONE,
        "; ".join(f"{path}: {_said(one)}" for path, one in filled.items()),
        {"folders": {path: _details(one) for path, one in filled.items()}},
        (*told(shared.sessions[spec.host.name]), *(each for one in filled.values() for each in one.problems)),
    )


def _said(one: Filled) -> str:
    return "complete and verified" if one.moved is None else f"staged, {human(one.moved)} moved"


def _details(one: Filled) -> Mapping[str, object]:
    return {"outcome": "unchanged" if one.moved is None else "changed", "moved_bytes": one.moved or 0}


def reported(name: str, result: HostReport | HostError) -> HostReport:
    """The host's report, or one of why there is none."""
    if not isinstance(result, HostError):
        return result
    outcome = {errors.UNREACHABLE: "unreachable", errors.BLOCKED: "blocked"}.get(result.exit, "failed")
    return HostReport(name, outcome, result.exit, result.problems[0].what.splitlines()[0], {}, result.problems)
