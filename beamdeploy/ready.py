"""Follow a started server until it is ready, and prove it with one real completion."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from beamdeploy.diagnose import program_failure
from beamdeploy.endpoint import Answer, ask
from beamdeploy.errors import FAILED, NOT_READY, HostError, Problem
from beamdeploy.remote import Session
from beamdeploy.render import Spec

Say = Callable[[str, str], None]
"""Progress: (phase, detail)."""

TAIL = 40
COMPLETION_TIMEOUT = 120.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0
_RESTARTS_OF_A_LOOP = 2

# $1…: the docker words, then the id. One round trip tells whether it lives and what it says.
_STATE = """
id=$1; shift
"$@" inspect --format '{{json .State}}' "$id" || exit
"$@" inspect --format '{{.RestartCount}}' "$id" || exit
"$@" logs --tail 1 "$id" 2>&1
"""


@dataclass(frozen=True)
class State:
    """A container now. `last_line`: of its log."""

    status: str
    exit_code: int
    oom_killed: bool
    error: str
    restarts: int
    last_line: str


@dataclass(frozen=True)
class Proof:
    """The completion that showed that the model answers. `seconds` it took; `text` is shortened."""

    model: str
    text: str
    finish_reason: str
    seconds: float


def settle(session: Session, spec: Spec, container: str, say: Say) -> Proof:
    """Wait until the container's server is ready, lists the model, and completes a request.

    HostError: it ended (FAILED), or it is not ready in time or answers wrongly (NOT_READY).
    """
    _wait_until_ready(session, spec, container, say)
    say("models", f"asking for {spec.recipe.model.served_name}")
    problem = model_problem(spec, _ask(session, spec, "/v1/models"))
    if problem is not None:
        raise _not_ready(problem, spec, "models")
    say("completion", "one request with the recipe's values")
    return complete(session, spec)


def complete(session: Session, spec: Spec) -> Proof:
    """One chat completion with the recipe's `request` values. HostError (NOT_READY): no text came back in time."""
    started = time.monotonic()
    answer = _ask(session, spec, "/v1/chat/completions", chat_request(spec), COMPLETION_TIMEOUT)
    message, reason = _message(answer)
    if not message:
        said = answer.reason or f"HTTP {answer.status}: {answer.body[:300]}"
        problem = Problem(
            f"{spec.engine.ready} and /v1/models answer, but a chat completion gave no text: {said}",
            "The front lives and the engine does not. The log says more: beamdeploy logs.",
        )
        raise _not_ready(problem, spec, "completion")
    return Proof(spec.recipe.model.served_name, message[:200], reason, round(time.monotonic() - started, 3))


def chat_request(spec: Spec) -> Mapping[str, Any]:
    """The body of the one request that an apply makes."""
    question = {"role": "user", "content": "Say hello in one short sentence."}
    return {"model": spec.recipe.model.served_name, "messages": [question], **spec.recipe.request}


def model_problem(spec: Spec, answer: Answer) -> Problem | None:
    """What is wrong with an answer of /v1/models; None: it lists the recipe's model, compared exactly."""
    wanted = spec.recipe.model.served_name
    where = f"{spec.recipe.container.address}:{spec.recipe.container.port}"
    if answer.status != 200:
        return Problem(
            f"/v1/models on {where} says {answer.status or answer.reason}: {answer.body[:200]}", "See its log."
        )
    try:
        names = [str(model["id"]) for model in json.loads(answer.body)["data"]]
    except (ValueError, KeyError, TypeError):
        return Problem(f"/v1/models on {where} is no model list: {answer.body[:200]}", "Something else answers there.")
    if wanted in names:
        return None
    listed = ", ".join(names) or "no model"
    return Problem(
        f"{where} answers, but serves {listed} instead of {wanted}",
        "Another server holds the port, or model.served_name differs (names are compared exactly).",
    )


def state_of(session: Session, spec: Spec, container: str) -> State:
    """The container's state and the last line of its log. HostError: it is gone."""
    result = session.script(_STATE, (container, *spec.host.docker_words), timeout=60)
    if not result.ok:
        problem = Problem(
            f"container {container[:12]} is gone: {result.err.strip()[-200:]}", "Somebody removed it: apply again."
        )
        raise _failed(problem, spec, "settle")
    state, restarts, last = (*result.out.split("\n", 2), "")[:3]
    told = json.loads(state)
    return State(
        told["Status"],
        told["ExitCode"],
        told.get("OOMKilled", False),
        told.get("Error", ""),
        int(restarts),
        last.strip(),
    )


def log_tail(session: Session, spec: Spec, container: str, lines: int = TAIL) -> str:
    """The last lines of a container's log, stdout and stderr as they came."""
    script = 'id=$1; n=$2; shift 2; "$@" logs --tail "$n" "$id" 2>&1'
    return session.script(script, (container, str(lines), *spec.host.docker_words), timeout=60).out


def _wait_until_ready(session: Session, spec: Spec, container: str, say: Say) -> None:
    started = moved = time.monotonic()
    pause, last = _FIRST_PAUSE, ""
    while True:
        state = state_of(session, spec, container)
        _check_alive(session, spec, container, state)
        now = time.monotonic()
        moved, last = (now, state.last_line) if state.last_line != last else (moved, last)
        answer = _ask(session, spec, spec.engine.ready)
        if answer.status == 200:
            return
        say("loading", last or answer.reason)
        _check_limits(spec, now - started, now - moved, last)
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _check_alive(session: Session, spec: Spec, container: str, state: State) -> None:
    if state.restarts >= _RESTARTS_OF_A_LOOP:
        what = f"the server restarts again and again ({state.restarts} times, exit code {state.exit_code})"
    elif state.status in ("exited", "dead"):
        killed = ", killed for lack of host memory" if state.oom_killed else ""
        what = f"the server ended with exit code {state.exit_code}{killed}"
    else:
        return
    tail = log_tail(session, spec, container).rstrip()
    sign = program_failure(tail)
    cause, remedy = (f": {sign.what}", sign.remedy) if sign else ("", "The first error above is the cause; correct it.")
    raise _failed(Problem(f"{what}{cause}. Its last lines:\n{tail}", remedy), spec, "start")


def _check_limits(spec: Spec, elapsed: float, still: float, last: str) -> None:
    limits = spec.recipe.ready
    if elapsed > limits.timeout:
        what = f"the server is not ready after {round(elapsed)} s (ready.timeout); last line: {last}"
    elif still > limits.stall:
        what = f"the server has made no progress for {round(still)} s (ready.stall); last line: {last}"
    else:
        return
    raise _not_ready(
        Problem(what, "See its log: beamdeploy logs. Raise the limit if loading is that slow here."), spec, "loading"
    )


def _message(answer: Answer) -> tuple[str, str]:
    """Text (the answer, else the reasoning: a small max_tokens can end within it) and finish reason."""
    if answer.status != 200:
        return "", ""
    try:
        choice = json.loads(answer.body)["choices"][0]
        message = choice["message"]
    except (ValueError, KeyError, TypeError, IndexError):
        return "", ""
    text = message.get("content") or message.get("reasoning_content") or message.get("reasoning") or ""
    return str(text), str(choice.get("finish_reason"))


def _ask(
    session: Session, spec: Spec, path: str, body: Mapping[str, Any] | None = None, timeout: float = 10.0
) -> Answer:
    published = spec.recipe.container
    return ask(session, published.address, published.port, path, body=body, timeout=timeout)


def _failed(problem: Problem, spec: Spec, step: str) -> HostError:
    return HostError(problem.at(f"{spec.host.name}: {step}"), exit=FAILED)


def _not_ready(problem: Problem, spec: Spec, step: str) -> HostError:
    return HostError(problem.at(f"{spec.host.name}: {step}"), exit=NOT_READY)
