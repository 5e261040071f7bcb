"""Chat completions as the engines give them, plain or as a stream: values in, values out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from beamdeploy.exchange import Heard, Request

PATH = "/v1/chat/completions"
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""SGLang and the gateway of TokenSpeed say the first, vLLM the second."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call. `arguments`: JSON as text, as it came."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Said:
    """What the model said. `field`: the name under which the reasoning came; `done`: a stream ended with [DONE].

    `pieces`: the number of parts in which the text came.
    """

    content: str = ""
    reasoning: str = ""
    field: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = ""
    usage: Json | None = None
    done: bool = False
    pieces: int = 0

    @property
    def text(self) -> str:
        """The answer, else the reasoning: a small max_tokens can end within it."""
        return self.content or self.reasoning


def chat_request(model: str, messages: Iterable[Json], values: Json, **more: object) -> Request:
    """A request with the recipe's `request` values; `more` goes on top of them."""
    body = {"model": model, "messages": list(messages), **values, **more}
    return Request(PATH, json.dumps(body).encode())


def user(text: str) -> Json:
    """A message of the user."""
    return {"role": "user", "content": text}


def turn(said: Said) -> Json:
    """The message that carries an answer back: with its reasoning, under the name under which it came."""
    message: dict[str, Any] = {"role": "assistant", "content": said.content}
    return {**message, said.field: said.reasoning} if said.reasoning else message


def said(heard: Heard) -> Said | None:
    """What an exchange's completion says; None: it holds none."""
    if heard.status != 200:
        return None
    return streamed(data for _, data in heard.events) if heard.events else plain(heard.body)


def plain(body: str) -> Said | None:
    """A completion out of a plain answer; None: it is none."""
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        usage = answer.get("usage")
        return replace(_with(Said(), choice["message"]), finish=str(choice.get("finish_reason") or ""), usage=usage)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def streamed(events: Iterable[str]) -> Said | None:
    """A completion out of a stream's events; None: one of them is no chunk, or there are none."""
    whole, seen = Said(), False
    try:
        for event in events:
            whole, seen = joined(whole, event), True
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None
    return whole if seen else None


def joined(whole: Said, event: str) -> Said:
    """What was said so far and one more event. ValueError, KeyError, TypeError: it is no chunk."""
    if event == "[DONE]":
        return replace(whole, done=True)
    chunk = json.loads(event)
    if "error" in chunk:
        raise ValueError(str(chunk["error"]))
    usage = chunk.get("usage") or whole.usage
    if not chunk["choices"]:
        return replace(whole, usage=usage)
    choice = chunk["choices"][0]
    longer = _with(whole, choice.get("delta") or {})
    return replace(longer, usage=usage, finish=str(choice.get("finish_reason") or whole.finish))


def delta(event: str) -> tuple[str, str]:
    """(reasoning, content) that an event adds; both empty for one that adds none."""
    try:
        piece = joined(Said(), event)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return "", ""
    return piece.reasoning, piece.content


def _with(whole: Said, part: Json) -> Said:
    field = next((name for name in REASONING_FIELDS if part.get(name)), "")
    reasoning = _text(part[field]) if field else ""
    content = _text(part.get("content"))
    return replace(
        whole,
        content=whole.content + content,
        reasoning=whole.reasoning + reasoning,
        field=field or whole.field,
        calls=_calls(whole.calls, part.get("tool_calls") or ()),
        pieces=whole.pieces + bool(content or reasoning),
    )


def _text(value: object) -> str:
    """Text, or the text of content parts."""
    if isinstance(value, list):
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, dict))
    return "" if value is None else str(value)


def _calls(before: tuple[Call, ...], parts: Iterable[Json]) -> tuple[Call, ...]:
    """Calls with what a message, or a delta that names an index, adds to them."""
    calls = list(before)
    for part in parts:
        at = int(part.get("index", len(calls)))
        if not 0 <= at <= len(calls):
            raise ValueError(f"tool call {at} comes after {len(calls)}")
        old = calls[at] if at < len(calls) else Call()
        function = part.get("function") or {}
        arguments = function.get("arguments") or ""
        longer = arguments if isinstance(arguments, str) else json.dumps(arguments)
        new = Call(
            old.id or str(part.get("id") or ""), old.name or str(function.get("name") or ""), old.arguments + longer
        )
        calls[at : at + 1] = [new]
    return tuple(calls)
