"""The first cause in a log: every signature has a log of its own, and healthy logs have none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from beamdeploy.diagnose import Diagnosis, docker_failure, explain, guess_engine, not_on_path, setting
from beamdeploy.engines.log import all_failures, engine_logs
from beamdeploy.errors import Problem
from beamdeploy.remote import Result
from beamdeploy.startup import log_lines

LOGS = Path(__file__).parent / "data" / "logs"
FAILURES = {failure.id: (engine, failure) for engine, failure in all_failures()}


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_bytes().decode()


def test_no_two_signatures_have_the_same_id() -> None:
    assert len(FAILURES) == sum(1 for _ in all_failures()) >= 60


def test_every_signature_has_a_log_and_every_log_a_signature() -> None:
    names = {path.stem for path in LOGS.glob("*.log")}
    assert {name for name in names if not name.startswith("healthy-")} == set(FAILURES)


@pytest.mark.parametrize("name", sorted(name for name, (_, failure) in FAILURES.items() if failure.kind != "harmless"))
def test_each_log_is_explained_by_its_own_signature(name: str) -> None:
    found = explain(log(name), exit_code=1)
    assert found is not None
    assert (found.id, found.confidence) == (name, FAILURES[name][1].confidence)
    assert found.evidence and found.cause and found.remedy
    assert "{" not in found.cause + found.remedy.replace("{}", "") and "''" not in found.cause


@pytest.mark.parametrize("name", sorted(name for name, (engine, _) in FAILURES.items() if engine))
def test_an_engines_own_failure_is_found_when_the_engine_is_given(name: str) -> None:
    engine, failure = FAILURES[name]
    found = explain(log(name), engine, 1 if failure.kind != "harmless" else None)
    assert (found.id if found else None) == (name if failure.kind != "harmless" else None)


@pytest.mark.parametrize("engine", list(engine_logs()))
def test_a_healthy_log_has_no_cause(engine: str) -> None:
    name = f"healthy-{engine}"
    assert guess_engine(tuple(log_lines(log(name)))) == engine
    assert [explain(log(name), each) for each in (None, *engine_logs())] == [None] * 4


def test_a_harmless_line_is_no_cause() -> None:
    assert explain(log("ts-control-bind")) is None


def test_a_gateway_that_refuses_a_parser_after_the_load_is_not_the_weights_fault() -> None:
    assert explain(log("ts-gateway-value")) == Diagnosis(
        id="ts-gateway-value",
        evidence="[gateway] error: invalid value 'beem' for '--tool-call-parser <NAME>'",
        line=3,
        cause="the engine itself was fine and had loaded; then the gateway refused the value 'beem' of "
        "--tool-call-parser. The weights and GPUs are not at fault",
        remedy="Set parsers.tool_call to one of the values that it lists: beam, deepseek_v4, glm47_moe, inkling, "
        "kimi_k3, passthrough.",
        path="parsers.tool_call",
    )


def test_out_of_memory_is_said_of_weights_or_cache_only_where_the_log_shows_it() -> None:
    line = "[ts] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB."
    begun = "[ts] Load weight begin. avail mem=266.10 GB\n"
    loaded = "[ts] Load weight end. type=X, dtype=torch.bfloat16, avail mem=3.10 GB\n"
    found = [explain(text + line, "tokenspeed", 1) for text in ("", begun, begun + loaded)]
    said = [(each.path, each.cause.partition(";")[::2]) for each in found if each is not None]
    assert said == [
        (
            "engine.tensor_parallel",
            ("a GPU ran out of memory", " the log does not show whether the weights were in memory by then"),
        ),
        (
            "engine.tensor_parallel",
            (
                "a GPU ran out of memory while the weights were read",
                " they do not fit, or another process holds memory",
            ),
        ),
        (
            "engine.gpu_memory_utilization",
            (
                "the weights fit",
                " a GPU ran out of memory afterwards, for the KV cache, the CUDA graphs or a request",
            ),
        ),
    ]


def test_the_cause_is_said_and_not_what_follows_from_it() -> None:
    effects = "ncclRemoteError: remote process exited\nEngine core initialization failed\n"
    found = explain(effects + "ValueError: No available memory for the cache blocks.\n", "vllm", 1)
    assert found is not None and found.id == "vllm-no-cache-blocks"


def test_without_a_signature_the_first_traceback_tells() -> None:
    text = (
        "[ts] [TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '[ts]   File "x.py", line 1, in y\n'
        "[ts] KeyError: 'model.layers.3.mlp'\n"
        "[ts] During handling of the above exception, another exception occurred:\n"
        "[ts] Traceback (most recent call last):\n"
        "[ts] RuntimeError: second\n"
        "startup failed: ts subprocess exited with rc=-10 during startup\n"
    )
    found = explain(text, "tokenspeed", 1)
    assert found is not None
    assert (found.id, found.line, found.cause) == ("traceback", 3, "KeyError: 'model.layers.3.mlp'")


@pytest.mark.parametrize(
    ("engine", "status", "words"),
    [("tokenspeed", 247, "killed from outside"), ("vllm", 137, "SIGKILL"), (None, 139, "segmentation fault")],
)
def test_an_exit_code_tells_where_the_log_does_not(engine: str | None, status: int, words: str) -> None:
    found = explain("Init torch distributed begin. Avail mem=1.0 GB\n", engine, status)
    assert found is not None and (found.id, found.confidence) == ("exit", "medium")
    assert words in found.cause and str(status) in found.cause


def test_what_nothing_explains_is_said_to_be_unknown_with_its_line() -> None:
    found = explain("fine\nERROR: the flux is low\nbye\n", None, 3)
    assert found == Diagnosis(
        "unknown",
        "ERROR: the flux is low",
        2,
        "unknown; this is the last line that looks like an error",
        "No signature knows it. Show the whole log: beamdeploy logs.",
        confidence="low",
    )
    assert explain("fine\nbye\n", None, 3) is not None
    assert explain("fine\nbye\n", None, 0) is None
    assert explain("", None, 3) is None


def test_escape_sequences_of_a_log_do_not_reach_what_is_shown() -> None:
    found = explain("\x1b[31mValueError: Unknown --attention-backend 'a\x1b]0;t\x07b'; available: c\x1b[0m\x07\n")
    assert found is not None and not any(char < " " for char in found.evidence + found.cause + found.remedy)


def test_a_flag_is_named_by_the_setting_that_gives_it() -> None:
    flags = ("--tool-call-parser", "--no-such-flag", "")
    assert [setting("tokenspeed", flag) for flag in flags] == [
        "parsers.tool_call",
        "engine.args.no-such-flag",
        "engine.args",
    ]


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("toomanyrequests: You have reached your unauthenticated pull rate limit.", "pull limit", "docker login"),
        ("pull access denied for x, repository does not exist or may require 'docker login'", "refused", "login"),
        ("manifest for x@sha256:1111 not found: manifest unknown", "no such digest", "lock"),
        ("dial tcp: lookup registry-1.docker.io: no such host", "resolve the registry's name", "DNS"),
        (
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time "
            "2019-03-01T00:00:00Z is before 2026-05-01T00:00:00Z",
            "clock",
            "date",
        ),
        ("proxyconnect tcp: dial tcp 10.0.0.1:3128: connect: connection refused", "proxy", "daemon's proxy"),
        ('could not select device driver "" with capabilities: [[gpu]]', "cannot reach the GPUs", "Container Toolkit"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please", "CUDA 13.0", "driver"),
    ],
)
def test_what_docker_refuses_is_explained_and_its_line_kept(text: str, what: str, remedy: str) -> None:
    problem = docker_failure(Result(("docker", "pull"), 1, "", text), "gpu-a: pull")
    assert problem.where == "gpu-a: pull"
    assert what in problem.what and text in problem.what and remedy in problem.remedy


def test_a_docker_command_that_is_not_known_is_shown_as_it_ended() -> None:
    run = ("docker", "run", "x")
    assert docker_failure(Result(run, 124, "", ""), "a") == Problem(
        "docker run did not end in time", "Look at the docker daemon's log on the host.", "a"
    )
    assert docker_failure(Result(run, 127, "", "sh: docker: not found"), "a") == not_on_path("a")
    assert docker_failure(Result(run, None, "", "half"), "a").what == "docker run ended abnormally: half"
    assert docker_failure(Result(run, 9, "", "odd"), "a").what == "docker run failed with exit code 9: odd"


def test_the_document_lists_the_signatures_as_they_are() -> None:
    script = Path(__file__).parents[1] / "scripts" / "doctor.py"
    done = subprocess.run((sys.executable, str(script), "--check"), check=False)
    assert done.returncode == 0, "run: python scripts/doctor.py"


def test_the_line_number_is_that_of_the_file_whatever_is_redrawn_or_empty() -> None:
    text = "\n\nbar 1\rbar 2\rbar 3\n\nValueError: No available memory for the cache blocks.\n"
    found = explain(text, "vllm", 1)
    assert found is not None and found.line == 5
