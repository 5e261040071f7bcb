"""Whether the staged weights of each host are whole and are those that are meant; nothing is changed there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from beamdeploy import errors
from beamdeploy.errors import BeamdeployError, HostError, Problem
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.lock import LockedFolder, wanted_folders
from beamdeploy.look import Question, look
from beamdeploy.look.facts import Facts
from beamdeploy.outcome import HostReport, Report
from beamdeploy.preflight import container_user, given_user, staged_folders
from beamdeploy.recipe import Recipe
from beamdeploy.remote import Session
from beamdeploy.render import Spec
from beamdeploy.run import Run, SayHost, told
from beamdeploy.weights import hub
from beamdeploy.weights.comparison import contents, deduplicated, described, verdict
from beamdeploy.weights.hashing import Deep, Hashes, hash_folders
from beamdeploy.weights.staging import Folder, human

_OF_DOCKER = ("BD231", "BD232", "BD233", "BD234", "BD235", "BD236")


@dataclass(frozen=True)
class Depth:
    """How thoroughly. `deep`: hash every file; `always`: also those that have not changed since they last were."""

    deep: bool = False
    always: bool = False
    processes: int | None = None


@dataclass(frozen=True)
class Reference:
    """What the folders are compared with beside themselves: the lock, or what the hub says now.

    `by`: folder → "the lock" or "the hub". `problems`: why the hub did not say.
    """

    folders: Mapping[str, LockedFolder] = field(default_factory=dict)
    by: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def verify(
    recipe: Recipe,
    specs: Iterable[Spec],
    depth: Depth,
    say: SayHost,
    *,
    accept_new: bool,
    forks: Forks = AS_USUAL,
    offline: bool,
) -> Report:
    """Verify the weights of all hosts. `offline`: the hub is not asked where the lock is silent."""
    by_name = {spec.host.name: spec for spec in specs}
    known = next(iter(by_name.values())).weights if by_name else {}
    reference = reference_of(recipe, known, ask_hub=depth.deep and not offline)
    with ExitStack() as stack:
        run = Run(stack, say, forks)

        def work(name: str) -> HostReport:
            session = run.opened(by_name[name].host, accept_new=accept_new)
            return verify_host(session, by_name[name], reference, depth, run.sayer(name))

        results = each(by_name, work, at_once=forks.hosts)
    reports = tuple(_reported(name, results[name]) for name in by_name)
    return Report("Verify", errors.worst(report.exit for report in reports), reports, reference.problems)


def reference_of(recipe: Recipe, locked: Mapping[str, LockedFolder], *, ask_hub: bool) -> Reference:
    """The lock's folders; of those that it lacks, the hub's if it is to be asked and answers."""
    folders, by = dict(locked), dict.fromkeys(locked, "the lock")
    problems: list[Problem] = []
    for folder in wanted_folders(recipe) if ask_hub else ():
        source = hub.parse_source(folder.source)
        if source is None or folder.path in folders:
            continue
        try:
            folders[folder.path] = hub.fetch_folder(source)
            by[folder.path] = "the hub"
        except BeamdeployError as error:
            problems.extend(replace(problem, level="warning") for problem in error.problems)
    return Reference(folders, by, tuple(problems))


def question(spec: Spec) -> Question:
    """What a verification looks at: the folders and nothing else."""
    return Question(model_dir=spec.host.model_dir, folders=spec.recipe.folders, docker=(), need_gpus=False)


def _question(spec: Spec) -> Question:
    """And as which user the image runs, if nothing else says it."""
    if given_user(spec) is not None:
        return question(spec)
    return replace(question(spec), docker=spec.host.docker_words, images=(spec.image.word, *spec.image.ids))


def verify_host(
    session: Session, spec: Spec, reference: Reference, depth: Depth, say: Callable[[str, str], None]
) -> HostReport:
    """Look, or look and hash, in one round trip; then compare."""
    if depth.deep:
        deep = hash_folders(
            session,
            spec.host,
            spec.recipe.folders,
            say,
            always=depth.always,
            processes=depth.processes,
            question=_question(spec),
        )
    else:
        say("look", "")
        deep = Deep({}, look(session, _question(spec)))
    return judged(spec, deep, reference, notes=told(session))


def judged(spec: Spec, deep: Deep, reference: Reference, notes: tuple[Problem, ...] = ()) -> HostReport:
    """The report on what was looked at and hashed. Pure."""
    name, facts = spec.host.name, deep.facts
    assert facts is not None  # it was asked for
    # docker is asked for the image's user alone: weights are whole without it
    blockers = (each for each in facts.blockers if each.rule not in _OF_DOCKER)
    found: list[Problem] = [*notes, *blockers, *_unkept(deep)]
    for folder in staged_folders(spec, container_user(spec, facts)):
        if folder.path in facts.weights:
            found += _folder(spec, folder, facts, deep.folders.get(folder.path), reference)
    problems = tuple(_placed(name, problem) for problem in found)
    blocked = any(problem.level == "error" for problem in problems)
    details = {"folders": {path: _details(path, facts, deep, reference) for path in spec.recipe.folders}}
    summary = "; ".join(_summary(path, facts, deep, reference) for path in spec.recipe.folders)
    if blocked:
        return HostReport(name, "blocked", errors.BLOCKED, summary, details, problems)
    return HostReport(name, "verified" if reference.folders else "ok", errors.DONE, summary, details, problems)


def _folder(
    spec: Spec, folder: Folder, facts: Facts, hashes: Hashes | None, reference: Reference
) -> tuple[Problem, ...]:
    wanted = reference.folders.get(folder.path)
    by = reference.by.get(folder.path, "")
    disk = facts.disks.get(str(spec.host.model_dir))
    looked = verdict(folder, facts.weights[folder.path], wanted if by == "the lock" else None, disk)
    if hashes is None:
        return looked
    if wanted is None:
        return (*looked, *_unread(folder, hashes), _nothing_compared(folder))
    return deduplicated(folder, looked, contents(folder, hashes, wanted, by))


def _unread(folder: Folder, hashes: Hashes) -> Iterable[Problem]:
    for name, said in sorted(hashes.unread.items()):
        what = f"{folder.host_path}/{name} could not be read: {said or 'its hash did not come'}"
        yield Problem(what, f"chmod a+r {folder.host_path}/{name}; look at the disk if it stays", rule="BD225")


def _nothing_compared(folder: Folder) -> Problem:
    return Problem(
        f"the hashes of {folder.host_path} were compared with nothing: there is no lock that holds it, and no hub "
        "that was asked and answered",
        "beamdeploy lock writes down what is right; on a host known to be good: beamdeploy lock RECIPE --from HOST",
        rule="BD227",
        level="warning",
    )


def _unkept(deep: Deep) -> tuple[Problem, ...]:
    if deep.unkept is None:
        return ()
    what = f"hashes cannot be remembered on the host: {deep.unkept}"
    return (Problem(what, "set state_dir in the inventory to a folder of this user", rule="BD228", level="warning"),)


def _placed(host: str, problem: Problem) -> Problem:
    return problem.at(problem.where if problem.where.startswith(f"{host}:") else f"{host}: weights")


def _details(path: str, facts: Facts, deep: Deep, reference: Reference) -> Mapping[str, object]:
    hashes, looked = deep.folders.get(path), facts.weights.get(path)
    sizes = [file.size or 0 for file in looked.files] if looked else []
    held: dict[str, object] = {
        "there": looked is not None,
        "files": len(hashes.files) if hashes else len(sizes),
        "bytes": hashes.size if hashes else sum(sizes),
        "compared_with": reference.by.get(path),
        "deep": hashes is not None,
    }
    if hashes is not None:
        held["remembered_bytes"] = hashes.remembered
        held["sha256"] = {name: one.sha256 for name, one in sorted(hashes.files.items())}
    return held


def _summary(path: str, facts: Facts, deep: Deep, reference: Reference) -> str:
    hashes, looked = deep.folders.get(path), facts.weights.get(path)
    if looked is None:
        return f"{path}: not there"
    by = f", compared with {reference.by[path]}" if path in reference.by else ", compared with nothing but its index"
    if hashes is not None:
        return f"{path}: {described(hashes)}, hashed{by if path in reference.by else ', compared with nothing'}"
    return f"{path}: {len(looked.files)} files, {human(sum(file.size or 0 for file in looked.files))}{by}"


def _reported(name: str, result: HostReport | HostError) -> HostReport:
    if not isinstance(result, HostError):
        return result
    outcome = "unreachable" if result.exit == errors.UNREACHABLE else "failed"
    return HostReport(name, outcome, result.exit, result.problems[0].what.splitlines()[0], {}, result.problems)
