"""A start as its log tells it: phase, count and verdict at every moment, and what is progress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from beamdeploy.engines.log import engine_logs
from beamdeploy.errors import Problem
from beamdeploy.recipe import Ready, Recipe, load_recipe
from beamdeploy.startup import (
    Decided,
    Verdict,
    advance,
    begin,
    decisions,
    grown,
    limit_passed,
    log_lines,
    seconds_left,
    verdict,
)
from beamdeploy.watch import since

CORPORA = Path(__file__).parent / "data" / "logs" / "start-up"
BEAM = Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml"
LIMITS = Ready(timeout=2700, stall=600)


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe(str(BEAM))


def rows(name: str) -> tuple[dict[str, str], list[tuple[float, str, str, str]]]:
    """A corpus: engine and limits, then (seconds, what is said, verdict, text with its escapes read)."""
    head, *lines = (CORPORA / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    settings = dict(field.split("=") for field in head.split("\t"))
    return settings, [read(line) for line in lines]


def read(line: str) -> tuple[float, str, str, str]:
    seconds, said, word, *text = line.split("\t")
    unescaped = "".join(text).replace("\\r", "\r").replace("\\x1b", "\x1b")
    return float(seconds), said, word, unescaped


@pytest.mark.parametrize("name", sorted(path.stem for path in CORPORA.glob("*.tsv")))
def test_phase_and_verdict_are_right_at_every_moment(name: str) -> None:
    settings, moments = rows(name)
    limits = Ready(int(settings["timeout"]), int(settings["stall"]))
    state = begin(settings["engine"], 0)
    for seconds, said, word, text in moments:
        state = advance(state, text, seconds)
        assert (state.said, verdict(state, seconds, limits).word) == (said, word), f"{seconds} s: {text}"


@pytest.mark.parametrize("kind", ["healthy", "slow", "stalled", "failed"])
def test_there_is_a_corpus_of_each_engine(kind: str) -> None:
    assert {engine for engine in engine_logs() if (CORPORA / f"{engine}-{kind}.tsv").is_file()} == set(engine_logs())


def last(name: str) -> Decided:
    settings, moments = rows(name)
    state = begin(settings["engine"], 0)
    for seconds, _, _, text in moments:
        state = advance(state, text, seconds)
    return state.decided


def test_what_the_engines_decided_is_read() -> None:
    assert last("tokenspeed-healthy") == Decided(131072, 131071, 1310720, memory=(("weights", 73.9),))
    assert last("vllm-healthy") == Decided(131072, None, 1310720, 10.0, memory=(("kv", 40.12),))
    assert last("sglang-healthy") == Decided(131072, None, 1310720, max_running=8, memory=(("weights", 0.9),))


def test_a_context_that_was_shortened_in_silence_is_a_warning(recipe: Recipe) -> None:
    line = "Single-request token limit: cache=90000 model=131072 effective=90000 max_input=89999"
    decided = advance(begin("tokenspeed", 0), line, 1).decided
    assert decisions(decided, recipe) == (
        Problem(
            "the engine shortened the context to 90000 tokens; engine.max_model_len is 131072",
            "Longer requests are refused. Raise engine.gpu_memory_utilization, lower engine.max_num_seqs, or set "
            "engine.max_model_len to 90000.",
            level="warning",
        ),
    )
    assert decisions(Decided(context=131072), recipe) == decisions(Decided(), recipe) == ()


def test_fewer_requests_at_a_time_than_asked_for_is_a_warning(recipe: Recipe) -> None:
    (problem,) = decisions(Decided(max_running=3), recipe)
    assert (problem.level, problem.what) == (
        "warning",
        "the engine runs 3 requests at a time; engine.max_num_seqs is 8",
    )


def test_growing_gpu_memory_is_progress_and_noise_is_not() -> None:
    first = grown(begin("tokenspeed", 0), 4000, 100)
    assert first.moved == 0, "what another process held before is no growth"
    assert grown(first, 4050, 200).moved == 0
    assert grown(first, 9000, 300).moved == 300
    assert grown(grown(first, 9000, 300), 5000, 400).moved == 300


def test_an_hour_of_slow_loading_is_no_stall() -> None:
    state, limits = begin("vllm", 0), replace(LIMITS, timeout=7200)
    words = set()
    for shard in range(1, 65):
        line = f"Loading safetensors checkpoint shards: {100 * shard // 64:3d}% Completed | {shard}/64 [x]"
        for second in range(56 * (shard - 1), 56 * shard):
            words.add(verdict(state, second, limits).word)
        state = advance(state, line, 56 * shard)
    assert words == {"loading"}


def test_a_stall_is_seen_as_soon_as_its_limit_is_over() -> None:
    state = advance(begin("sglang", 0), "Load weight begin. avail mem=1.0 GB", 10)
    assert [limit_passed(state, now, LIMITS) for now in (610, 611, 2701)] == ["", "stall", "timeout"]
    assert verdict(state, 611, LIMITS) == Verdict("stalled", 601)


def test_the_time_left_is_told_from_the_pace() -> None:
    state = advance(begin("vllm", 0), "Starting to load model /weights...", 100)
    state = advance(state, "Loading safetensors checkpoint shards:  25% Completed | 16/64 [x]", 180)
    assert verdict(state, 180, LIMITS) == Verdict("loading", 0, 240.0)


USUAL = {"container": 0.0, "target weights": 100.0, "KV cache": 340.0, "ready": 400.0}


def test_the_time_left_is_that_of_last_time_by_the_pace_of_now() -> None:
    state = begin("vllm", 1000)
    assert [seconds_left(state, now, USUAL) for now in (1000, 1060, 1200)] == [400, 340, 300]
    state = advance(state, "Starting to load model /weights...", 1120)
    assert (seconds_left(state, 1120, {}), seconds_left(state, 1180, USUAL)) == (None, 240)
    state = advance(state, "Loading safetensors checkpoint shards:  25% Completed | 16/64 [x]", 1220)
    assert (seconds_left(state, 1220, {}), seconds_left(state, 1220, USUAL)) == (300, 360)
    assert state.entered == (("container", 0.0), ("target weights", 120.0))


def test_an_engine_without_a_log_file_still_has_its_limits() -> None:
    state = advance(begin("other", 0), "Loading safetensors checkpoint shards:  25% Completed | 16/64", 5)
    assert (state.said, state.last[:7], limit_passed(state, 601, LIMITS)) == ("container", "Loading", "stall")


def test_lines_are_split_at_carriage_returns_and_freed_of_colours_and_stamps() -> None:
    text = "2026-11-30T17:00:00.123456789Z \x1b[1;32mone\x1b[0m\r\n\r  \n\x1b]0;title\x07two\rthree\x07"
    assert list(log_lines(text)) == ["one", "two", "three"]


def test_the_log_of_the_last_run_begins_a_second_before_docker_says_that_it_started() -> None:
    assert since("2026-11-30T17:00:05.123456789Z") == "2026-11-30T17:00:04.123456+00:00"
    assert [since(text) for text in ("0001-01-01T00:00:00Z", "", "soon")] == ["0", "0", "0"]
