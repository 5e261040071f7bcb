"""Load on a server: so many requests, so many at a time, each streamed and timed."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from beamdeploy.completion import chat_request, delta, said, user
from beamdeploy.errors import NOT_READY, HostError, Problem
from beamdeploy.exchange import Carry, Heard, Request
from beamdeploy.served import Served

SILENCE = 600.0
"""Seconds without a piece that end a request."""
_WORDS = (
    "river", "stone", "window", "garden", "letter", "market", "silver", "morning",
    "bridge", "winter", "number", "corner", "planet", "engine", "harbor", "paper",
    "forest", "signal", "castle", "shadow", "summer", "candle", "mirror", "desert",
    "island", "thunder", "village", "copper", "meadow", "anchor",
)  # fmt: skip
_PROBES = (50, 250)


@dataclass(frozen=True)
class Size:
    """Tokens of a request: `input` about so many, `output` exactly, unless the engine ends early."""

    input: int
    output: int


@dataclass(frozen=True)
class Sample:
    """One request. Seconds since it was sent; `tokens`: of the whole answer, reasoning too. `error`: "" is none."""

    first: float = 0.0
    last: float = 0.0
    seconds: float = 0.0
    prompt_tokens: int = 0
    tokens: int = 0
    error: str = ""


@dataclass(frozen=True)
class Run:
    """All requests of one level of concurrency, and how long they took in all."""

    concurrency: int
    samples: tuple[Sample, ...]
    seconds: float


def prompt(words: int, number: int) -> str:
    """Words in an order that no other number has: a cache of prefixes must not answer."""
    chosen = random.Random(number)
    return f"Text {number}: " + " ".join(chosen.choice(_WORDS) for _ in range(words))


def request_of(served: Served, words: int, output: int, number: int, *, exact: bool = True) -> Request:
    """One streamed request. `exact`: with `ignore_eos`, which keeps answers equally long."""
    options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": output}
    longer = {"ignore_eos": True} if exact else {}
    return chat_request(served.model, (user(prompt(words, number)),), served.request, **options, **longer)


def is_exact(carry: Carry, served: Served) -> bool:
    """Whether the server takes `ignore_eos`: it is no field of OpenAI's, and some refuse what they do not know."""
    heard = carry(request_of(served, 1, 1, 0), SILENCE, None)
    return not (heard.status is not None and 400 <= heard.status < 500 and "ignore_eos" in heard.body)


def sample(heard: Heard) -> Sample:
    """The times of a request out of what was heard."""
    found = said(heard)
    texts = [at for at, event in heard.events if any(delta(event))]
    if found is None or heard.reason or not texts:
        return Sample(seconds=heard.seconds, error=_error(heard))
    usage = found.usage or {}
    counted = usage.get("completion_tokens") or found.pieces
    return Sample(texts[0], texts[-1], heard.seconds, int(usage.get("prompt_tokens") or 0), int(counted))


def calibrated(carry: Carry, served: Served, wanted: int, *, exact: bool = True) -> int:
    """How many words make `wanted` tokens here: asked of the server itself, so that no tokenizer is needed.

    HostError (NOT_READY): it does not answer, or does not count.
    """
    asked = (request_of(served, words, 1, -words, exact=exact) for words in _PROBES)
    answers = [carry(request, SILENCE, None) for request in asked]
    # the count alone: one token need be no text (half of a letter, or a mark)
    counts = [_prompt_tokens(heard) for heard in answers]
    wrong = next((_uncounted(heard) for heard, count in zip(answers, counts, strict=True) if not count), "")
    if wrong:
        raise HostError(Problem(f"no figures can be had: {wrong}", "beamdeploy smoke says more."), exit=NOT_READY)
    few, many = counts
    a_word = max((many - few) / (_PROBES[1] - _PROBES[0]), 0.1)
    return max(1, round((wanted - few) / a_word) + _PROBES[0])


def _prompt_tokens(heard: Heard) -> int:
    found = said(heard)
    return int((found.usage or {}).get("prompt_tokens") or 0) if found is not None and not heard.reason else 0


def _uncounted(heard: Heard) -> str:
    return "it counts no tokens" if heard.status == 200 and not heard.reason else _error(heard)


def run(carry: Carry, requests: tuple[Request, ...], concurrency: int, done: Callable[[int], None]) -> Run:
    """Make the requests, `concurrency` at a time; `done` hears how many have ended. HostError: the session is lost.

    The threads are daemons, so that Ctrl-C ends the program while a server is silent.
    """
    waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
    ended: queue.SimpleQueue[Sample | BaseException] = queue.SimpleQueue()
    for request in requests:
        waiting.put(request)
    started = time.monotonic()
    for _ in range(min(concurrency, len(requests))):
        threading.Thread(target=_work_off, args=(carry, waiting, ended), daemon=True).start()
    samples: list[Sample] = []
    while len(samples) < len(requests):
        found = ended.get()
        if isinstance(found, BaseException):
            raise found
        samples.append(found)
        done(len(samples))
    return Run(concurrency, tuple(samples), time.monotonic() - started)


def _work_off(
    carry: Carry, waiting: queue.SimpleQueue[Request], ended: queue.SimpleQueue[Sample | BaseException]
) -> None:
    while True:
        try:
            ended.put(sample(carry(waiting.get_nowait(), SILENCE, None)))
        except queue.Empty:
            return
        except BaseException as error:  # it is raised by the thread that asked
            ended.put(error)
            return


def _error(heard: Heard) -> str:
    if heard.status not in (None, 200):
        return f"HTTP {heard.status}: {heard.body[:200]}"
    return heard.reason or "the answer held no text"
