"""Remove what earlier deployments of ours left on a host: images that nothing needs, and containers kept aside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from beamdeploy import errors
from beamdeploy.diagnose import docker_failure
from beamdeploy.errors import HostError, Problem
from beamdeploy.fleet import Forks, each
from beamdeploy.hostlock import locked
from beamdeploy.image import ImageRef, parse_reference
from beamdeploy.inventory import Host
from beamdeploy.label import read_labels
from beamdeploy.look import Question, look
from beamdeploy.look.facts import Container, Facts, Image
from beamdeploy.outcome import HostReport, Report
from beamdeploy.plan import Plan, Step
from beamdeploy.preflight import KEPT, PREVIOUS, known_by, own
from beamdeploy.recap import failed, plan_data, plan_lines, shared
from beamdeploy.record import Entry, Staged, read, read_staged
from beamdeploy.remote import Session
from beamdeploy.run import Run, SayHost, now, started_by, told

GOOD_ONES = 3
"""So many of the last good deployments of each name can be returned to."""
_READY = "ready"


@dataclass(frozen=True)
class Looked:
    """A host, and what prune would do there. `names`: the deployments whose history says what is ours."""

    session: Session
    host: Host
    plan: Plan
    name: str | None
    names: tuple[str, ...]


@dataclass(frozen=True)
class Ours:
    """What the host has written down of all that we deployed and staged there."""

    entries: tuple[Entry, ...] = ()
    staged: tuple[Staged, ...] = ()


def prune(
    hosts: Iterable[Host],
    name: str | None,
    say: SayHost,
    confirm: Callable[[tuple[HostReport, ...]], bool],
    *,
    accept_new: bool,
    lock_wait: float,
    forks: Forks,
) -> Report:
    """Show what would go, ask, and remove it. `name`: what one deployment left; None: all of ours."""
    by_name = {host.name: host for host in hosts}
    with ExitStack() as stack:
        run = Run(stack, say, forks)
        looked = each(by_name, lambda host: _look(by_name[host], name, run, accept_new), at_once=forks.hosts)
        reports = {host: _planned(host, found) for host, found in looked.items()}
        todo = {host: found for host, found in looked.items() if isinstance(found, Looked) and found.plan.steps}
        if todo and confirm(tuple(reports.values())):
            results = each(todo, lambda host: _remove_all(todo[host], run, lock_wait), at_once=forks.hosts)
            reports |= {host: _done(todo[host], result) for host, result in results.items()}
        else:
            reports |= {host: _left(reports[host]) for host in todo}
    return shared(Report("Prune", errors.worst(each.exit for each in reports.values()), tuple(reports.values())))


def plan_prune(host: Host, name: str | None, facts: Facts, ours: Ours, used: Iterable[str]) -> Plan:
    """What can go. `used`: ids of the images that any container of the host has."""
    if facts.blockers:
        return Plan(host.name, "blocked", problems=tuple(problem.at(host.name) for problem in facts.blockers))
    docker = host.docker_words
    containers = [
        Step("remove", f"{each.name}: left over, {each.state}", (*docker, "rm", each.id), each.id)
        for each in _leftovers(name, facts.containers)
    ]
    gone = {step.container for step in containers}
    still = {each.image_id for each in facts.containers if each.id not in gone} | set(used)
    images = [
        Step("remove image", f"{word}: {why}", (*docker, "rmi", word))
        for word, why in _images(name, ours.entries, ours.staged, facts.images, still)
    ]
    steps = (*containers, *images)
    return Plan(host.name, "prune" if steps else "unchanged", steps)


def _leftovers(name: str | None, containers: Iterable[Container]) -> Iterable[Container]:
    """Ours, kept aside or kept for a look, that do not run, beside one of the same deployment that does."""
    containers = tuple(containers)
    for each_one in containers:
        deployed = read_labels(each_one.labels)
        if deployed is None or name not in (None, deployed.name) or each_one.running:
            continue
        heir = own(deployed.name, containers)
        kept = each_one.name == deployed.name + KEPT
        if kept or (each_one.name == deployed.name + PREVIOUS and heir is not None and heir.running):
            yield each_one


def _images(
    name: str | None, entries: tuple[Entry, ...], staged: tuple[Staged, ...], images: tuple[Image, ...], used: set[str]
) -> Iterable[tuple[str, str]]:
    """(reference, why) of what we deployed or staged, is there, and neither a container nor a way back needs."""
    refs = [ref for each_name in {entry.name for entry in entries} for ref in _needed(each_name, entries)]
    needed = {image.id for image in images if any(known_by(ref, image) for ref in refs)}
    needed |= {each_one.id for each_one in staged if each_one.at >= _last_good(each_one.name, entries)}
    why = f"no container has it, and none of the last {GOOD_ONES} good deployments"
    for word, found in _ours(name, entries, staged, images):
        if found.id not in used | needed:
            yield word, why


def _ours(
    name: str | None, entries: tuple[Entry, ...], staged: tuple[Staged, ...], images: tuple[Image, ...]
) -> tuple[tuple[str, Image], ...]:
    """Each name that an image has by our doing. Those by digest first: docker takes them away with the last tag."""
    refs = [ref for entry in entries if name in (None, entry.name) for ref in _refs(entry)]
    words = [(ref.word, () if ref.digest else ref.known_ids) for ref in refs]
    words += [(ref.staged(id), (id,)) for ref in refs for id in ref.known_ids]
    words += [(each_one.word, (each_one.id,)) for each_one in staged if name in (None, each_one.name)]
    found = {
        word: image
        for word, ids in sorted(words, key=lambda pair: "@" not in pair[0])
        for image in images
        if _is_named(word, image) and (image.id in ids or not ids)
    }
    return tuple(found.items())


def _last_good(name: str, entries: tuple[Entry, ...]) -> str:
    """When a deployment was good last: what was staged since then waits for its own. "": never."""
    return max((entry.at for entry in entries if entry.name == name and entry.outcome == _READY), default="")


def _needed(name: str, entries: tuple[Entry, ...]) -> tuple[ImageRef, ...]:
    """The images of the last good deployments that differ from each other."""
    good = [entry for entry in entries if entry.name == name and entry.outcome == _READY and entry.image]
    last = {(entry.digest, entry.image): entry for entry in good[::-1]}
    return tuple(ref for entry in list(last.values())[:GOOD_ONES] for ref in _refs(entry))


def _refs(entry: Entry) -> tuple[ImageRef, ...]:
    """The image of an entry, with the ids that it had on a host as far as the lock said; none: it had no image."""
    if entry.image.startswith("sha256:"):
        return (ImageRef(id=entry.image),)
    return (replace(parse_reference(entry.image), ids=entry.ids),) if entry.image else ()


def _is_named(word: str, image: Image) -> bool:
    """Whether docker finds the image by this name, which is no id."""
    return not word.startswith("sha256:") and known_by(parse_reference(word), image)


def _look(host: Host, name: str | None, run: Run, accept_new: bool) -> Looked:
    session = run.opened(host, accept_new=accept_new)
    run.say(host.name, "look", "")
    plan, names = _plan(session, host, name)
    return Looked(session, host, plan, name, names)


def _plan(session: Session, host: Host, name: str | None) -> tuple[Plan, tuple[str, ...]]:
    ours = Ours(read(session, None), read_staged(session, None))
    refs = [ref for entry in ours.entries for ref in _refs(entry)]
    words = dict.fromkeys(word for ref in refs for word in (ref.word, *ref.known_ids))
    words |= dict.fromkeys(each_one.word for each_one in ours.staged)
    facts = look(session, Question(images=tuple(words), docker=host.docker_words, need_gpus=False))
    names = {entry.name for entry in ours.entries} | {each_one.name for each_one in ours.staged}
    chosen = tuple(sorted(each_name for each_name in names if name in (None, each_name)))
    return plan_prune(host, name, facts, ours, _used(session, host)), chosen


def _used(session: Session, host: Host) -> tuple[str, ...]:
    """The image of every container of the host, whoever made it. HostError: docker did not say."""
    ids = _asked(session, host, "ps", "--all", "--quiet", "--no-trunc")
    return _asked(session, host, "inspect", "--format", "{{.Image}}", *ids) if ids else ()


def _asked(session: Session, host: Host, *words: str) -> tuple[str, ...]:
    result = session.run((*host.docker_words, *words), timeout=60)
    if not result.ok:
        raise HostError(docker_failure(result, f"{host.name}: look"))
    return tuple(result.out.split())


def _remove_all(found: Looked, run: Run, lock_wait: float) -> None:
    """Under the lock of every deployment concerned, and only if it is still as it was shown."""
    say = run.sayer(found.host.name)
    with ExitStack() as locks:
        held = []
        for name in found.names:
            owner = f"{started_by()} since {now()}: prune"
            held.append(locks.enter_context(locked(found.session, name, owner, wait=lock_wait, say=say)))
        again, _ = _plan(found.session, found.host, found.name)
        if again.steps != found.plan.steps:
            what = "the host has changed since the plan was made"
            problem = Problem(what, "Nothing was done here: prune again.", f"{found.host.name}: plan")
            raise HostError(problem, exit=errors.BLOCKED)
        for step in found.plan.steps:
            say(step.kind, step.reason)
            for lock in held:
                lock.check(found.session, say)
            result = found.session.run(step.words, timeout=step.timeout)
            if not result.ok:
                raise HostError(docker_failure(result, f"{found.host.name}: {step.kind}"))


def _planned(host: str, found: Looked | HostError) -> HostReport:
    if isinstance(found, HostError):
        return failed(host, found)
    plan, notes = found.plan, told(found.session)
    details = {"plan": plan_data(plan)}
    if plan.outcome == "blocked":
        problems = (*notes, *plan.problems)
        return HostReport(host, "blocked", errors.BLOCKED, "nothing was changed", details, problems)
    if not plan.steps:
        return HostReport(host, "unchanged", errors.DONE, "nothing to remove", details, notes)
    return HostReport(host, plan.outcome, errors.DONE, _counted(plan.steps), details, notes, plan_lines(plan))


def _counted(steps: tuple[Step, ...]) -> str:
    images = sum(step.kind == "remove image" for step in steps)
    return f"{images} images, {len(steps) - images} containers"


def _done(found: Looked, result: HostError | None) -> HostReport:
    if isinstance(result, HostError):
        return failed(found.host.name, result, found.plan)
    details = {"plan": plan_data(found.plan)}
    return HostReport(found.host.name, "changed", errors.DONE, f"removed {_counted(found.plan.steps)}", details)


def _left(report: HostReport) -> HostReport:
    details: Mapping[str, object] = report.details
    return HostReport(report.name, "not attempted", report.exit, "not confirmed", details, report.problems)
