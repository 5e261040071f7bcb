"""Checks of what the model answers: list, completion, usage, stream, tools, reasoning, turns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from beamdeploy.completion import Call, Said, chat_request, said, turn, user
from beamdeploy.exchange import Heard, Request
from beamdeploy.served import Served
from beamdeploy.smoke.check import Check, Verdict, answered, failed, once, passed, shortened, skipped, then

QUESTION = user("What is 17 + 25? Answer with the number.")
COUNT = user("Count from 1 to 30 in words, separated by commas, and nothing else.")
"""Long enough that it cannot come in one piece, also of a model that does not reason and drafts many tokens."""
SECOND = user("And 100 + 11?")
TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city now.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, such as Paris."},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
        },
    },
}
WANTED = {"city": "paris", "unit": "celsius"}
WEATHER = user("What is the weather in Paris in degrees celsius? Use the tool get_weather.")
MARKERS = ("<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|return|>", "<think>", "</think>", "<tool_call>")


def list_models(served: Served) -> Request:
    return Request("/v1/models")


def judge_models(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    (answer,) = heard
    if answer.status != 200:
        return failed(f"/v1/models: {answer.reason or f'HTTP {answer.status}: {shortened(answer.body)}'}")
    try:
        names = [str(model["id"]) for model in json.loads(answer.body)["data"]]
    except (ValueError, KeyError, TypeError):
        return failed(f"/v1/models is no model list: {shortened(answer.body)}", "Something else answers on that port.")
    if served.model in names:
        return passed(f"lists {', '.join(names)}")
    remedy = "Another server holds the port, or model.served_name differs (names are compared exactly)."
    return failed(f"lists {', '.join(names) or 'no model'} instead of {served.model}", remedy)


def chat(served: Served) -> Request:
    """The one plain question; checks that ask it share its answer."""
    return chat_request(served.model, (QUESTION,), served.request)


def judge_completion(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    found = answered(heard[0])
    if isinstance(found, Verdict):
        return found
    if found.content.strip():
        return passed(f"answered {shortened(found.content, 60)!r}, finish_reason {found.finish}")
    if found.reasoning and found.finish == "length":
        return passed("reasoned up to max_tokens; request.max_tokens leaves no room for an answer")
    return failed(
        f"no text came back (finish_reason {found.finish or 'none'})", "See the server's log: beamdeploy logs."
    )


def judge_usage(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    found = answered(heard[0])
    return found if isinstance(found, Verdict) else usage_verdict(found.usage)


def usage_verdict(usage: Mapping[str, Any] | None) -> Verdict:
    """Counts must be there, positive, and add up."""
    if not isinstance(usage, Mapping):
        return failed("the answer holds no usage", "Clients cannot count tokens; see the engine's own settings.")
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    counts = [usage.get(name) for name in names]
    told = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
    numbers = [count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count > 0]
    if len(numbers) < len(counts):
        return failed(f"a count is missing or not positive: {told}")
    if numbers[0] + numbers[1] != numbers[2]:
        return failed(f"the counts do not add up: {told}")
    return passed(told)


def stream(served: Served) -> Request:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return chat_request(served.model, (COUNT,), served.request, **options)


def judge_stream(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    (answer,) = heard
    found = answered(answer)
    if isinstance(found, Verdict):
        return found
    wrong = [
        (bool(answer.reason), answer.reason),
        ("event-stream" not in answer.kind, f"the answer is {answer.kind or 'of no kind'}, not text/event-stream"),
        (not found.text, "the stream held no text"),
        (found.pieces == 1, "the whole text came in one piece"),
        (not found.finish, "no piece held a finish_reason"),
        (not found.done, "it did not end with [DONE]"),
        (found.done and answer.events[-1][1] != "[DONE]", "something came after [DONE]"),
        (found.usage is None, "include_usage was asked for, and no usage came"),
    ]
    said_wrong = [what for is_so, what in wrong if is_so]
    if said_wrong:
        return failed("; ".join(said_wrong), "A proxy that buffers, or an engine that ended early: see its log.")
    first, last = answer.events[0][0], answer.events[-1][0]
    return passed(
        f"{found.pieces} pieces, the first after {first:.2f} s, the last after {last:.2f} s, {found.finish}, usage"
    )


def use_tool(served: Served) -> Request:
    return chat_request(served.model, (WEATHER,), served.request, tools=[TOOL])


def judge_tools(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    found = answered(heard[0])
    return found if isinstance(found, Verdict) else tool_verdict(found)


def tool_verdict(found: Said) -> Verdict:
    """One call of get_weather with the asked values, and none of it as text."""
    if found.calls:
        wrong = _wrong_call(found.calls[0]) or _as_text(found)
        return failed(wrong) if wrong else passed(f"{found.calls[0].name}({shortened(found.calls[0].arguments, 80)})")
    if _as_text(found):
        remedy = "parsers.tool_call does not know this model's form of a call, or the engine was not given it."
        return failed(f"the call came as text: {shortened(found.text, 160)}", remedy)
    return failed(f"no tool was called: {shortened(found.text, 160)}", "See parsers.tool_call and the chat template.")


def _as_text(found: Said) -> str:
    marks = [mark for mark in (*MARKERS, "to=get_weather", '"name": "get_weather"') if mark in found.content]
    return f"the text holds {marks[0]}" if marks else ""


def _wrong_call(call: Call) -> str:
    if call.name != "get_weather":
        return f"{call.name or 'nothing'} was called instead of get_weather"
    try:
        values = json.loads(call.arguments)
    except ValueError:
        return f"its arguments are no JSON: {shortened(call.arguments, 160)}"
    if not isinstance(values, dict):
        return f"its arguments are no object: {shortened(call.arguments, 160)}"
    # "Paris, France" is as good
    right = all(str(values.get(name, "")).lower().startswith(value) for name, value in WANTED.items())
    return "" if right and set(values) == set(WANTED) else f"its arguments are {shortened(call.arguments, 160)}"


def judge_reasoning(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    found = answered(heard[0])
    return found if isinstance(found, Verdict) else reasoning_verdict(served, found)


def reasoning_verdict(served: Served, found: Said) -> Verdict:
    """Reasoning stands in a field of its own, and nothing of it in the answer."""
    remedy = "parsers.reasoning does not know this model's form, or the engine was not given it."
    marks = [mark for mark in MARKERS if mark in found.content]
    if marks:
        return failed(f"the answer holds {marks[0]}: {shortened(found.content, 160)}", remedy)
    if not found.reasoning.strip():
        return failed(f"the answer came without reasoning: {shortened(found.content, 160)}", remedy)
    if found.reasoning.strip() in found.content:
        return failed("the reasoning is in the answer as well", remedy)
    other = "" if found.field == served.engine.reasoning_field else f" (not {served.engine.reasoning_field})"
    return passed(f"{len(found.reasoning)} characters in {found.field}{other}")


def second_turn(served: Served, first: Heard) -> Request | None:
    """Goes on with the first answer, its reasoning under the name under which it came."""
    found = said(first)
    return chat_request(served.model, (QUESTION, turn(found), SECOND), served.request) if found else None


def judge_turns(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    if len(heard) < 2:
        found = answered(heard[0])
        return found if isinstance(found, Verdict) else skipped("there was no first answer")
    found = answered(heard[1])
    if isinstance(found, Verdict):
        return found
    first = said(heard[0])
    carried = f"with the first one's {first.field}" if first and first.reasoning else "without reasoning, as the first"
    return passed(f"a second turn, {carried}, is answered") if found.text else failed("the second turn gave no text")


def without_reasoning(served: Served) -> Request:
    """A second turn whose first answer lacks its reasoning."""
    earlier = {"role": "assistant", "content": "42"}
    return chat_request(served.model, (QUESTION, earlier, SECOND), served.request)


def judge_missing_thinking(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    (answer,) = heard
    if answer.status is None:
        return failed(answer.reason)
    if 400 <= answer.status < 500:
        return passed(f"refused: HTTP {answer.status}: {shortened(answer.body, 160)}")
    what = "was answered" if answer.status == 200 else f"gave HTTP {answer.status}: {shortened(answer.body, 160)}"
    remedy = (
        "allow_missing_thinking has no effect here: a client that loses the reasoning gets worse answers unnoticed."
    )
    return failed(f"a second turn that lacks its reasoning {what}", remedy)


def _no_tools(served: Served) -> str:
    return "" if served.recipe.parsers.tool_call else "the recipe names no parsers.tool_call"


def _no_reasoning(served: Served) -> str:
    if not served.recipe.parsers.reasoning:
        return "the recipe names no parsers.reasoning"
    options = served.request.get("chat_template_kwargs", {})
    off = options.get("enable_thinking") is False or served.request.get("reasoning_effort") == "none"
    return "the recipe's request turns reasoning off" if off else ""


def _not_strict(served: Served) -> str:
    options = served.request.get("chat_template_kwargs", {})
    strict = options.get("allow_missing_thinking") is False
    return "" if strict else "request.chat_template_kwargs.allow_missing_thinking is not false"


CHECKS = (
    Check("models", "the model list names the served model", once(list_models), judge_models),
    Check("completion", "a chat with the recipe's request values is answered", once(chat), judge_completion),
    Check("usage", "token counts are positive and add up", once(chat), judge_usage),
    Check("stream", "a stream comes in pieces and ends properly", once(stream), judge_stream),
    Check("tools", "a tool call comes in tool_calls, with the right values", once(use_tool), judge_tools, _no_tools),
    Check("reasoning", "reasoning is apart from the answer", once(chat), judge_reasoning, _no_reasoning),
    Check("turns", "a second turn that carries its reasoning is answered", then(chat, second_turn), judge_turns),
    Check(
        "missing-thinking",
        "a second turn that lacks its reasoning is refused",
        once(without_reasoning),
        judge_missing_thinking,
        _not_strict,
    ),
)
