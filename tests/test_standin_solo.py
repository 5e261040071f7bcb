"""The stand-in for vLLM and SGLang as a program: what it takes, prints, answers and dies of, as they do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from beamdeploy.engines.log import engine_logs
from beamdeploy.sandbox import checkpoint
from tests.test_standin_engine import free_port

BOTH = ("vllm", "sglang")
READY = {"vllm": "/v1/models", "sglang": "/ready"}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A complete checkpoint: nvfp4 and dflash2."""
    return checkpoint.write(tmp_path / "models")


def words(engine: str, models: Path, port: int = 8000, *more: str) -> list[str]:
    """Beam's command for an engine, with weights that lie here."""
    if engine == "vllm":
        drafting = {"method": "dflash", "model": str(models / "dflash2"), "num_speculative_tokens": 15}
        own = ["serve", str(models / "nvfp4"), "--tensor-parallel-size", "4", "--max-model-len", "131072"]
        own += ["--enable-auto-tool-choice", "--speculative-config", json.dumps(drafting)]
    else:
        own = ["serve", "--model-path", str(models / "nvfp4"), "--tp-size", "4", "--context-length", "131072"]
        own += ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", str(models / "dflash2")]
    shared = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "Beam"]
    return [*own, *shared, "--tool-call-parser", "beam", "--reasoning-parser", "beam", *more]


def started(
    engine: str, given: list[str], tmp_path: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    settings = {"STANDIN_LOAD_SECONDS": "0.05", "BEAMDEPLOY_STANDIN_ARGV": str(tmp_path / "argv.json"), **(env or {})}
    return subprocess.Popen(
        [sys.executable, "-m", "beamdeploy.sandbox.solo", engine, *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **settings},
        cwd=Path(__file__).parents[1],
    )


def ended(engine: str, given: list[str], tmp_path: Path, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    process = started(engine, given, tmp_path, env)
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out


@contextmanager
def serving(
    engine: str, models: Path, tmp_path: Path, *more: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    port = free_port()
    process = started(engine, words(engine, models, port, *more), tmp_path, env)
    try:
        deadline = time.monotonic() + 30
        while get(port, "/health")[0] == 0 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        yield port, process
    finally:
        process.kill()
        process.communicate()


def get(port: int, path: str, body: object = None, key: str = "") -> tuple[int, Any]:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else text
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except OSError:
        return 0, None


def until(port: int, path: str) -> int:
    deadline = time.monotonic() + 30
    while (status := get(port, path)[0]) != 200 and time.monotonic() < deadline:
        time.sleep(0.02)
    return status


@pytest.mark.parametrize("engine", BOTH)
def test_it_becomes_ready_as_that_engine_does_and_says_so_in_its_log(engine: str, models: Path, tmp_path: Path) -> None:
    with serving(engine, models, tmp_path) as (port, process):
        assert until(port, READY[engine]) == 200
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    log = engine_logs()[engine]
    phases = [
        phase.phase for line in out.replace("\r", "\n").splitlines() for phase in log.phases if phase.regex.search(line)
    ]
    assert list(dict.fromkeys(phases)) == list(dict.fromkeys(phases, None))
    assert phases[0] == "distributed init"
    assert phases[-1] == "ready"
    assert {"target weights", "KV cache", "graph capture"} <= set(phases)
    assert any(log.recognise.search(line) for line in out.splitlines())


@pytest.mark.parametrize(("engine", "field"), [("vllm", "reasoning"), ("sglang", "reasoning_content")])
def test_reasoning_comes_in_the_engines_own_field(engine: str, field: str, models: Path, tmp_path: Path) -> None:
    with serving(engine, models, tmp_path) as (port, _):
        until(port, READY[engine])
        asked = {"model": "Beam", "messages": [{"role": "user", "content": "2 + 2"}]}
        message = get(port, "/v1/chat/completions", asked)[1]["choices"][0]["message"]
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        called = get(port, "/v1/chat/completions", {**asked, "tools": [tool]})[1]["choices"][0]["message"]
    assert set(message) == {"role", "content", field}
    assert message["content"] == "4"
    assert called["tool_calls"][0]["function"]["name"] == "f"


def test_vllm_counts_what_its_drafter_does(models: Path, tmp_path: Path) -> None:
    with serving("vllm", models, tmp_path) as (port, _):
        until(port, "/v1/models")
        assert "vllm:spec_decode_num_draft_tokens_total" in get(port, "/metrics")[1]
        assert get(port, "/readiness")[0] == 404


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--no-such-flag",), "unrecognized arguments: --no-such-flag"),
        (("--dtype", "fp3"), "invalid choice: 'fp3'"),
    ],
)
def test_wrong_arguments_end_it_at_once_with_2(
    engine: str, more: tuple[str, ...], said: str, models: Path, tmp_path: Path
) -> None:
    status, out = ended(engine, words(engine, models, 8000, *more), tmp_path)
    assert (status, "Load" in out) == (2, False)
    assert said in out


def test_vllm_takes_underscores_and_sglang_abbreviations(models: Path, tmp_path: Path) -> None:
    broken = {"STANDIN_FAULT": "crash-at-start"}
    assert ended("vllm", words("vllm", models, 8000, "--max_num_seqs", "8"), tmp_path, broken)[0] == 1
    assert ended("sglang", words("sglang", models, 8000, "--max-running-req", "8"), tmp_path, broken)[0] == 137
    assert ended("vllm", words("vllm", models, 8000, "--max-num-se", "8"), tmp_path, broken)[0] == 2


@pytest.mark.parametrize(
    ("engine", "more", "env", "status", "said"),
    [
        ("vllm", ("--max-num-batched-tokens", "4", "--max-num-seqs", "8"), {}, 1, "must be greater than or equal to"),
        ("vllm", ("--quantization", "fp8"), {}, 1, "does not match the quantization method"),
        ("vllm", ("--tool-call-parser", "bean"), {}, 1, "invalid tool call parser: bean"),
        ("sglang", ("--tool-call-parser", "bean"), {}, 2, "invalid choice: 'bean'"),
        ("vllm", ("--attention-backend", "trtllm_mha"), {}, 1, "KeyError: 'trtllm_mha'"),
        ("vllm", (), {"STANDIN_CACHE_TOKENS": "1000"}, 1, "estimated maximum model length is 1000"),
        ("vllm", (), {"NVIDIA_VISIBLE_DEVICES": "0,1"}, 1, "World size (4) is larger than the number"),
        ("vllm", (), {"STANDIN_FAULT": "cuda-oom"}, 1, "CUDA out of memory"),
        ("vllm", (), {"STANDIN_FAULT": "graph-oom"}, 1, "EngineCore failed to start"),
        ("sglang", ("--chunked-prefill-size", "100", "--page-size", "64"), {}, 137, "divisible by page_size"),
        ("sglang", ("--context-length", "9999999"), {}, 137, "greater than the derived context_length"),
        ("sglang", (), {"STANDIN_FAULT": "graph-oom"}, 137, "Capture cuda graph failed"),
        ("sglang", (), {"STANDIN_FAULT": "crash-at-start"}, 137, "Received sigquit from a child process"),
    ],
)
def test_what_it_dies_of(
    engine: str, more: tuple[str, ...], env: dict[str, str], status: int, said: str, models: Path, tmp_path: Path
) -> None:
    found = ended(engine, words(engine, models, 8000, *more), tmp_path, env)
    assert found[0] == status, found[1]
    assert said in found[1]


@pytest.mark.parametrize(("engine", "status"), [("vllm", 0), ("sglang", 137)])
def test_its_exit_status_when_it_dies_while_serving(engine: str, status: int, models: Path, tmp_path: Path) -> None:
    fault = {"STANDIN_FAULT": "die-after-ready", "STANDIN_FAULT_SECONDS": "0.1"}
    found = ended(engine, words(engine, models, free_port()), tmp_path, fault)
    assert found[0] == status, found[1]


def test_sglang_without_a_host_is_reached_from_inside_only(models: Path, tmp_path: Path) -> None:
    given = [word for word in words("sglang", models, free_port()) if word not in ("--host", "127.0.0.1")]
    process = started("sglang", given, tmp_path)
    try:
        port = int(given[given.index("--port") + 1])
        assert until(port, "/ready") == 200
        listening = subprocess.run(
            ["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=False
        ).stdout
        assert listening == "" or f"127.0.0.1:{port}" in listening
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("engine", BOTH)
def test_a_server_that_is_never_ready_answers_503(engine: str, models: Path, tmp_path: Path) -> None:
    with serving(engine, models, tmp_path, env={"STANDIN_FAULT": "never-ready"}) as (port, _):
        assert get(port, READY[engine])[0] == 503
        assert get(port, "/health")[0] == 200
