"""What is done and asked before anything is stopped: the pull, then what the image needs, takes and can use here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from beamdeploy.diagnose import docker_failure
from beamdeploy.errors import BLOCKED, HostError, Problem
from beamdeploy.look import Question, look
from beamdeploy.plan import Step
from beamdeploy.preflight import image_problems
from beamdeploy.probe import ask, cuda
from beamdeploy.ready import Say
from beamdeploy.remote import Session
from beamdeploy.render import Spec


def _pull(session: Session, spec: Spec, step: Step, say: Say) -> tuple[Problem, ...]:
    result = session.follow(step.words, lambda line: say("pull", f"\t{line}"), timeout=step.timeout)
    if not result.ok and not _arrived(session, spec):
        raise HostError(docker_failure(result, f"{spec.host.name}: pull"))
    _refuse(image_problems(spec, look(session, Question(images=(spec.image.word,), docker=spec.host.docker_words))))
    return ()


def _arrived(session: Session, spec: Spec) -> bool:
    """A lost status says nothing about the pull: look."""
    found = session.run((*spec.host.docker_words, "images", "--quiet", "--no-trunc", spec.image.word), timeout=60)
    return found.ok and bool(found.out.strip())


def _probe(session: Session, spec: Spec, step: Step, say: Say) -> tuple[Problem, ...]:
    return _refuse(tuple(each.at(f"{spec.host.name}: probe") for each in ask(session, spec, step.words).problems))


def _try_gpus(session: Session, spec: Spec, step: Step, say: Say) -> tuple[Problem, ...]:
    where = f"{spec.host.name}: try GPUs"
    result = session.run(step.words, timeout=step.timeout)
    if not result.ok and "executable file not found" in result.err:
        return (cuda.not_looked_at("the image has no shell").at(where),)
    if not result.ok:
        # what the daemon refuses here it would refuse of the server too
        raise HostError(docker_failure(result, where), exit=BLOCKED)
    return _refuse(tuple(each.at(where) for each in cuda.problems(spec, result.out)))


def _refuse(found: Sequence[Problem]) -> tuple[Problem, ...]:
    """The warnings among them. HostError (BLOCKED): there are errors."""
    errors = [problem for problem in found if problem.level == "error"]
    if errors:
        others = "".join(f"\n{each.what} {each.remedy}" for each in errors[1:])
        raise HostError(replace(errors[0], what=errors[0].what + others), exit=BLOCKED)
    return tuple(found)


BEFOREHAND: Mapping[str, Callable[[Session, Spec, Step, Say], tuple[Problem, ...]]] = {
    "pull": _pull,
    "probe": _probe,
    "try GPUs": _try_gpus,
}
