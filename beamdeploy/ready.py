"""Follow a started server until it is ready, and prove it with one real completion."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from beamdeploy.apikey import key
from beamdeploy.diagnose import explain
from beamdeploy.endpoint import Answer, ask
from beamdeploy.engines.log import shared_log
from beamdeploy.errors import FAILED, NOT_READY, HostError, Problem
from beamdeploy.lasting import Regain, give_up, lasting
from beamdeploy.remote import Session
from beamdeploy.render import Spec
from beamdeploy.startup import READY, Decided, State, Verdict, limit_passed, seconds_left, verdict
from beamdeploy.watch import Moment, Running, Watch, log_text, running

Say = Callable[[str, str], None]
"""Progress: (phase, detail). What stands after a tab in the detail moves within the phase, and is no news by itself."""

TAIL = 40
_PAUSE = 0.5
_EAGER = 30
"""Seconds in which a server is asked every second; later every second one."""
_RESTARTS_OF_A_LOOP = 2


@dataclass(frozen=True)
class Proof:
    """The completion that showed that the model answers. `seconds` it took; `text` is shortened."""

    model: str
    text: str
    finish_reason: str
    seconds: float
    decided: Decided | None = None
    """What the engine settled on while it started; None: the start was not followed."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Phase of the start → seconds after which it was entered; none where the start was not followed."""


@dataclass(frozen=True)
class Waiting:
    """How a start is waited for. `regain`: what brings a lost connection back; `usual`: `Proof.phases` of last time."""

    regain: Regain = give_up
    usual: Mapping[str, float] = field(default_factory=dict)


AS_USUAL = Waiting()


def settle(session: Session, spec: Spec, container: str, say: Say, waiting: Waiting = AS_USUAL) -> Proof:
    """Wait until the container's server is ready, lists the model, and completes a request.

    The server loads whether it is watched or not, so a connection that is lost may be regained.
    HostError: it ended (FAILED), or it is not ready in time or answers wrongly (NOT_READY).
    """
    watch = Watch(spec.engine.name, "", time.monotonic())

    def proven() -> Proof:
        _wait_until_ready(session, spec, container, _Teller(say, waiting.usual), watch)
        seconds = round(time.monotonic() - watch.state.started, 1)
        proof = _proof(session, spec, container, say)
        if not watch.state.last:
            return proof
        return replace(proof, decided=watch.state.decided, phases={READY: seconds, **dict(watch.state.entered)})

    return lasting(session, proven, waiting.regain)


def _proof(session: Session, spec: Spec, container: str, say: Say) -> Proof:
    say("models", f"asking for {spec.recipe.model.served_name}")
    problem = model_problem(spec, _ask(session, spec, "/v1/models"))
    if problem is not None:
        raise _not_ready(problem, spec, "models")
    say("completion", "one request with the recipe's values")
    try:
        return complete(session, spec)
    except HostError as error:
        raise _explained(session, spec, container, error) from error


def complete(session: Session, spec: Spec) -> Proof:
    """One chat completion with the recipe's `request` values. HostError (NOT_READY): no text came back in time."""
    started = time.monotonic()
    answer = _ask(session, spec, "/v1/chat/completions", chat_request(spec), spec.recipe.smoke.timeout)
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


def log_tail(session: Session, spec: Spec, container: str, lines: int = TAIL) -> str:
    """The last lines of a container's log, stdout and stderr as they came."""
    script = 'id=$1; n=$2; shift 2; "$@" logs --tail "$n" "$id" 2>&1'
    return session.script(script, (container, str(lines), *spec.host.docker_words), timeout=60).out


class _Answered(Exception):
    """The server is ready: ends the following of its log."""


@dataclass(frozen=True)
class _Teller:
    """Says how far a start is. `usual`: see `Waiting`."""

    say: Say
    usual: Mapping[str, float]

    def __call__(self, state: State, stands: Verdict, now: float) -> None:
        """ "target weights 12/64 (19 %), about 4 min left, as last time" """
        left = seconds_left(state, now, self.usual)
        by = ", as last time" if READY in self.usual and state.phase in self.usual else ""
        slow = ", slow" if stands.word == "slow" else ""
        moving = f"{state.said.removeprefix(state.phase)}{f', {_about(left)}{by}' if left else ''}{slow}"
        self.say("loading", f"{state.phase}\t{moving}")


def _about(seconds: float) -> str:
    """ "about 40 s left" """
    return f"about {max(10, round(seconds, -1)):.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


def _wait_until_ready(session: Session, spec: Spec, container: str, tell: _Teller, watch: Watch) -> None:
    """Follow the log, and what was seen of it stays in `watch`."""
    docker = spec.host.docker_words
    while True:
        found = running(session, docker, container)
        _check_alive(session, spec, container, found)
        watch.of_run(found.since)
        moment = _moment(session, spec, container, tell, found.since)
        try:
            if _is_ready(session, spec):
                raise _Answered
            watch.follow(session, docker, container, spec.gpus, moment, timeout=spec.recipe.ready.timeout + 60)
            moment(watch.state, True)
        except _Answered:
            return
        time.sleep(_PAUSE)  # its log ended and it may live: it restarts, or its log driver cannot be read


def _moment(session: Session, spec: Spec, container: str, tell: _Teller, since: str) -> Moment:
    """Say how far it is; ask whether it is ready when its log says so, and every second or two."""
    limits, ticks = spec.recipe.ready, count()

    def moment(state: State, tick: bool) -> None:
        now = time.monotonic()
        tell(state, verdict(state, now, limits), now)
        passed = limit_passed(state, now, limits)
        due = state.phase == READY if not tick else next(ticks) % 2 == 0 or now - state.started < _EAGER
        # also at the limit: it may have come up since it was asked last
        if (due or passed) and _is_ready(session, spec):
            raise _Answered
        if passed:
            raise _too_slow(session, spec, container, since, state, passed, now)

    return moment


def _is_ready(session: Session, spec: Spec) -> bool:
    """HostError: it answers, and not us; waiting would not change that."""
    answer = _ask(session, spec, spec.engine.ready)
    if answer.status in (401, 403):
        what = f"the server refuses to answer {spec.engine.ready} (HTTP {answer.status}): it wants another API key"
        remedy = (
            "Name its key in container.secrets by the variable that the engine reads; if the host's env file was "
            "changed by hand since the server started, destroy and apply."
        )
        raise _failed(Problem(what, remedy), spec, "settle")
    return answer.status == 200


def still_runs(session: Session, spec: Spec, container: str) -> None:
    """HostError (FAILED): it has ended, with why and its last lines."""
    _check_alive(session, spec, container, running(session, spec.host.docker_words, container))


def _check_alive(session: Session, spec: Spec, container: str, found: Running) -> None:
    if found.restarts >= _RESTARTS_OF_A_LOOP:
        # the run of now may have said nothing yet, and has no exit code
        code = f", exit code {found.exit_code}" if found.exit_code else ""
        what, since = f"the server restarts again and again ({found.restarts} times{code})", "0"
    elif found.ended:
        what, since = f"the server ended with exit code {found.exit_code}", found.since
    else:
        return
    text = log_text(session, spec.host.docker_words, container, since).rstrip()
    problem = ended_problem(text, spec.engine.name, found)
    tail = "\n".join(text.splitlines()[-TAIL:])
    cause = f"{what}: {problem.what}. Its last lines:\n{tail}"
    raise _failed(Problem(cause, problem.remedy), spec, "start")


def ended_problem(text: str, engine: str, found: Running) -> Problem:
    """Why a server ended, from its log and from what docker says of it."""
    diagnosis = explain(text, engine, found.exit_code)
    if found.oom_killed and (diagnosis is None or diagnosis.confidence != "high"):
        return Problem("it was killed for lack of memory", "Stop other programs on the host, or give it more memory.")
    if diagnosis is None:
        said = f"; docker says: {found.error}" if found.error else ""
        return Problem(f"its log does not say why{said}", "Somebody may have stopped it: apply again.")
    return diagnosis.problem


def _too_slow(
    session: Session, spec: Spec, container: str, since: str, state: State, passed: str, now: float
) -> HostError:
    if passed == "timeout":
        what = f"the server is not ready after {round(now - state.started)} s (ready.timeout)"
    else:
        what = f"the server has made no progress for {round(now - state.moved)} s (ready.stall)"
    diagnosis = explain(log_text(session, spec.host.docker_words, container, since), spec.engine.name)
    known = diagnosis.problem if diagnosis and diagnosis.confidence != "low" else None
    hint = known.remedy if known else shared_log().stalls.get(state.phase, "")
    remedy = f"{hint} See its log: beamdeploy logs. Raise the limit if loading is that slow here.".strip()
    cause = f": {known.what}" if known else ""
    return _not_ready(Problem(f"{what}, in: {state.said}{cause}; last line: {state.last}", remedy), spec, "loading")


def _explained(session: Session, spec: Spec, container: str, error: HostError) -> HostError:
    """Why no completion came, where the container or its log says it."""
    found = running(session, spec.host.docker_words, container)
    _check_alive(session, spec, container, found)
    diagnosis = explain(log_text(session, spec.host.docker_words, container, found.since), spec.engine.name)
    if diagnosis is None or diagnosis.confidence == "low":
        return error
    problem, cause = error.problems[0], diagnosis.problem
    return HostError(replace(problem, what=f"{problem.what}: {cause.what}", remedy=cause.remedy), exit=error.exit)


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
    needed = key(session, spec.recipe.source) if path.startswith("/v1/") else ""
    return ask(session, published.address, published.port, path, body=body, timeout=timeout, key=needed)


def _failed(problem: Problem, spec: Spec, step: str) -> HostError:
    return HostError(problem.at(f"{spec.host.name}: {step}"), exit=FAILED)


def _not_ready(problem: Problem, spec: Spec, step: str) -> HostError:
    return HostError(problem.at(f"{spec.host.name}: {step}"), exit=NOT_READY)
