"""The stand-in engine as a program: what it takes, prints, answers and dies of, as TokenSpeed does."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from beamdeploy.sandbox import checkpoint
from beamdeploy.sandbox.arguments import ArgumentsRefused, flags, parse, split
from beamdeploy.sandbox.engine import FAULTS, pace

PHASES = (
    "Init torch distributed begin. Avail mem=",
    "Load weight begin. avail mem=",
    "100% Completed | 3/3",
    "Load weight end. type=BeamForCausalLM",
    "Load weight begin. avail mem=",
    "100% Completed | 1/1",
    "Load weight end. type=DFlash2BeamDraftModel",
    "Kernel startup tuning with 8192 tokens",
    "Capturing batches: [1, 2, 4, 8]",
    "Single-request token limit: cache=1310720 model=131072 effective=131072 max_input=131071",
    "Device memory summary (rank 0",
    "TokenSpeed engine ready: max_total_num_tokens=1310720 max_req_input_len=131071",
    "Warmup generation succeeded",
    "health status -> SERVING",
    "ts serve ready on http://127.0.0.1:",
)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A complete checkpoint: nvfp4 and dflash2."""
    return checkpoint.write(tmp_path / "models")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def words(models: Path, port: int = 8000, *more: str, drop: tuple[str, ...] = ()) -> list[str]:
    """The page's command, with weights that lie here."""
    speculative = {"method": "dflash", "model": str(models / "dflash2"), "num_speculative_tokens": 16}
    settings = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--served-model-name": "Beam-1.0-501B-A23B",
        "--tensor-parallel-size": "4",
        "--dtype": "bfloat16",
        "--quantization": "nvfp4",
        "--kv-cache-dtype": "fp8_e4m3",
        "--max-model-len": "131072",
        "--max-num-seqs": "8",
        "--gpu-memory-utilization": "0.9",
        "--chunked-prefill-size": "8192",
        "--max-cudagraph-capture-size": "8",
        "--attention-backend": "trtllm_mha",
        "--moe-backend": "flashinfer_trtllm",
        "--tool-call-parser": "beam",
        "--reasoning-parser": "beam",
        "--drafter-attention-backend": "trtllm_mha",
        "--speculative-config": json.dumps(speculative),
    }
    kept = {name: value for name, value in settings.items() if name not in drop}
    flat = [word for pair in kept.items() for word in pair]
    return ["serve", str(models / "nvfp4"), *flat, "--enable-prefix-caching", "--disable-kvstore", *more]


def environment(folder: Path, **more: str) -> dict[str, str]:
    own = {"BEAMDEPLOY_STANDIN_ARGV": str(folder / "argv.json"), "STANDIN_LOAD_SECONDS": "0.05"}
    return {**os.environ, **own, **more}


def ends(folder: Path, argv: list[str], **env: str) -> tuple[int, list[str]]:
    """Exit status and log of a run that ends by itself."""
    command = (sys.executable, "-m", "beamdeploy.sandbox.engine", *argv)
    done = subprocess.run(
        command, env=environment(folder, **env), capture_output=True, text=True, timeout=20, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@contextmanager
def running(folder: Path, argv: list[str], until: str = "ready on", **env: str) -> Iterator[subprocess.Popen[str]]:
    """A run that is awaited until a line of its log holds `until`; killed at the end if it still lives."""
    command = (sys.executable, "-m", "beamdeploy.sandbox.engine", *argv)
    with subprocess.Popen(command, env=environment(folder, **env), stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert any(until in line for line in program.stdout), "the line did not come"
            yield program
        finally:
            program.kill()


def ask(port: int, path: str, body: object = None, *, timeout: float = 5, **headers: str) -> tuple[int, str]:
    """Status and text of an answer; `body` is sent as JSON, bytes as they are."""
    sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=sent, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_flags_are_sorted_by_who_reads_them_and_what_nobody_knows_falls_to_the_gateway() -> None:
    catalog = flags("beam")
    parts = split(
        ["/w", "--tp", "4", "--reasoning-parser=beam", "--max-num-batched-tokens", "9", "--port", "1"], catalog
    )
    assert parts.model == "/w"
    assert parts.engine == ("--tp", "4", "--reasoning-parser", "beam")
    assert parts.gateway[:6] == ("--reasoning-parser", "beam", "--max-num-batched-tokens", "9", "--port", "1")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--tp", "4", "/w"], "unexpected positional arg"),
        (["/w", "--enable-prefix-caching=true", "stray"], "unexpected positional arg"),
        (["/w", "--model", "/v"], "give the model once"),
        (["/w", "--drain-timeout", "0"], "must be a positive integer"),
    ],
)
def test_the_launcher_refuses_what_it_cannot_sort(given: list[str], said: str) -> None:
    with pytest.raises(ArgumentsRefused, match=re.escape(said)) as refused:
        split(given, flags("beam"))
    assert refused.value.status == 1


def test_only_the_gateway_takes_abbreviations() -> None:
    catalog = flags("beam")
    assert parse("gateway", ["--shutdown-grace", "5"], catalog)["shutdown_grace_period_secs"] == 5
    with pytest.raises(ArgumentsRefused, match="unrecognized arguments: --max-model 5"):
        parse("engine", ["--max-model", "5"], catalog)


def test_an_unknown_fault_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="hang-after-ready"):
        pace({"STANDIN_FAULT": "hang"})
    assert [pace({"STANDIN_FAULT": fault}).fault for fault in FAULTS] == list(FAULTS)


def test_a_start_prints_the_phases_in_order_and_a_stop_signal_ends_it_with_zero(models: Path) -> None:
    port = free_port()
    argv = words(models, port)
    with running(models, argv, until="Init torch distributed begin") as program:
        assert program.stdout is not None
        log = [f"{PHASES[0]}"]
        for line in program.stdout:
            log.append(line)
            if "ready on" in line:
                break
        program.send_signal(signal.SIGTERM)
        assert program.wait(5) == 0
    text = "\n".join(log)
    places = [text.index(PHASES[0])]
    for phase in PHASES[1:]:
        places.append(text.index(phase, places[-1] + 1))
    assert places == sorted(places)
    assert json.loads((models / "argv.json").read_text(encoding="utf-8")) == argv


def test_a_stop_signal_during_the_load_ends_it_with_zero(models: Path) -> None:
    with running(models, words(models), until="Load weight begin", STANDIN_LOAD_SECONDS="60") as program:
        program.send_signal(signal.SIGTERM)
        assert program.wait(5) == 0


@pytest.mark.parametrize(
    ("more", "last"),
    [
        (["--tool-call-parser", "beem"], "argument --tool-call-parser: invalid choice: 'beem'"),
        (["--max-num-batched-tokens", "8192"], "error: unrecognized arguments: --max-num-batched-tokens 8192"),
    ],
)
def test_the_gateway_refuses_its_flags_only_after_the_load(models: Path, more: list[str], last: str) -> None:
    status, log = ends(models, words(models, 8000, *more))
    assert status == 1
    assert log.index("[ts] health status -> SERVING") < len(log) - 3
    assert last in log[-2]
    assert log[-1] == "startup failed: smg subprocess exited with rc=2 during startup"


@pytest.mark.parametrize(
    ("change", "line", "status"),
    [
        ({"--dtype": "bf17"}, "[ts] ts serve: error: argument --dtype: invalid choice: 'bf17'", 2),
        ({"--quantization": "fp8"}, "specified in the model config (nvfp4) does not match", 1),
        ({"--max-model-len": "2000000"}, "context_length (2000000) is greater than the derived", 1),
        ({"--tensor-parallel-size": "5"}, "AssertionError: 48 is not divisible by 5", -10),
        ({"--attention-backend": "fa9"}, "Unknown --attention-backend 'fa9'; available: ", -10),
        ({"--speculative-config": '{"method":"dflash","num_speculative_tokens":15,"model":"MODELS/dflash2"}'},
         "block_size=16 requires --speculative-num-steps 15 and --speculative-num-draft-tokens 16", 1),
        ({"--disable-prefix-caching": ""}, "not allowed with argument --enable-prefix-caching", 2),
    ],
)  # fmt: skip
def test_a_wrong_setting_fails_with_tokenspeeds_message(
    models: Path, change: Mapping[str, str], line: str, status: int
) -> None:
    more = [word.replace("MODELS", str(models)) for pair in change.items() for word in pair if word]
    exit_status, log = ends(models, words(models, 8000, *more, drop=tuple(change)))
    assert exit_status == 1
    assert line in "\n".join(log)
    assert log[-1] == f"startup failed: ts subprocess exited with rc={status} during startup"


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        ("folder", "OSError: Incorrect path_or_model_id: "),
        ("config", "does not appear to have a file named config.json"),
        ("shard", "FileNotFoundError: No such file or directory: "),
        ("cut", "incomplete metadata, file not fully covered"),
        ("architecture", "Model architectures ['OtherForCausalLM'] are not supported for now"),
    ],
)
def test_wrong_weights_fail_with_the_real_message(models: Path, damage: str, line: str) -> None:
    target = models / "nvfp4"
    shard = target / "model-00002-of-00003.safetensors"
    if damage == "folder":
        target.rename(models / "elsewhere")
    elif damage == "config":
        (target / "config.json").unlink()
    elif damage == "shard":
        shard.unlink()
    elif damage == "cut":
        shard.write_bytes(shard.read_bytes()[:-1])
    else:
        config = {**checkpoint.CONFIG, "architectures": ["OtherForCausalLM"]}
        (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    status, log = ends(models, words(models))
    assert status == 1
    assert line in "\n".join(log)


def test_the_published_release_knows_neither_beam_nor_its_parsers(models: Path) -> None:
    status, log = ends(models, words(models), BEAMDEPLOY_STANDIN_CATALOG="0.1.1")
    assert status == 1
    assert "Model architectures ['BeamForCausalLM'] are not supported for now" in "\n".join(log)
    beam = {"--tool-call-parser", "--reasoning-parser"}
    assert [flag.names[0] for flag in flags("0.1.1") if flag.names[0] in beam and "beam" in flag.choices] == []


def test_fewer_gpus_than_ranks_is_an_error(models: Path) -> None:
    status, log = ends(models, words(models), NVIDIA_VISIBLE_DEVICES="0,1")
    assert (status, log[1:4][-1]) == (1, "[ts] torch.AcceleratorError: CUDA error: invalid device ordinal")


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("crash-at-start", "NCCL error"),
        ("cuda-oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB"),
        ("graph-oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB"),
        ("bad-gateway-flag-late", "unrecognized arguments: --no-such-flag"),
    ],
)
def test_faults_that_end_a_start_exit_with_one(models: Path, fault: str, line: str) -> None:
    status, log = ends(models, words(models), STANDIN_FAULT=fault)
    assert status == 1
    assert line in "\n".join(log)
    assert log[-1].startswith("startup failed: ")


def test_a_taken_port_is_found_after_the_load(models: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        status, log = ends(models, words(models, int(other.getsockname()[1])))
    assert status == 1
    assert "Address already in use" in log[-2]


def test_a_rank_that_dies_while_serving_is_the_exit_status(models: Path) -> None:
    env = {"STANDIN_FAULT": "die-after-ready", "STANDIN_FAULT_SECONDS": "0.05"}
    assert ends(models, words(models, free_port()), **env)[0] == 246


def test_nothing_listens_before_the_load_is_done(models: Path) -> None:
    port = free_port()
    with running(models, words(models, port), until="Completed", STANDIN_FAULT="stall"):
        time.sleep(0.1)
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_fault_may_ignore_sigterm(models: Path) -> None:
    with running(models, words(models, free_port()), STANDIN_FAULT="ignore-term") as program:
        program.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.3)


def test_health_readiness_and_models_are_answered(models: Path) -> None:
    port = free_port()
    with running(models, words(models, port)):
        assert [ask(port, path)[0] for path in ("/health", "/liveness", "/readiness", "/nothing")] == [
            200,
            200,
            200,
            404,
        ]
        listed = json.loads(ask(port, "/v1/models")[1])
        ready = json.loads(ask(port, "/readiness")[1])
    assert listed == {
        "object": "list",
        "data": [{"id": "Beam-1.0-501B-A23B", "object": "model", "created": 0, "owned_by": "self"}],
    }
    assert ready == {"status": "ready", "healthy_workers": 1, "total_workers": 1}


def chat(text: str = "What is 20 + 22?", **more: object) -> dict[str, object]:
    return {"model": "Beam-1.0-501B-A23B", "messages": [{"role": "user", "content": text}], **more}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]


def test_chat_answers_with_reasoning_content_and_usage(models: Path) -> None:
    port = free_port()
    with running(models, words(models, port)):
        status, text = ask(port, "/v1/chat/completions", chat())
    answer = json.loads(text)
    message = {
        "role": "assistant",
        "content": "42",
        "reasoning_content": "The user wrote 5 words. I answer briefly.",
    }
    assert status == 200
    assert answer["choices"] == [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}]
    assert answer["usage"] == {"prompt_tokens": 8, "completion_tokens": 9, "total_tokens": 17}


def test_too_few_tokens_leave_reasoning_without_an_answer(models: Path) -> None:
    port = free_port()
    with running(models, words(models, port)):
        choice = json.loads(ask(port, "/v1/chat/completions", chat(max_tokens=3))[1])["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", None)
    assert choice["message"]["reasoning_content"] == "The user wrote"


def test_a_stream_holds_reasoning_answer_usage_and_done(models: Path) -> None:
    port = free_port()
    asked = chat(stream=True, stream_options={"include_usage": True})
    with running(models, words(models, port)):
        events = ask(port, "/v1/chat/completions", asked)[1].split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "42"
    assert (
        "".join(delta.get("reasoning_content") or "" for delta in deltas) == "The user wrote 5 words. I answer briefly."
    )
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 17


def test_tools_are_called_and_their_result_is_answered(models: Path) -> None:
    port = free_port()
    with running(models, words(models, port)):
        called = json.loads(ask(port, "/v1/chat/completions", chat(tools=TOOLS))[1])["choices"][0]
        messages = [{"role": "user", "content": "?"}, {"role": "tool", "content": "sunny", "tool_call_id": "x"}]
        done = json.loads(ask(port, "/v1/chat/completions", {"messages": messages, "tools": TOOLS})[1])["choices"][0]
    function = {"name": "weather", "arguments": '{"city":"Paris","days":7}'}
    assert called["message"]["tool_calls"] == [{"id": f"call_{0:024d}", "type": "function", "function": function}]
    assert called["finish_reason"] == "tool_calls"
    assert done["message"]["content"] == "You wrote: sunny"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "json_parse_error"),
        ({"model": "Beam-1.0-501B-A23B"}, 400, "invalid_request"),
        ({"model": "other", "messages": [{"role": "user", "content": "x"}]}, 404, "model_not_found"),
        (chat("x" * 700_000), 400, "context_length_exceeded"),
        (
            {
                "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
                "chat_template_kwargs": {"allow_missing_thinking": False},
            },
            400,
            "chat_template_error",
        ),
    ],
)
def test_bad_requests_are_refused(models: Path, body: object, status: int, code: str) -> None:
    port = free_port()
    with running(models, words(models, port)):
        answered, text = ask(port, "/v1/chat/completions", body)
    assert (answered, json.loads(text)["error"]["code"]) == (status, code)


def test_an_api_key_guards_chat_but_not_the_model_list(models: Path) -> None:
    port = free_port()
    with running(models, words(models, port, "--api-key", "k")):
        seen = (
            ask(port, "/v1/models")[0],
            ask(port, "/v1/chat/completions", chat())[0],
            ask(port, "/v1/chat/completions", chat(), Authorization="Bearer k")[0],
        )
    assert seen == (200, 401, 200)


def test_faults_while_serving(models: Path) -> None:
    port = free_port()
    with running(models, words(models, port), STANDIN_FAULT="wrong-model"):
        assert json.loads(ask(port, "/v1/models")[1])["data"][0]["id"] == "some-other-model"
    with running(models, words(models, port), until="SERVING", STANDIN_FAULT="never-ready"):
        time.sleep(0.3)
        assert ask(port, "/readiness")[0] == 503
    with running(models, words(models, port), STANDIN_FAULT="no-tool-calls"):
        message = json.loads(ask(port, "/v1/chat/completions", chat(tools=TOOLS))[1])["choices"][0]["message"]
        assert "tool_calls" not in message
        assert message["content"].startswith("<|start|>assistant to=weather")
    with running(models, words(models, port), STANDIN_FAULT="hang-after-ready"):
        assert ask(port, "/readiness")[0] == 200
        with pytest.raises(TimeoutError):
            ask(port, "/v1/chat/completions", chat(), timeout=0.3)


def test_the_context_is_shortened_in_silence_to_what_the_cache_holds(models: Path) -> None:
    port = free_port()
    with running(models, words(models, port), until="Single-request token limit", STANDIN_CACHE_TOKENS="4096"):
        pass
    with running(models, words(models, port), STANDIN_CACHE_TOKENS="4096"):
        assert ask(port, "/v1/chat/completions", chat("x" * 20_000))[0] == 400
