"""What the stand-in answers to a chat request: a pure function from request to response, and its form as a stream.

The shapes are those of TokenSpeed's gateway: `reasoning_content` beside `content`, OpenAI errors, SSE with `[DONE]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Json = Mapping[str, object]


@dataclass(frozen=True)
class Model:
    """What is served: its name, the longest prompt in tokens, and whether its parser finds tool calls.

    `reasoning_field`: where a reply holds its reasoning; vLLM calls it `reasoning`.
    """

    name: str
    max_input: int
    calls_tools: bool = True
    reasons: bool = True
    reasoning_field: str = "reasoning_content"


@dataclass(frozen=True)
class Reply:
    """An answer before it is cut into a response or a stream. `calls`: (function name, arguments as JSON text)."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    finish: str
    prompt_tokens: int

    @property
    def usage(self) -> Json:
        said = [self.reasoning, self.content, *(arguments for _, arguments in self.calls)]
        done = sum(len(text.split()) for text in said)
        counts = {"prompt_tokens": self.prompt_tokens, "completion_tokens": done}
        return {**counts, "total_tokens": self.prompt_tokens + done}


class Refused(Exception):
    """A request that the gateway answers with an error."""

    def __init__(self, status: int, message: str, code: str) -> None:
        self.status = status
        self.body: Json = {"error": {"message": message, "type": "invalid_request_error", "code": code, "param": None}}
        super().__init__(message)


def read(body: bytes) -> Json:
    """The request as JSON. Refused: it is not an object."""
    try:
        request = json.loads(body)
    except ValueError as error:
        raise Refused(400, f"Failed to parse the request body as JSON: {error}", "json_parse_error") from None
    if not isinstance(request, dict):
        raise Refused(400, "The request body must be a JSON object", "json_parse_error")
    return request


def reply(request: Json, model: Model) -> Reply:
    """The answer to a chat request. Refused: what a gateway would not pass on."""
    messages = _messages(request)
    if request.get("model") not in (None, "", model.name):
        raise Refused(404, f"Model '{request.get('model')}' not found", "model_not_found")
    _check_thinking(request, messages)
    tokens = _tokens(messages)
    if tokens > model.max_input:
        what = f"The input ({tokens} tokens) is longer than the model's context length ({model.max_input} tokens)."
        raise Refused(400, what, "context_length_exceeded")
    return _cut(_say(request, messages, model, tokens), _limit(request))


def _messages(request: Json) -> Sequence[Json]:
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "missing field `messages`", "invalid_request")
    if not all(isinstance(message, dict) and message.get("role") for message in messages):
        raise Refused(400, "messages: each needs a `role`", "invalid_request")
    return messages


def _check_thinking(request: Json, messages: Sequence[Json]) -> None:
    options = request.get("chat_template_kwargs")
    strict = isinstance(options, dict) and options.get("allow_missing_thinking") is False
    if strict and any(m["role"] == "assistant" and not _reasoned(m) for m in messages):
        what = "Failed to apply chat template: assistant message is missing reasoning_content"
        raise Refused(400, f"{what} and allow_missing_thinking is false", "chat_template_error")


def _reasoned(message: Json) -> bool:
    return bool(message.get("reasoning_content") or message.get("reasoning"))


def _text(message: Json) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content)


def _tokens(messages: Sequence[Json]) -> int:
    # four characters a token and four tokens a message: near enough for limits
    return sum(4 + len(_text(message)) // 4 for message in messages)


def _limit(request: Json) -> int | None:
    limit = request.get("max_completion_tokens", request.get("max_tokens"))
    if limit is None:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise Refused(400, f"max_tokens must be at least 1, got {limit!r}", "invalid_request")
    return limit


def _say(request: Json, messages: Sequence[Json], model: Model, tokens: int) -> Reply:
    asked = _text(messages[-1])
    reasoning = f"The user wrote {len(asked.split())} words. I answer briefly." if model.reasons else ""
    name, parameters = _chosen_tool(request) if messages[-1]["role"] != "tool" else (None, {})
    if name is None:
        return Reply(reasoning, _answer(asked), (), "stop", tokens)
    arguments = json.dumps(_sample(parameters), separators=(",", ":"))
    if model.calls_tools:
        return Reply(reasoning, "", ((name, arguments),), "tool_calls", tokens)
    # what a user sees when the parser does not know the model's format: the call as text
    return Reply(reasoning, f"<|start|>assistant to={name}<|channel|>analysis {arguments}<|call|>", (), "stop", tokens)


def _answer(asked: str) -> str:
    total = re.search(r"(\d+)\s*\+\s*(\d+)", asked)
    if total:
        return str(int(total[1]) + int(total[2]))
    return f"You wrote: {asked}"


def _chosen_tool(request: Json) -> tuple[str | None, Json]:
    """The function to call: the one that `tool_choice` names, else the first."""
    tools, choice = request.get("tools"), request.get("tool_choice")
    if not isinstance(tools, list) or not tools or choice == "none":
        return None, {}
    functions = [
        tool["function"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    ]
    wanted = (
        choice["function"].get("name")
        if isinstance(choice, dict) and isinstance(choice.get("function"), dict)
        else None
    )
    matching = [function for function in functions if wanted in (None, function.get("name"))]
    if not matching:
        raise Refused(400, f"tool_choice names no tool of this request: {wanted!r}", "invalid_request")
    return str(matching[0].get("name")), matching[0].get("parameters") or {}


def _sample(schema: Json) -> object:
    """A value that the JSON Schema takes."""
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    simple: Json = {"string": "Paris", "integer": 7, "number": 7.5, "boolean": True, "null": None}
    kind = schema.get("type", "object")
    if isinstance(kind, str) and kind in simple:
        return simple[kind]
    items, properties = schema.get("items"), schema.get("properties")
    if kind == "array":
        return [_sample(items)] if isinstance(items, dict) else []
    return {key: _sample(part) for key, part in properties.items()} if isinstance(properties, dict) else {}


def _cut(full: Reply, limit: int | None) -> Reply:
    """The reply within `limit` tokens: reasoning spends them before the answer."""
    reasoning, content = full.reasoning.split(), full.content.split()
    if limit is None or full.calls or len(reasoning) + len(content) <= limit:
        return full
    left = max(0, limit - len(reasoning))
    return Reply(" ".join(reasoning[:limit]), " ".join(content[:left]), (), "length", full.prompt_tokens)


def _calls(said: Reply) -> list[Json]:
    return [
        {"index": at, "id": f"call_{at:024d}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(said.calls)
    ]


def response(said: Reply, model: Model, created: int) -> Json:
    """The plain response; `tool_calls` and `reasoning_content` are left out where there are none."""
    message: dict[str, object] = {"role": "assistant", "content": said.content or None}
    if said.reasoning:
        message[model.reasoning_field] = said.reasoning
    if said.calls:
        message["tool_calls"] = [{key: call[key] for key in call if key != "index"} for call in _calls(said)]
    choice = {"index": 0, "message": message, "finish_reason": said.finish, "logprobs": None}
    head = {"id": f"chatcmpl-{created}", "object": "chat.completion", "created": created, "model": model.name}
    return {**head, "choices": [choice], "usage": said.usage}


def _pieces(text: str) -> list[str]:
    return re.findall(r"\S+\s*", text)


def _deltas(said: Reply, field: str) -> Iterator[Json]:
    yield {"role": "assistant", "content": ""}
    yield from ({field: piece} for piece in _pieces(said.reasoning))
    yield from ({"content": piece} for piece in _pieces(said.content))
    for call, (name, arguments) in zip(_calls(said), said.calls, strict=True):
        yield {"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]}
        yield {"tool_calls": [{"index": call["index"], "function": {"arguments": arguments}}]}


def stream(said: Reply, model: Model, created: int, *, usage: bool) -> Iterator[bytes]:
    """The response as server-sent events; `usage` adds the last chunk that `stream_options.include_usage` asks for."""
    head = {"id": f"chatcmpl-{created}", "object": "chat.completion.chunk", "created": created, "model": model.name}
    ends: list[tuple[Json, str | None]] = [
        *((delta, None) for delta in _deltas(said, model.reasoning_field)),
        ({}, said.finish),
    ]
    for delta, finish in ends:
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    if usage:
        yield _event({**head, "choices": [], "usage": said.usage})
    yield b"data: [DONE]\n\n"


def _event(chunk: Json) -> bytes:
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"
