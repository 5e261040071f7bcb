"""Carry out exactly a plan; if the new server fails, say why and bring back what served before."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from beamdeploy import secrets as secret_files
from beamdeploy.beforehand import BEFOREHAND
from beamdeploy.daemon import wait_for_docker
from beamdeploy.diagnose import docker_failure
from beamdeploy.errors import FAILED, LOCKED, UNREACHABLE, HostError, Problem
from beamdeploy.gpu_memory import wait_for_gpus
from beamdeploy.hooks import facts_of, run_hook
from beamdeploy.inventory import Host
from beamdeploy.label import DIGEST, NAME, read_labels
from beamdeploy.lasting import lasting
from beamdeploy.plan import Plan, Step
from beamdeploy.preflight import KEPT
from beamdeploy.ready import AS_USUAL, Proof, Say, Waiting, log_tail, settle
from beamdeploy.remote import Result, Session
from beamdeploy.render import Spec, render_again
from beamdeploy.smoke import Outcome
from beamdeploy.smoke.after import prove

_REMOVED_WITHIN = 60
_KILLED = 137
_RESTORE_AFTER = 30.0


@dataclass(frozen=True)
class Manner:
    """How a plan is carried out. `secrets`: the lines of the env file that come from the controller.

    `keep_failed`: a new server that failed is left on the host, stopped, for a look. `gpus_free_within`: seconds.
    `strangers`: index of a GPU → MiB that others hold there, which is not waited for.
    """

    secrets: str = field(default="", repr=False)
    keep_failed: bool = False
    gpus_free_within: float = 120
    strangers: Mapping[int, int] = field(default_factory=dict)
    waiting: Waiting = AS_USUAL


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


def act(session: Session, spec: Spec, plan: Plan, say: Say, manner: Manner = USUALLY) -> Acted:
    """Do the plan's steps in order. HostError: one failed; what served before was restored as the error says."""
    done = Acted(manner=manner)
    for step in plan.steps:
        say(step.kind, step.reason)
        began = time.monotonic()
        try:
            done = _DO[step.kind](session, spec, step, done, say)
            done = replace(done, took={**done.took, step.kind: round(time.monotonic() - began, 1)})
        except HostError as error:
            raise _after_failure(session, spec, plan, done, error, say) from error
    return done


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
    _must(session, spec.host, step.words, step.kind, timeout=step.timeout)
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
    _must(session, spec.host, step.words, step.kind, timeout=step.timeout)
    return replace(done, container=step.container)


def _settle(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    container = done.container or step.container
    if container is None:
        what = "the container that was just started is gone"
        raise HostError(Problem(what, "Another run may have removed it: apply again.", f"{spec.host.name}: settle"))
    proof = settle(session, spec, container, say, done.manner.waiting)
    checks = lasting(session, lambda: prove(session, spec.recipe, say), done.manner.waiting.regain)
    return replace(done, container=container, proof=proof, checks=checks)


def _wait_for_gpus(session: Session, spec: Spec, step: Step, done: Acted, say: Say) -> Acted:
    manner = done.manner
    wait_for_gpus(session, spec.host, spec.gpus, say, within=manner.gpus_free_within, others=manner.strangers)
    return done


_DO: Mapping[str, Callable[[Session, Spec, Step, Acted, Say], Acted]] = {
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


def _failure(host: Host, step: Step, result: Result) -> HostError:
    return HostError(docker_failure(result, f"{host.name}: {step.kind}"))


def is_there(session: Session, host: Host, *filters: str) -> str | None:
    """The id of the first container that passes the filters; None: there is none."""
    asked = tuple(word for each in filters for word in ("--filter", each))
    result = session.run((*host.docker_words, "ps", "--all", "--quiet", "--no-trunc", *asked), timeout=60)
    if not result.ok:
        raise HostError(docker_failure(result, f"{host.name}: look again"))
    return next(iter(result.out.split()), None)


def _after_failure(session: Session, spec: Spec, plan: Plan, done: Acted, error: HostError, say: Say) -> HostError:
    """Bring the old server back if it was taken down; say what the state of the host is now."""
    if error.exit == UNREACHABLE:
        return _with(error, "What was begun may go on there: beamdeploy status says what runs, apply completes it.")
    if error.exit == LOCKED:
        return error  # another run works here now
    if plan.fallback is None:
        left = "; the container is left for a look: beamdeploy logs" if done.container else ", and nothing runs now"
        return _with(error, f"Nothing served here before{left}.")
    try:
        wait_for_docker(session, spec.host, say)
        if not _touched(plan, done, session, spec):
            still = "still runs" if plan.interrupts else "is as it was, stopped"
            return _with(error, f"The server that ran before was not touched and {still}.")
        return _with(error, _restore(session, spec, plan.fallback, done, error.problems[0].what, say))
    except HostError as second:
        lines = "; ".join(problem.what for problem in second.problems)
        by_hand = f"docker start {plan.fallback[:12]}"
        return _with(error, f"Bringing the old server back failed too ({lines}). By hand on the host: {by_hand}")


def _touched(plan: Plan, done: Acted, session: Session, spec: Spec) -> bool:
    """Whether the fallback was stopped (a stop whose status was lost counts: look), or lost its name."""
    state = ("status=running",) if plan.interrupts else ()
    left = is_there(session, spec.host, f"id={plan.fallback}", f"name=^/{spec.recipe.name}$", *state)
    return done.old_stopped or left is None


def _restore(session: Session, spec: Spec, fallback: str, done: Acted, cause: str, say: Say) -> str:
    """Remove the failed one (its log is in what is said), give the old one its name back, start it, see it serve."""
    say("restore", "the server that ran before")
    docker = spec.host.docker_words
    failed = is_there(session, spec.host, f"name=^/{spec.recipe.name}$")
    tail = ""
    if failed is not None and failed != fallback:
        tail = log_tail(session, spec, failed).rstrip()
        _put_away(session, spec, failed, keep=done.manner.keep_failed)
    if failed != fallback:
        _must(session, spec.host, (*docker, "rename", fallback, spec.recipe.name), "restore")
    with suppress(HostError):  # where others hold the memory it may fit beside them, and else its log says so
        within = min(done.manner.gpus_free_within, _RESTORE_AFTER)
        wait_for_gpus(session, spec.host, spec.gpus, say, within=within, others=done.manner.strangers)
    _must(session, spec.host, (*docker, "start", fallback), "restore")
    shown = f"\nThe failed server's last lines:\n{tail}" if tail and done.container and tail not in cause else ""
    return f"{_serves_again(session, spec, fallback, done.manner.waiting, say)}{shown}"


def _put_away(session: Session, spec: Spec, failed: str, *, keep: bool) -> None:
    """Remove the new server that failed; or stop it and keep it beside, in the place of one that was kept before."""
    docker = spec.host.docker_words
    if not keep:
        _must(session, spec.host, (*docker, "rm", "--force", failed), "restore")
        return
    name = spec.recipe.name + KEPT
    before = is_there(session, spec.host, f"name=^/{name}$", f"label={NAME}={spec.recipe.name}")
    if before is not None:
        _must(session, spec.host, (*docker, "rm", "--force", before), "restore")
    _must(session, spec.host, (*docker, "stop", "-t", "10", failed), "restore")
    _must(session, spec.host, (*docker, "rename", failed, name), "restore")


def _serves_again(session: Session, spec: Spec, fallback: str, waiting: Waiting, say: Say) -> str:
    """What became of the old server, by its own spec out of its label."""
    words = (*spec.host.docker_words, "inspect", "--format", "{{json .Config.Labels}}", fallback)
    deployed = read_labels(json.loads(session.run(words, timeout=60).out or "null") or {})
    if deployed is None or not deployed.settings:
        return "The server that ran before was started again; its label does not say how to ask it."
    try:
        proof = settle(session, render_again(deployed, spec.host), fallback, say, waiting)
    except HostError as error:
        what = error.problems[0].what.splitlines()[0]
        return f"The server that ran before was started again and does not answer yet ({what}): beamdeploy status."
    return f"The server that ran before was started again and answers ({proof.seconds:.1f} s)."


def _must(session: Session, host: Host, words: tuple[str, ...], what: str, *, timeout: int = 120) -> None:
    result = session.run(words, timeout=timeout)
    if not result.ok:
        raise HostError(docker_failure(result, f"{host.name}: {what}"))


def _with(error: HostError, sentence: str) -> HostError:
    problem = error.problems[0]
    return HostError(replace(problem, remedy=f"{problem.remedy} {sentence}".strip()), exit=error.exit or FAILED)
