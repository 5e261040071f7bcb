"""A real client through `beamdeploy tunnel`, and what stands beside it: chat and client."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGINT
from typing import Any

import pytest

from tests.integration.command import Job, beamdeploy, environment
from tests.lab import Lab, LabHost

KILL_SESSIONS = r"""
for process in /proc/[0-9]*; do
  case $(tr '\0' ' ' < "$process/cmdline" 2>&1) in "sshd: root"*) kill "${process#/proc/}" ;; esac
done
"""


@pytest.fixture
def job(job: Job) -> Job:
    """The Beam recipe, served on the first host of the lab."""
    assert job.run("apply").exit == 0
    return job


@contextmanager
def tunnelled(job: Job, target: str | None = None) -> Iterator[str]:
    """The base URL of a tunnel that ends as a user ends it, with Ctrl-C and exit code 0."""
    words = ("tunnel", target or job.recipe, "-i", job.inventory, "--port", "0")
    process = subprocess.Popen(
        (sys.executable, "-m", "beamdeploy", *words),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    try:
        yield url
    finally:
        process.send_signal(SIGINT)
        _, said = process.communicate(timeout=20)
    assert (process.returncode, "Traceback" in said) == (0, False), said


@pytest.mark.filterwarnings("default")
def test_the_openai_sdk_chats_streams_calls_tools_and_goes_on_with_its_reasoning(job: Job) -> None:
    import openai

    with tunnelled(job) as url:
        client = openai.OpenAI(base_url=url, api_key="EMPTY", max_retries=0)
        options: dict[str, Any] = {
            "model": "Beam-1.0-501B-A23B",
            "temperature": 0.7,
            "extra_body": {"chat_template_kwargs": {"allow_missing_thinking": False}},
        }
        assert [model.id for model in client.models.list()] == ["Beam-1.0-501B-A23B"]
        create: Any = client.chat.completions.create

        question = {"role": "user", "content": "What is 17 + 25?"}
        first = create(messages=[question], **options).choices[0]
        assert (first.message.content, first.finish_reason) == ("42", "stop")

        chunks = list(create(messages=[question], stream=True, stream_options={"include_usage": True}, **options))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert (text, len(chunks) > 3, chunks[-1].usage.total_tokens > 0) == ("42", True, True)

        properties = {"city": {"type": "string"}}
        tool = {"name": "get_weather", "parameters": {"type": "object", "properties": properties}}
        asked = [{"role": "user", "content": "The weather in Paris?"}]
        call = create(messages=asked, tools=[{"type": "function", "function": tool}], **options).choices[0]
        (made,) = call.message.tool_calls
        assert (made.function.name, json.loads(made.function.arguments)) == ("get_weather", {"city": "Paris"})

        reasoning = first.message.reasoning_content
        answer = {"role": "assistant", "content": "42"}
        more = {"role": "user", "content": "And 1 + 1?"}
        second = create(messages=[question, {**answer, "reasoning_content": reasoning}, more], **options)
        assert second.choices[0].message.content == "2"
        with pytest.raises(openai.BadRequestError, match="allow_missing_thinking"):
            create(messages=[question, answer, more], **options)


def models_of(url: str) -> list[str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://").removesuffix("/v1"), timeout=30)
    connection.request("GET", "/v1/models", headers={"Connection": "close"})
    with connection.getresponse() as response:
        found = [model["id"] for model in json.loads(response.read())["data"]]
    connection.close()
    return found


def test_a_tunnel_outlives_the_connection_to_its_host(job: Job, clean_host: LabHost) -> None:
    with tunnelled(job, "beam") as url:
        for _ in range(3):
            assert models_of(url) == ["Beam-1.0-501B-A23B"]
            clean_host.run("sh", "-c", KILL_SESSIONS)


def test_a_port_that_is_taken_and_two_hosts_are_bad_input(job: Job, lab: Lab, clean_host: LabHost) -> None:
    with tunnelled(job) as url:
        port = url.removesuffix("/v1").rpartition(":")[2]
        taken = beamdeploy("tunnel", job.recipe, "-i", job.inventory, "--port", port)
        assert (taken.exit, "--port" in taken.err) == (2, True)
    both = beamdeploy("tunnel", job.recipe, "-i", str(lab.folder / "inventory.yaml"))
    assert (both.exit, "-l" in both.err) == (2, True)


@pytest.mark.parametrize("form", ["python", "openai", "curl"])
def test_printed_client_settings_work_as_they_are(job: Job, form: str) -> None:
    with tunnelled(job) as url:
        printed = beamdeploy("client", job.recipe, "--as", form, "--base-url", url).out
        words = ("sh", "-c", printed) if form == "curl" else (sys.executable, "-c", printed)
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "You wrote: Say hello in one short sentence." in done.stdout
    assert ("You wrote: Say it in French." in done.stdout) == (form == "openai")


def test_chat_answers_on_stdout_reasons_on_stderr_and_its_second_turn_carries_the_reasoning(job: Job) -> None:
    done = beamdeploy(
        "chat", job.recipe, "-i", job.inventory, "-m", "What is 2 + 3?", "-m", "Are \x1b[31myou\x1b[0m sure?"
    )
    assert (done.exit, done.out) == (0, "5\nYou wrote: Are you sure?\n"), done.err
    assert done.err.count("I answer briefly.") == 2


def test_chat_says_why_there_is_no_answer(job: Job) -> None:
    gone = beamdeploy("chat", "nothing", "-i", job.inventory, "-m", "hi")
    assert (gone.exit, "there is no deployment named nothing" in gone.err) == (1, True)
    long = beamdeploy("chat", job.recipe, "-i", job.inventory, "-m", "word " * 20000, "--system", "word " * 5000)
    assert long.exit == 0
