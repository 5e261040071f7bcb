"""The steps of a plan, each as it is carried out on its host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from beamdeploy import secrets as secret_files
from beamdeploy.beforehand import BEFOREHAND
from beamdeploy.diagnose import docker_failure
from beamdeploy.errors import HostError, Problem
from beamdeploy.gpu_memory import wait_for_gpus
from beamdeploy.hooks import facts_of, run_hook
from beamdeploy.inventory import Host
from beamdeploy.label import DIGEST
from beamdeploy.lasting import lasting
from beamdeploy.plan import Step
from beamdeploy.ready import AS_USUAL, Proof, Say, Waiting, settle, still_runs
from beamdeploy.remote import Result, Session
from beamdeploy.render import Spec
from beamdeploy.smoke import Outcome
from beamdeploy.smoke.after import prove

_REMOVED_WITHIN = 60
_KILLED = 137


@dataclass(frozen=True)
class Manner:
    """How a plan is carried out. `secrets`: the lines of the env file that come from the controller.

    `keep_failed`: a new server that failed is left on the host, stopped, for a look. `gpus_free_within`: seconds.
    `strangers`: index of a GPU → MiB that others hold there, which is not waited for. `check_lock`: called before each
    deed; HostError: it is no longer ours to do.
    """

    secrets: str = field(default="", repr=False)
    keep_failed: bool = False
    gpus_free_within: float = 120
    strangers: Mapping[int, int] = field(default_factory=dict)
    waiting: Waiting = AS_USUAL
    check_lock: Callable[[], None] = lambda: None


USUALLY = Manner()


@dataclass(frozen=True)
class Acted:
    """How far a plan got. `container`: the id that serves or loads now; `warnings`: worth a word, and no failure.

    `took`: kind of step → seconds.
    """

    container: str | None = None
    proof: Proof | None = None
    checks: tuple[Outcome, ...] = ()
    warnings: tuple[Problem, ...] = ()
    old_stopped: bool = False
    took: Mapping[str, float] = field(default_factory=dict)
    manner: Manner = USUALLY


def carried(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    """One step. HostError: it failed, and nothing was restored."""
    say(step.kind, step.reason)
    done.manner.check_lock()
    began = time.monotonic()
    done = DEEDS[step.kind](session, spec, step, done, say)
    return replace(done, took={**done.took, step.kind: round(time.monotonic() - began, 1)})


def _beforehand(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    return replace(done, warnings=(*done.warnings, *BEFOREHAND[step.kind](session, spec, step, say)))


def _stop(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    run_hook(spec.host, "before_stop", facts_of(spec, step.container))
    return replace(done, old_stopped=True, warnings=(*done.warnings, *stop(session, spec.host, step)))


def stop(session: Session, host: Host, step: Step) -> tuple[Problem, ...]:
    """Stop with grace; a warning if it had to be killed. HostError: it could not be stopped."""
    result = session.run(step.words, timeout=step.timeout)
    if not result.ok and is_there(session, host, f"id={step.container}"):
        raise _failure(host, step, result)
    code = ("inspect", "--format", "{{.State.ExitCode}}", str(step.container))
    if session.run((*host.docker_words, *code), timeout=60).out.strip() != str(_KILLED):
        return ()
    what = f"the server did not end within {step.timeout - 60} s and was killed"
    remedy = "Raise container.stop_timeout if requests were cut off."
    return (Problem(what, remedy, f"{host.name}: stop", level="warning"),)


def _set_aside(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    must(session, spec.host, step.words, step.kind, timeout=step.timeout)
    return done


def _remove(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    remove(session, spec.host, step)
    return done


def remove(session: Session, host: Host, step: Step) -> None:
    """Remove a container; one that removes itself is as good. HostError: it is still there."""
    result = session.run(step.words, timeout=step.timeout)
    until = time.monotonic() + _REMOVED_WITHIN
    while not result.ok and is_there(session, host, f"id={step.container}"):
        # "removal … is already in progress": a container of `docker run --rm` removes itself when it is stopped
        if "already in progress" not in result.err or time.monotonic() > until:
            raise _failure(host, step, result)
        time.sleep(0.2)


def _run(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    result = session.run(step.words, timeout=step.timeout)
    ours = (f"label={DIGEST}={spec.digest}", f"name=^/{spec.recipe.name}$")
    husk = None if result.ok else is_there(session, spec.host, *ours, "status=created")
    if husk:
        session.run((*spec.host.docker_words, "rm", husk), timeout=60)
    # a lost status says nothing about the container: look
    made = is_there(session, spec.host, *ours) if result.ok or (result.exit is None and not husk) else None
    if made is None and not result.ok:
        raise _failure(spec.host, step, result)
    return _made(session, spec, done, made)


def _made(session: Session, spec: Spec, done: Acted, container: str | None) -> Acted:
    if container is not None and spec.recipe.container.secrets:
        secret_files.used(session, spec.recipe.name, container)
    return replace(done, container=container)


def _write_secrets(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    secret_files.write(session, spec.recipe, done.manner.secrets)
    return done


def _start(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    must(session, spec.host, step.words, step.kind, timeout=step.timeout)
    return replace(done, container=step.container)


def _settle(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    container = done.container or step.container
    if container is None:
        what = "the container that was just started is gone"
        raise HostError(Problem(what, "Another run may have removed it: apply again.", f"{spec.host.name}: settle"))
    proof = settle(session, spec, container, say, done.manner.waiting)
    checks = lasting(session, lambda: prove(session, spec.recipe, say), done.manner.waiting.regain)
    # it may have answered and died, or another in its place: from here on nothing brings the old one back
    lasting(session, lambda: still_runs(session, spec, container), done.manner.waiting.regain)
    return replace(done, container=container, proof=proof, checks=checks)


def _wait_for_gpus(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    manner = done.manner
    wait_for_gpus(session, spec.host, spec.gpus, say, within=manner.gpus_free_within, others=manner.strangers)
    return done


DEEDS: Mapping[str, Callable[[Session, Spec, Step, Acted, Say], Acted]] = {
    **dict.fromkeys(BEFOREHAND, _beforehand),
    "write secrets": _write_secrets,
    "stop": _stop,
    "set aside": _set_aside,
    "remove": _remove,
    "wait for GPUs": _wait_for_gpus,
    "run": _run,
    "start": _start,
    "settle": _settle,
}
"""Kind of step → how it is carried out."""


def _failure(host: Host, step: Step, result: Result) -> HostError:
    return HostError(docker_failure(result, f"{host.name}: {step.kind}"))


def is_there(session: Session, host: Host, *filters: str) -> str | None:
    """The id of the first container that passes the filters; None: there is none."""
    asked = tuple(word for each in filters for word in ("--filter", each))
    result = session.run((*host.docker_words, "ps", "--all", "--quiet", "--no-trunc", *asked), timeout=60)
    if not result.ok:
        raise HostError(docker_failure(result, f"{host.name}: look again"))
    return next(iter(result.out.split()), None)


def must(session: Session, host: Host, words: tuple[str, ...], what: str, *, timeout: int = 120) -> None:
    """Run a docker command. HostError: it failed."""
    result = session.run(words, timeout=timeout)
    if not result.ok:
        raise HostError(docker_failure(result, f"{host.name}: {what}"))
