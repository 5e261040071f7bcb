"""Rules on what is sent with every request, and on what the model's publisher recommends."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.rules.rule import Finding, Rule, Subject, closest
from beamdeploy.rules.values import unknown

_ROOM = 1024  # tokens that a reasoning model needs before it answers, at the very least


def _temperature(subject: Subject) -> Iterator[Finding]:
    temperature = subject.recipe.request.get("temperature")
    if temperature is not None and temperature > 2:
        what = f"request.temperature: {temperature} is above 2, the highest of the OpenAI API"
        yield Finding("request.temperature", what, "Use 0 to 2.")


def _longer(subject: Subject) -> Iterator[Finding]:
    tokens, length = subject.recipe.request.get("max_tokens"), subject.recipe.engine.max_model_len
    if tokens is not None and length is not None and tokens >= length:
        what = f"request.max_tokens: {tokens} leaves no room for a prompt in engine.max_model_len: {length}"
        yield Finding("request.max_tokens", what, f"Use less than {length}, or raise engine.max_model_len.")


def _short(subject: Subject) -> Iterator[Finding]:
    tokens, reasoning = subject.recipe.request.get("max_tokens"), subject.recipe.parsers.reasoning is not None
    if tokens is not None and tokens < _ROOM and (reasoning or (subject.model is not None and subject.model.reasoning)):
        what = f"request.max_tokens: {tokens} may be spent on reasoning before any answer"
        yield Finding("request.max_tokens", what, "Give 2048 or more.")


def _recommended(subject: Subject) -> Iterator[Finding]:
    if subject.model is None:
        return
    missing = [name for name in subject.model.sampling if name not in subject.recipe.request]
    if missing:
        said = ", ".join(f"{name}: {subject.model.sampling[name]}" for name in missing)
        what = f"request leaves out {' and '.join(missing)}; the engine takes no default from the checkpoint"
        yield Finding("request", what, f"The publisher of {subject.model.name} recommends {said}.", key=True)


def _template(subject: Subject) -> Iterator[Finding]:
    if subject.model is None:
        return
    given = subject.recipe.request.get("chat_template_kwargs", {})
    for name, value in subject.model.template.items():
        if name not in given:
            said = f"{name}: {str(value).lower()}"
            what = f"request.chat_template_kwargs lacks {said}, which the publisher of {subject.model.name} recommends"
            remedy = "Add it: a request whose history lost its reasoning then fails instead of answering worse."
            path = "request.chat_template_kwargs" if given else "request"
            yield Finding(path, what, remedy, key=True)


def _option(subject: Subject) -> Iterator[Finding]:
    if subject.model is None:
        return
    known = subject.model.template_options
    for name in subject.recipe.request.get("chat_template_kwargs", {}):
        near = None if name in known else closest(name, known, 0.75)
        if near is not None:
            what = f"request.chat_template_kwargs.{name}: the template of {subject.model.name} ignores this option"
            path = ("request", "chat_template_kwargs", name)
            yield Finding(path, what, f"Did you mean {near}?", key=True)


def _kind(subject: Subject) -> Iterator[Finding]:
    given = subject.recipe.request.get("chat_template_kwargs", {})
    for name, value in (subject.model.template if subject.model else {}).items():
        if name in given and type(given[name]) is not type(value):
            what = f"request.chat_template_kwargs.{name}: {given[name]} is not of the kind that the template reads"
            yield Finding(("request", "chat_template_kwargs", name), what, f"Write {str(value).lower()}.")


def _parsers(subject: Subject) -> Iterator[Finding]:
    if subject.model is None:
        return
    for kind, name in subject.model.parsers.items():
        said = subject.setting(f"parsers.{kind}")
        if said is None:
            what = f"parsers.{kind} is not set: {subject.model.name}'s text would reach clients as the model wrote it"
            yield Finding(
                "parsers" if subject.setting("parsers") else (), what, f"Set parsers.{kind}: {name}.", key=True
            )
        elif said != name and unknown(subject, f"parsers.{kind}") is None:
            what = f"parsers.{kind}: {said} reads another model's text, {subject.model.name} has {name}"
            yield Finding(f"parsers.{kind}", what, f"Write {name}.")


RULES = (
    Rule(
        "BD430",
        "The temperature is out of range",
        "warning",
        "Engines that hold to the OpenAI API refuse more than 2 with every request.",
        "request:\n  temperature: 7  # <-",
        "request:\n  temperature: 0.7",
        "OpenAI API reference, chat completions",
        _temperature,
    ),
    Rule(
        "BD431",
        "max_tokens leaves no room for a prompt",
        "error",
        "Prompt and answer share the context; a request that asks for all of it is refused.",
        "request:\n  max_tokens: 131072  # <-",
        "request:\n  max_tokens: 2048",
        "OpenAI API reference, chat completions",
        _longer,
    ),
    Rule(
        "BD432",
        "max_tokens is little for a reasoning model",
        "warning",
        "The reasoning counts too: an answer may be empty, with finish_reason length.",
        "request:\n  max_tokens: 64  # <-",
        "request:\n  max_tokens: 2048",
        "the publisher's page of Beam",
        _short,
    ),
    Rule(
        "BD433",
        "Recommended sampling values are not sent",
        "info",
        "TokenSpeed takes no sampling defaults from the checkpoint, so that each request must say them.",
        "request:  # <-\n  temperature: null",
        "request:\n  temperature: 0.7\n  top_p: 0.99",
        "the publisher's page of Beam; the drafter's card",
        _recommended,
    ),
    Rule(
        "BD434",
        "A recommended option of the chat template is not sent",
        "info",
        "With allow_missing_thinking: false a request fails when an earlier turn lacks its reasoning, which would "
        "otherwise lower quality in silence. TokenSpeed has no server-wide default.",
        "request:  # <-\n  chat_template_kwargs: null",
        "request:\n  chat_template_kwargs:\n    allow_missing_thinking: false",
        "the publisher's page of Beam",
        _template,
    ),
    Rule(
        "BD435",
        "The chat template knows no such option",
        "warning",
        "Templates ignore options that they do not know.",
        "request:\n  chat_template_kwargs:\n    allow_missing_thinkng: false  # <-",
        "request:\n  chat_template_kwargs:\n    allow_missing_thinking: false",
        "the publisher's page of Beam",
        _option,
    ),
    Rule(
        "BD436",
        "The parser is not the model's",
        "warning",
        "Parsers cut reasoning and tool calls out of the model's own format. With none, or another model's, clients "
        "get raw text.",
        "parsers:\n  tool_call: qwen  # <-",
        "parsers:\n  tool_call: beam",
        "the publisher's page of Beam; vLLM 0.33.0 and SGLang 0.5.23 parser lists",
        _parsers,
    ),
    Rule(
        "BD437",
        "The chat template's option has another kind of value",
        "warning",
        'Templates test it for truth: any text counts as true, also "false".',
        'request:\n  chat_template_kwargs:\n    allow_missing_thinking: "false"  # <-',
        "request:\n  chat_template_kwargs:\n    allow_missing_thinking: false",
        "Jinja, tests for truth",
        _kind,
    ),
)
