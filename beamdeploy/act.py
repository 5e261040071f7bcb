"""Carry out exactly a plan; if the new server fails, say why and bring back what served before."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from beamdeploy.daemon import wait_for_docker
from beamdeploy.errors import FAILED, LOCKED, UNREACHABLE, HostError
from beamdeploy.gpu_memory import wait_for_gpus
from beamdeploy.label import NAME
from beamdeploy.plan import Plan
from beamdeploy.preflight import KEPT
from beamdeploy.ready import Say, Waiting, log_tail, settle
from beamdeploy.remote import Session
from beamdeploy.render import Spec, render_again
from beamdeploy.served import deployed_as
from beamdeploy.steps import USUALLY, Acted, Manner, carried, is_there, must

GOES_ON = "What was begun may go on there: beamdeploy status says what runs, apply completes it."
_RESTORE_AFTER = 30.0


def act(session: Session, spec: Spec, plan: Plan, say: Say, manner: Manner = USUALLY) -> Acted:
    """Do the plan's steps in order. HostError: one failed; what served before was restored as the error says."""
    done = Acted(manner=manner)
    for step in plan.steps:
        try:
            done = carried(session, spec, step, done, say)
        except HostError as error:
            raise after_failure(session, spec, plan, done, error, say) from error
    return done


def after_failure(session: Session, spec: Spec, plan: Plan, done: Acted, error: HostError, say: Say) -> HostError:
    """Bring the old server back if it was taken down; say what the state of the host is now."""
    if error.exit == UNREACHABLE:
        return told_too(error, GOES_ON)
    if error.exit == LOCKED:
        return error  # another run works here now
    try:
        done.manner.check_lock()
    except HostError as lost:
        return lost if lost.exit == LOCKED else told_too(error, GOES_ON)
    if plan.fallback is None:
        left = "; the container is left for a look: beamdeploy logs" if done.container else ", and nothing runs now"
        return told_too(error, f"Nothing served here before{left}.")
    try:
        wait_for_docker(session, spec.host, say)
        if not touched(plan, done, session, spec):
            still = "still runs" if plan.interrupts else "is as it was, stopped"
            return told_too(error, f"The server that ran before was not touched and {still}.")
        return told_too(error, _restore(session, spec, plan.fallback, done, error.problems[0].what, say))
    except HostError as second:
        lines = "; ".join(problem.what for problem in second.problems)
        by_hand = f"docker start {plan.fallback[:12]}"
        return told_too(error, f"Bringing the old server back failed too ({lines}). By hand on the host: {by_hand}")


def touched(plan: Plan, done: Acted, session: Session, spec: Spec) -> bool:
    """Whether the fallback was stopped (a stop whose status was lost counts: look), or lost its name."""
    state = ("status=running",) if plan.interrupts else ()
    left = is_there(session, spec.host, f"id={plan.fallback}", f"name=^/{spec.recipe.name}$", *state)
    return done.old_stopped or left is None


def _restore(session: Session, spec: Spec, fallback: str, done: Acted, cause: str, say: Say) -> str:
    """Clear the failed one away, start the old one, and see it serve."""
    tail = cleared(session, spec, fallback, done, say)
    start_again(session, spec, fallback)
    return f"{serves_again(session, spec, fallback, done.manner.waiting, say)}{last_lines(tail, done, cause)}"


def cleared(session: Session, spec: Spec, fallback: str, done: Acted, say: Say) -> str:
    """Remove the failed one and give the old one its name back; the failed one's last lines."""
    say("restore", "the server that ran before")
    failed = is_there(session, spec.host, f"name=^/{spec.recipe.name}$")
    tail = ""
    if failed is not None and failed != fallback:
        tail = log_tail(session, spec, failed).rstrip()
        _put_away(session, spec, failed, keep=done.manner.keep_failed)
    if failed != fallback:
        must(session, spec.host, (*spec.host.docker_words, "rename", fallback, spec.recipe.name), "restore")
    with suppress(HostError):  # where others hold the memory it may fit beside them, and else its log says so
        within = min(done.manner.gpus_free_within, _RESTORE_AFTER)
        wait_for_gpus(session, spec.host, spec.gpus, say, within=within, others=done.manner.strangers)
    return tail


def start_again(session: Session, spec: Spec, container: str) -> None:
    """Start what was stopped. HostError: docker does not."""
    must(session, spec.host, (*spec.host.docker_words, "start", container), "restore")


def end(session: Session, spec: Spec, seconds: int) -> None:
    """Stop whatever runs under the deployment's name."""
    running = is_there(session, spec.host, f"name=^/{spec.recipe.name}$", "status=running")
    if running is not None:
        words = (*spec.host.docker_words, "stop", "-t", str(seconds), running)
        must(session, spec.host, words, "restore", timeout=seconds + 60)


def last_lines(tail: str, done: Acted, cause: str) -> str:
    """The end of the failed server's log, where it came so far."""
    return f"\nThe failed server's last lines:\n{tail}" if tail and done.container and tail not in cause else ""


def _put_away(session: Session, spec: Spec, failed: str, *, keep: bool) -> None:
    """Remove the new server that failed; or stop it and keep it beside, in the place of one that was kept before."""
    docker = spec.host.docker_words
    if not keep:
        must(session, spec.host, (*docker, "rm", "--force", failed), "restore")
        return
    name = spec.recipe.name + KEPT
    before = is_there(session, spec.host, f"name=^/{name}$", f"label={NAME}={spec.recipe.name}")
    if before is not None:
        must(session, spec.host, (*docker, "rm", "--force", before), "restore")
    must(session, spec.host, (*docker, "stop", "-t", "10", failed), "restore")
    must(session, spec.host, (*docker, "rename", failed, name), "restore")


def serves_again(session: Session, spec: Spec, fallback: str, waiting: Waiting, say: Say) -> str:
    """What became of the old server, by its own spec out of its label."""
    deployed = deployed_as(session, fallback)
    if deployed is None or not deployed.settings:
        return "The server that ran before was started again; its label does not say how to ask it."
    try:
        proof = settle(session, render_again(deployed, spec.host), fallback, say, waiting)
    except HostError as error:
        what = error.problems[0].what.splitlines()[0]
        return f"The server that ran before was started again and does not answer yet ({what}): beamdeploy status."
    return f"The server that ran before was started again and answers ({proof.seconds:.1f} s)."


def told_too(error: HostError, sentence: str) -> HostError:
    """The error, and what became of the host."""
    problem = error.problems[0]
    return HostError(replace(problem, remedy=f"{problem.remedy} {sentence}".strip()), exit=error.exit or FAILED)
