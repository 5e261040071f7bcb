"""Checks of what must be refused, and that the server still answers afterwards."""

from __future__ import annotations

import json

from beamdeploy.completion import PATH, chat_request, user
from beamdeploy.exchange import Heard, Request
from beamdeploy.served import Served
from beamdeploy.smoke.check import Check, Verdict, answered, failed, passed, shortened, skipped, then

_SHORT = 64
_MALFORMED = b'{"model": "x", "messages": [{"role": "user", "content": '


def too_long(served: Served) -> Request:
    """More words than engine.max_model_len: a word is a token at least, whatever the tokenizer."""
    words = "token " * ((served.recipe.engine.max_model_len or 0) + 1024)
    return chat_request(served.model, (user(words),), served.request)


def malformed(served: Served) -> Request:
    return Request(PATH, _MALFORMED)


def afterwards(served: Served, refused: Heard) -> Request:
    """A short question: the engine, not only its front, must still be there."""
    return chat_request(served.model, (user("Say yes."),), served.request, max_tokens=_SHORT)


def judge_refused(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    """A clean 4xx with an error in JSON, and an answer after it."""
    refused, after = heard
    if refused.unsent:
        return skipped(refused.reason)
    if refused.status is None:
        return failed(f"no answer to it: {refused.reason}", "The server may have ended: beamdeploy status.")
    if not 400 <= refused.status < 500:
        what = "was answered" if refused.status == 200 else f"gave HTTP {refused.status}"
        return failed(f"it {what} instead of a 4xx: {shortened(refused.body, 160)}")
    if not _is_object(refused.body):
        return failed(f"HTTP {refused.status}, but its body is no JSON object: {shortened(refused.body, 160)}")
    found = answered(after)
    if isinstance(found, Verdict):
        return failed(
            f"refused with HTTP {refused.status}, and afterwards: {found.why}", "See its log: beamdeploy logs."
        )
    if not found.text:
        return failed(f"refused with HTTP {refused.status}, and the next request gave no text")
    return passed(f"HTTP {refused.status}: {shortened(refused.body, 160)}; answers afterwards")


def _is_object(body: str) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def _no_length(served: Served) -> str:
    return "" if served.recipe.engine.max_model_len else "the recipe gives no engine.max_model_len"


CHECKS = (
    Check(
        "too-long",
        "a prompt beyond the context is refused cleanly",
        then(too_long, afterwards),
        judge_refused,
        _no_length,
    ),
    Check("malformed", "malformed JSON is refused cleanly", then(malformed, afterwards), judge_refused),
)
