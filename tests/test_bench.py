"""The figures of a benchmark: percentiles, levels, comparison, plot; and load without a server."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamdeploy.bench import Wanted, bench
from beamdeploy.bench.figures import (
    Change,
    Level,
    Spread,
    accepted_share,
    as_data,
    changes,
    level,
    load_earlier,
    percentile,
)
from beamdeploy.bench.load import Run, Sample, Size, calibrated, prompt, run, sample
from beamdeploy.bench.plot import svg
from beamdeploy.errors import HostError, InputError
from beamdeploy.exchange import Heard, Request
from beamdeploy.recipe import load_recipe
from beamdeploy.served import served_by

BEAM = served_by(load_recipe(str(Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")))


def heard(*pieces: str, tokens: int = 3, prompt_tokens: int = 5) -> Heard:
    """A stream of which the first piece comes after 1 s, and each other 0.5 s later."""
    texts = [json.dumps({"choices": [{"delta": {"content": piece}, "finish_reason": None}]}) for piece in pieces]
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}
    events = [*texts, json.dumps({"choices": [], "usage": counts}), "[DONE]"]
    timed = tuple((1 + 0.5 * at, event) for at, event in enumerate(events))
    return Heard(200, "text/event-stream", events=timed, seconds=timed[-1][0])


def test_a_sample_has_the_times_of_its_tokens() -> None:
    assert sample(heard("a", "b", "c")) == Sample(1.0, 2.0, 3.0, 5, 3)
    assert sample(Heard(503, body="busy", seconds=0.1)) == Sample(seconds=0.1, error="HTTP 503: busy")
    assert sample(Heard(reason="no answer within 600 s")).error == "no answer within 600 s"
    assert sample(heard()).error == "the answer held no text"


def test_a_server_that_refuses_ignore_eos_is_asked_without_it() -> None:
    asked: list[dict[str, Any]] = []

    def strict(request: Request, timeout: float, _: object) -> Heard:
        if request.body is None:
            return Heard(404)
        body = json.loads(request.body)
        asked.append(body)
        if "ignore_eos" in body:
            return Heard(422, body="Unexpected fields in the request: {'ignore_eos'}")
        return heard("a", prompt_tokens=len(body["messages"][0]["content"].split()))

    report = bench(strict, BEAM, "gpu-a", Wanted((1,), 2, Size(100, 3)), None, lambda *_: None)
    assert (report.exit, [problem.level for problem in report.all_problems]) == (0, ["warning"])
    assert ["ignore_eos" in body for body in asked] == [True, False, False, False, False]


def test_a_level_counts_only_what_ended_well() -> None:
    samples = (Sample(1.0, 2.0, 2.5, 10, 5), Sample(3.0, 5.0, 5.0, 12, 5), Sample(error="HTTP 500: x"))
    assert level(Run(2, samples, 10.0), 0.5) == Level(
        concurrency=2,
        requests=3,
        failed=1,
        seconds=10.0,
        input_tokens=11.0,
        output_tokens=5.0,
        ttft=Spread(2.0, 2.8, 2.98),
        inter_token=Spread(0.375, 0.475, 0.4975),
        latency=Spread(3.75, 4.75, 4.975),
        user_tokens_per_second=1.5,
        tokens_per_second=1.0,
        requests_per_second=0.2,
        acceptance=0.5,
    )
    nothing = level(Run(1, (Sample(error="x"),), 1.0), None)
    assert (nothing.ttft, nothing.user_tokens_per_second, nothing.tokens_per_second) == (None, None, 0.0)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_a_percentile_lies_among_its_values(values: list[float], part: float) -> None:
    assert min(values) - 1e-6 <= percentile(values, part) <= max(values) + 1e-6
    assert percentile(values, 0) == min(values)
    assert percentile(values, 100) == max(values)


def test_acceptance_is_that_of_the_level_alone() -> None:
    assert accepted_share((10, 100), (40, 150)) == 0.6
    assert accepted_share((10, 100), (10, 100)) is None
    assert accepted_share(None, (1, 2)) is None
    assert accepted_share((10, 100), (1, 2)) is None  # it was started again between the looks


LEVELS = as_data([level(Run(n, (Sample(0.1 * n, 1.0, 1.0, 9, 10),), 1.0), None) for n in (1, 4)])


def test_two_runs_are_compared_level_by_level() -> None:
    faster: list[dict[str, Any]] = [{**LEVELS[1], "tokens_per_second": 20.0}]
    assert Change(4, "tokens_per_second", 10.0, 20.0) in changes(faster, LEVELS)
    assert {each.concurrency for each in changes(faster, LEVELS)} == {4}
    assert changes(LEVELS, []) == ()


def test_an_earlier_run_that_is_none_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    report = {"kind": "BenchReport", "hosts": {"a": {"levels": LEVELS}}}
    file.write_text(json.dumps(report), encoding="utf-8")
    assert load_earlier(str(file), "a") == load_earlier(str(file), "renamed") == LEVELS
    for text in ("", "[]", '{"hosts": {}}', '{"kind": "StatusReport", "hosts": {"a": {"levels": []}}}', '{"hosts": 3}'):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="--against"):
            load_earlier(str(file), "a")
    with pytest.raises(InputError, match="--against"):
        load_earlier(str(tmp_path / "none"), "a")


def test_the_plot_has_a_panel_a_figure_and_an_earlier_run_dashed() -> None:
    root = ElementTree.fromstring(svg(LEVELS, LEVELS[:1], "a <model> & more"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}g")) == 4
    dashes = [line.attrib["stroke-dasharray"] for line in root.iter(f"{space}polyline")]
    assert dashes == ["5 4", "none"] * 4
    assert next(each.text for each in root.iter(f"{space}text")) == "a <model> & more"
    ElementTree.fromstring(svg([], [], ""))


def test_words_are_counted_by_the_server_itself() -> None:
    def carry(request: Request, timeout: float, on_event: object = None) -> Heard:
        text = json.loads(request.body or b"")["messages"][0]["content"]
        return heard("a", prompt_tokens=20 + 2 * len(text.split()))

    words = calibrated(carry, BEAM, 1024)
    assert 20 + 2 * len(prompt(words, 1).split()) == 1024
    assert prompt(9, 1) == prompt(9, 1) != prompt(9, 2)
    with pytest.raises(HostError, match="nothing answers"):
        calibrated(lambda request, timeout, on_event: Heard(reason="nothing answers there"), BEAM, 10)


def test_a_token_that_is_no_text_is_counted_all_the_same() -> None:
    def carry(request: Request, timeout: float, on_event: object = None) -> Heard:
        return heard(prompt_tokens=len(json.loads(request.body or b"{}")["messages"][0]["content"].split()))

    assert calibrated(carry, BEAM, 100) == 98
    with pytest.raises(HostError, match="it counts no tokens"):
        calibrated(lambda request, timeout, on_event: heard("a", prompt_tokens=0), BEAM, 10)


def test_so_many_requests_are_under_way_and_no_more() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def carry(request: Request, timeout: float, on_event: object = None) -> Heard:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1
        return heard("a", "b")

    counts: list[int] = []
    ended = run(carry, tuple(Request("/", b"%d" % number) for number in range(20)), 4, counts.append)
    assert (len(ended.samples), most[0], counts) == (20, 4, list(range(1, 21)))


def test_a_lost_session_ends_the_run() -> None:
    def carry(request: Request, timeout: float, on_event: object = None) -> Heard:
        raise ConnectionError("lost")

    with pytest.raises(ConnectionError):
        run(carry, (Request("/"),) * 3, 2, lambda count: None)
