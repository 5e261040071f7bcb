"""The checks of the smoke contract: requests that are built, and answers that are judged, without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from beamdeploy.completion import Call, Said, delta, plain, streamed, turn
from beamdeploy.contract import _report
from beamdeploy.engines.metrics import accepted_and_drafted, metrics_of
from beamdeploy.exchange import Heard, Request
from beamdeploy.outcome import Report
from beamdeploy.recipe import load_recipe
from beamdeploy.report import as_junit
from beamdeploy.sandbox.chat import Model, Refused, read, reply, response, stream
from beamdeploy.served import Served, served_by
from beamdeploy.smoke import CHECKS, Outcome, chosen, failures, smoke, summary

BEAM = str(Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")


def beam(*overrides: tuple[str, str]) -> Served:
    return served_by(load_recipe(BEAM, overrides))


def standin(model: Model, change: Callable[[Request, Heard], Heard] | None = None) -> Callable[..., Heard]:
    """The stand-in's gateway as a function; `change` spoils an answer."""

    def carry(request: Request, timeout: float, on_event: object = None) -> Heard:
        heard = answer(request, model)
        return change(request, heard) if change else heard

    return carry


def answer(request: Request, model: Model) -> Heard:
    if request.body is None:
        models = {"data": [{"id": model.name}]}
        return Heard(200, body=json.dumps(models)) if request.path == "/v1/models" else Heard(404)
    try:
        asked = read(request.body)
        said = reply(asked, model)
    except Refused as refused:
        return Heard(refused.status, "application/json", json.dumps(refused.body))
    if not asked.get("stream"):
        return Heard(200, "application/json", json.dumps(response(said, model, 0)))
    lines = [line.decode().strip().removeprefix("data: ") for line in stream(said, model, 0, usage=True)]
    return Heard(200, "text/event-stream", events=tuple((0.1 * at, line) for at, line in enumerate(lines)))


NAME = "Beam-1.0-501B-A23B"
GOOD = Model(NAME, max_input=131071)


def verdicts(outcomes: tuple[Outcome, ...]) -> dict[str, str]:
    return {each.check: each.verdict for each in outcomes}


def run(carry: Callable[..., Heard], served: Served | None = None, *names: str) -> dict[str, str]:
    return verdicts(smoke(carry, served or beam(), names or ("all",), lambda phase, detail: None))


def test_a_right_server_passes_every_check_that_fits() -> None:
    expected = {**dict.fromkeys(CHECKS, "pass"), "acceptance": "skip"}
    assert run(standin(GOOD)) == expected


def test_each_fault_of_a_server_is_found_by_its_check() -> None:
    assert run(standin(Model("other-7b", 131071)), None, "models") == {"models": "fail"}
    assert run(standin(Model(NAME.lower(), 131071)), None, "models") == {"models": "fail"}
    assert run(standin(Model(NAME, 131071, calls_tools=False)), None, "tools") == {"tools": "fail"}
    assert run(standin(Model(NAME, 131071, reasons=False)), None, "reasoning") == {"reasoning": "fail"}
    assert run(standin(Model(NAME, 10**9)), None, "too-long") == {"too-long": "fail"}


def test_checks_that_do_not_fit_the_recipe_are_skipped_with_the_reason() -> None:
    served = beam(("parsers", "{}"), ("request.chat_template_kwargs", "{allow_missing_thinking: true}"))
    outcomes = smoke(standin(GOOD), served, ("tools", "reasoning", "missing-thinking"), lambda phase, detail: None)
    assert [(each.verdict, each.why) for each in outcomes] == [
        ("skip", "the recipe names no parsers.tool_call"),
        ("skip", "the recipe names no parsers.reasoning"),
        ("skip", "request.chat_template_kwargs.allow_missing_thinking is not false"),
    ]


def test_the_same_request_is_made_once_and_carries_the_recipes_values() -> None:
    made: list[Request] = []

    def carry(request: Request, timeout: float, on_event: object = None) -> Heard:
        made.append(request)
        return answer(request, GOOD)

    run(carry, None, "completion", "usage", "reasoning", "turns")
    bodies = [json.loads(request.body or b"") for request in made]
    assert [len(body["messages"]) for body in bodies] == [1, 3]
    assert {key: value for key, value in bodies[0].items() if key not in ("messages", "model")} == beam().request
    assert bodies[1]["messages"][1]["reasoning_content"]


def test_after_a_request_without_any_answer_nothing_more_is_asked() -> None:
    made: list[Request] = []

    def carry(request: Request, timeout: float, on_event: object = None) -> Heard:
        made.append(request)
        return answer(request, GOOD) if request.body is None else Heard(reason="no answer within 120 s")

    assert run(carry) == {**dict.fromkeys(CHECKS, "skip"), "models": "pass", "completion": "fail"}
    assert len(made) == 2


def spoiled(path: str, **fields: object) -> Callable[[Request, Heard], Heard]:
    """An answer of which the message (or the top) is another."""

    def change(request: Request, heard: Heard) -> Heard:
        if heard.status != 200 or request.body is None or heard.events:
            return heard
        body = json.loads(heard.body)
        place: dict[str, Any] = body["choices"][0]["message"] if path == "message" else body
        place.update(fields)
        return Heard(200, heard.kind, json.dumps(body))

    return change


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("usage", spoiled("top", usage=None), "the answer holds no usage"),
        (
            "usage",
            spoiled("top", usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 4}),
            "the counts do not add up: prompt_tokens 1, completion_tokens 2, total_tokens 4",
        ),
        ("completion", spoiled("message", content="", reasoning_content=""), "no text came back (finish_reason stop)"),
        (
            "reasoning",
            spoiled("message", content="<think>hm</think>42", reasoning_content=""),
            "the answer holds <think>: <think>hm</think>42",
        ),
        (
            "reasoning",
            spoiled("message", content="hm 42", reasoning_content="hm"),
            "the reasoning is in the answer as well",
        ),
        (
            "tools",
            spoiled("message", tool_calls=[{"function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}]),
            'its arguments are {"city": "Rome"}',
        ),
        (
            "tools",
            spoiled("message", tool_calls=[{"function": {"name": "get_weather", "arguments": "{'city'"}}]),
            "its arguments are no JSON: {'city'",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_answer_is_said(name: str, change: Callable[[Request, Heard], Heard], why: str) -> None:
    (outcome,) = smoke(standin(GOOD, change), beam(), (name,), lambda phase, detail: None)
    assert (outcome.verdict, outcome.why) == ("fail", why)


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        (lambda events: events[:-1], "it did not end with [DONE]"),
        (lambda events: events[:-2] + events[-1:], "include_usage was asked for, and no usage came"),
        (lambda events: events[:1] + events[-3:], "the stream held no text"),
        (lambda events: events[:2] + events[-3:], "the whole text came in one piece"),
        (lambda events: events[:-3] + events[-2:], "no piece held a finish_reason"),
    ],
)
def test_a_stream_that_does_not_end_properly_is_told(events: Callable[[Any], Any], wrong: str) -> None:
    def change(request: Request, heard: Heard) -> Heard:
        return Heard(heard.status, heard.kind, events=events(heard.events))

    (outcome,) = smoke(standin(GOOD, change), beam(), ("stream",), lambda phase, detail: None)
    assert (outcome.verdict, outcome.why) == ("fail", wrong)


def test_a_refusal_must_be_a_4xx_in_json_and_the_server_must_answer_after_it() -> None:
    def status(code: int, body: str = "{}") -> Callable[[Request, Heard], Heard]:
        return lambda request, heard: Heard(code, body=body) if heard.status == 400 else heard

    def gone(request: Request, heard: Heard) -> Heard:
        return heard if heard.status == 400 else Heard(reason="nothing answers there")

    def why(change: Callable[[Request, Heard], Heard]) -> str:
        (outcome,) = smoke(standin(GOOD, change), beam(), ("malformed",), lambda phase, detail: None)
        assert outcome.verdict == "fail"
        return outcome.why

    assert why(status(500)) == "it gave HTTP 500 instead of a 4xx: {}"
    assert why(status(422, "<html>")) == "HTTP 422, but its body is no JSON object: <html>"
    assert why(gone) == "refused with HTTP 400, and afterwards: nothing answers there"


def test_both_names_of_reasoning_are_read_and_carried_back_under_their_own() -> None:
    for field in ("reasoning", "reasoning_content"):
        body = {"choices": [{"message": {"content": "42", field: "hm"}, "finish_reason": "stop"}]}
        said = plain(json.dumps(body))
        assert said == Said("42", "hm", field, finish="stop", pieces=1)
        assert turn(said) == {"role": "assistant", "content": "42", field: "hm"}


def test_tool_calls_of_a_stream_are_joined() -> None:
    parts: list[Mapping[str, Any]] = [
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}},
        {"index": 0, "function": {"arguments": ": 1}"}},
        {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}},
    ]
    events = [json.dumps({"choices": [{"delta": {"tool_calls": [part]}}]}) for part in parts]
    found = streamed(events)
    assert found is not None
    assert found.calls == (Call("a", "f", '{"x": 1}'), Call("b", "g", "{}"))
    assert streamed(['{"error": "boom"}']) is None
    assert delta("not json") == ("", "")


def test_acceptance_is_counted_over_all_ranks() -> None:
    metrics = metrics_of("tokenspeed")
    assert metrics is not None
    page = (
        "# TYPE tokenspeed:spec_decode_num_accepted_tokens_total counter\n"
        'tokenspeed:spec_decode_num_accepted_tokens_total{model="a",rank="0"} 30.0\n'
        'tokenspeed:spec_decode_num_accepted_tokens_total{model="a",rank="1"} 10.0\n'
        'tokenspeed:spec_decode_num_draft_tokens_total{model="a"} 1e2\n'
    )
    assert accepted_and_drafted(metrics, page) == (40.0, 100.0)
    assert accepted_and_drafted(metrics, "") is None

    def change(request: Request, heard: Heard) -> Heard:
        return Heard(200, body=page) if request.path == metrics.path else heard

    (outcome,) = smoke(standin(GOOD, change), beam(), ("acceptance",), lambda phase, detail: None)
    assert outcome.why == "40 of 100 drafted tokens accepted (40%) since the start"


def test_checks_are_chosen_in_their_order() -> None:
    assert chosen(("tools", "models")) == ("models", "tools")
    assert chosen(("all",)) == tuple(CHECKS)


def test_the_report_counts_and_junit_has_a_case_a_check() -> None:
    outcomes = smoke(
        standin(Model(NAME, 131071, calls_tools=False)), beam(), ("models", "tools", "acceptance"), lambda *said: None
    )
    assert summary(outcomes) == "1 of 3 checks passed, 1 failed, 1 skipped"
    assert [problem.where for problem in failures(outcomes, "gpu-a")] == ["gpu-a"]
    report = Report("Smoke", 6, (_report("gpu-a", (outcomes, ())),))
    root = ElementTree.fromstring(as_junit.dumps(report))
    assert root.attrib == {"name": "beamdeploy smoke", "tests": "3", "failures": "1", "errors": "0"}
    cases = [(case.attrib["name"], [child.tag for child in case]) for case in root.iter("testcase")]
    assert cases == [
        ("models", ["system-out"]),
        ("tools", ["failure", "system-out"]),
        ("acceptance", ["skipped", "system-out"]),
    ]
