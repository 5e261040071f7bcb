"""Bring the recipe's image onto hosts: from its registry, from a host that has it, or from this machine's docker."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from beamdeploy import errors
from beamdeploy.errors import HostError, InputError, Problem
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.hostlock import locked
from beamdeploy.image import ImageRef
from beamdeploy.inventory import Host
from beamdeploy.look import Question, look
from beamdeploy.look.facts import Facts, Image
from beamdeploy.outcome import HostReport, Report
from beamdeploy.plan import PULL_TIMEOUT
from beamdeploy.preflight import image_there
from beamdeploy.record import Staged, note_staged
from beamdeploy.remote import Session, open_session
from beamdeploy.render import Spec
from beamdeploy.run import Run, SayHost, now, started_by, told
from beamdeploy.stage import reported
from beamdeploy.stage_folder import From, Manner, through_here
from beamdeploy.weights.holders import HERE, Borrowed, Holders
from beamdeploy.weights.image import from_here, from_host
from beamdeploy.weights.parts import Say
from beamdeploy.weights.staging import human

_SIZE = "{{.Size}}"


@dataclass(frozen=True)
class _Shared:
    """What all hosts of a run share. `image`: the id by which the source knows it; `size`: its bytes, about."""

    source: From
    manner: Manner
    holders: Holders
    sessions: dict[str, Session]
    image: str = ""
    size: int = 0


def stage_image(
    specs: tuple[Spec, ...], source: From, manner: Manner, say: SayHost, *, accept_new: bool, forks: Forks = AS_USUAL
) -> Report:
    """Bring it to every host that lacks it. InputError: nothing would prove that what arrives is the right one."""
    by_name = {spec.host.name: spec for spec in specs}
    if specs and not source.hub:
        _require_proof(specs[0])
    with ExitStack() as stack:
        run = Run(stack, say, forks)
        sessions: dict[str, Session] = {}
        if not source.hub:
            host = source.host or Host(HERE, connection="local")
            opened = run.opened(host, accept_new=accept_new) if source.host else stack.enter_context(open_session(host))
            sessions[host.name] = opened
            image, size = _of_source(opened, specs[0], run.sayer(host.name))
            shared = _Shared(source, manner, Holders([host.name]), sessions, image.id, size)
        else:
            shared = _Shared(source, manner, Holders([]), sessions)

        def work(name: str) -> HostReport:
            sessions[name] = run.opened(by_name[name].host, accept_new=accept_new)
            return _on_host(by_name[name], shared, run.sayer(name))

        targets = [name for name in by_name if source.host is None or name != source.host.name]
        results = each(targets, work, at_once=forks.hosts)
    reports = tuple(reported(name, results[name]) for name in targets)
    return Report("Stage", errors.worst(report.exit for report in reports), reports)


def _require_proof(spec: Spec) -> None:
    ref = spec.image
    if not ref.known_ids:
        what = f"nothing says which image id {ref.word} has on a host, so that what arrives could not be proven"
        remedy = f"Lock it: beamdeploy lock {spec.recipe.file}; an image of no registry is named by image.id."
        raise InputError([Problem(what, remedy, file=spec.recipe.file)])


def _of_source(session: Session, spec: Spec, say: Say) -> tuple[Image, int]:
    """The image as the source has it, and its size. HostError: it has not, or another."""
    say("look", "")
    where, docker = f"{session.host.name}: image", session.host.docker_words
    image = image_there(spec, _looked(session, spec.image))
    if image is None:
        what = f"{session.host.name} does not have {spec.image.word}"
        raise HostError(Problem(what, f"{' '.join(docker)} pull {spec.image.word} there, or name another", where))
    if image.id not in spec.image.known_ids:
        what = f"{session.host.name} has {spec.image.word} as {image.id}, which the lock does not know ({image.arch})"
        remedy = "lock the image again (--upgrade=image), or name a host of the same kind"
        raise HostError(Problem(what, remedy, where))
    size = session.run((*docker, "image", "inspect", "--format", _SIZE, image.id), timeout=60)
    return image, int(size.out) if size.ok and size.out.strip().isdigit() else 0


def _looked(session: Session, ref: ImageRef) -> Facts:
    """The images that `ref` may name. HostError: docker cannot be asked."""
    asked = Question(images=(ref.word, *ref.ids), docker=session.host.docker_words, need_gpus=False)
    facts = look(session, asked)
    if facts.blockers:
        raise HostError(facts.blockers[0].at(f"{session.host.name}: image"), exit=errors.BLOCKED)
    return facts


def _on_host(spec: Spec, shared: _Shared, say: Say) -> HostReport:
    session, name = shared.sessions[spec.host.name], spec.host.name
    sender = Borrowed(shared.holders)
    has: tuple[str, ...] = ()
    owner = f"{started_by()} since {now()}: stage --image {spec.recipe.file}"
    try:
        with locked(session, _lock_name(spec.image), owner, wait=shared.manner.lock_wait, say=say):
            say("look", "")
            facts = _looked(session, spec.image)
            there = image_there(spec, facts)
            notes = () if there else _brought(spec, session, shared, sender, facts, say)
            has = () if shared.source.hub else (name,)
    finally:
        sender.give_back(*has)
    outcome = "unchanged" if there else "changed"
    summary = f"{spec.image.word} {'is there' if there else 'was brought there'}"
    return HostReport(name, outcome, errors.DONE, summary, {"image": spec.image.word}, (*told(session), *notes))


def _lock_name(ref: ImageRef) -> str:
    return f"image-{(ref.id or ref.digest or ref.word).rpartition(':')[2][:12]}"


def _brought(
    spec: Spec, session: Session, shared: _Shared, sender: Borrowed, facts: Facts, say: Say
) -> tuple[Problem, ...]:
    """Pulled or loaded, and looked for by what proves it; what there is to tell of the way."""
    docker = session.host.docker_words
    if shared.source.hub:
        words = (*docker, "pull", spec.image.word)
        pulled = session.follow(words, lambda line: say("pull", line), timeout=PULL_TIMEOUT)
        image = image_there(spec, _looked(session, spec.image))
        if image is None:
            raise HostError(_not_pulled(spec, pulled.out))
        return note_staged(session, Staged(spec.recipe.name, spec.image.word, image.id, now()))
    _check_room(spec, facts, shared.size)
    say("stage", "waiting for one that has it")
    holder = sender.take()
    say("stage", f"from {holder}")
    if holder == HERE:
        from_here(shared.sessions[HERE], session, shared.image, shared.size, say)
        why = None
    else:
        why = from_host(session, shared.sessions[holder], shared.image, shared.size, say)
    notes = _named(spec, session)
    return (through_here(session, "the image", why), *notes) if why else notes


def _named(spec: Spec, session: Session) -> tuple[Problem, ...]:
    """Proven by its id, and given a tag: docker's own pruning removes images without one. Noted, so that ours does."""
    image = image_there(spec, _looked(session, spec.image))
    if image is None:
        what = f"docker said that it loaded the image, and none of the ids of {spec.image.word} is there"
        raise HostError(Problem(what, "verify the source; lock the image again", f"{spec.host.name}: image"))
    tag = spec.image.staged(image.id)
    tagged = session.run((*session.host.docker_words, "tag", image.id, tag), timeout=60)
    if not tagged.ok:
        raise HostError(Problem(f"docker tag: {tagged.err.strip()[-200:]}", "run the same again", spec.host.name))
    return note_staged(session, Staged(spec.recipe.name, tag, image.id, now()))


def _check_room(spec: Spec, facts: Facts, size: int) -> None:
    """HostError (BLOCKED): docker unpacks what it loads beside what it keeps of it, so that twice the size is taken."""
    disk = facts.disks.get(facts.docker.root_dir) if facts.docker else None
    if disk is not None and disk.free_bytes < 2 * size:
        what = f"loading the image takes {human(2 * size)} on {disk.path}, which has {human(disk.free_bytes)} free"
        raise HostError(
            Problem(what, "free room there (docker system df)", f"{spec.host.name}: image"), exit=errors.BLOCKED
        )


def _not_pulled(spec: Spec, said: str) -> Problem:
    what = f"{spec.image.word} could not be pulled: {' / '.join(said.splitlines()[-2:])}"
    remedy = "bring it from a host that has it (--from HOST), or from this machine's docker (--from here)"
    return Problem(what, remedy, f"{spec.host.name}: image")
