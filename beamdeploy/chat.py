"""A conversation with a served model: each turn is streamed, and carries the reasoning of those before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from beamdeploy.completion import Json, Said, chat_request, delta, said, turn, user
from beamdeploy.errors import NOT_READY, HostError, Problem
from beamdeploy.exchange import Carry
from beamdeploy.served import Served

Piece = Callable[[str, str], None]
"""(reasoning, content) as they come; one of them is empty."""

SILENCE = 600.0
"""Seconds without a piece that end an answer: a long prompt is read before the first one."""

Messages = tuple[Json, ...]


def opening(system: str | None) -> Messages:
    """The messages before the first question."""
    return ({"role": "system", "content": system},) if system else ()


def ask(carry: Carry, served: Served, before: Messages, question: str, piece: Piece) -> tuple[Messages, Said]:
    """The conversation with question and answer, and the answer. HostError (NOT_READY): there was none."""
    messages = (*before, user(question))
    request = chat_request(served.model, messages, served.request, stream=True, stream_options={"include_usage": True})
    heard = carry(request, SILENCE, lambda event: piece(*delta(event)))
    found = said(heard)
    if found is None or heard.reason:
        told = heard.reason or f"HTTP {heard.status}: {heard.body[:500]}"
        raise HostError(Problem(f"no answer: {told}", "beamdeploy status and logs say more."), exit=NOT_READY)
    return (*messages, turn(found)), found


def ended_early(found: Said) -> Iterable[Problem]:
    """A word on an answer that was cut."""
    if found.finish == "length":
        yield Problem(
            "the answer was cut at request.max_tokens", "Raise it with -e request.max_tokens=N.", level="info"
        )
