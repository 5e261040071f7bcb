"""The sandbox's docker answers as the real one does, call by call, and no call that beamdeploy makes is left out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from beamdeploy.sandbox import checkpoint
from tests.contract.calls import STORIES, Call
from tests.contract.conftest import Answer, Emulation, Engine
from tests.contract.scan import Used, package_calls, suite_calls

TAG = "beam"
# of the client's own version, not of what happened
CHATTER = re.compile(r"^(Run|See) '?docker.*$|^See 'docker.*$|^Usage:.*$", re.MULTILINE)
UNLIKE = (
    # (pattern, what stands for it)
    (r"sha256:[0-9a-f]{64}", "<digest>"),
    (r"\b[0-9a-f]{64}\b", "<id>"),
    (r"\b[0-9a-f]{12}\b", "<short id>"),
    (r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z| \+0000 UTC)", "<time>"),
    (r"(Less than a second|About an? \w+|\d+ \w+) ago", "<ago>"),
    (r"Up (Less than a second|About an? \w+|\d+ seconds?)", "Up <ago>"),
    (r"\d+(\.\d+)?[kMG]B", "<size>"),
    (r"[ ]{2,}", "  "),
)


@pytest.mark.parametrize("story", STORIES)
def test_the_emulation_answers_as_the_real_docker(
    story: str, emulated: Emulation, real: Engine, tmp_path: Path
) -> None:
    ours = emulated(real.repository)
    checkpoint.write(Path(ours.weights))
    env_file = tmp_path / "env"
    env_file.write_text("TOKEN=a b\n", encoding="utf-8")
    told = [list(_tell(STORIES[story], engine, str(env_file))) for engine in (ours, real)]
    for entry, own, other in zip(STORIES[story], *told, strict=True):
        assert (entry.words, _plain(entry, own, ours)) == (entry.words, _plain(entry, other, real))


def test_every_docker_call_of_the_package_is_in_the_suite() -> None:
    found, covered = package_calls(), suite_calls()
    assert found - covered == Used(frozenset(), frozenset())
    # the scan itself is not blind
    assert (
        ("ps", "--filter") in found.flags
        and ("run", "--shm-size") in found.flags
        and ("logs", "--follow") in found.flags
    )


def _tell(story: Sequence[Call], engine: Engine, env_file: str) -> Iterator[Answer]:
    identifier = ""
    digest = ""
    for entry in story:
        values = {"image": f"{engine.repository}:{TAG}", "repository": engine.repository, "weights": engine.weights}
        values |= {"env_file": env_file, "id": identifier, "digest": f"{engine.repository}@{digest}"}
        answer = _ask(engine, tuple(_filled(word, values) for word in entry.words), entry.until)
        if found := re.search(r"^[0-9a-f]{64}$", answer.out, re.MULTILINE):
            identifier = found[0]
        if found := re.search(r"^Digest: (sha256:[0-9a-f]{64})$", answer.out, re.MULTILINE):
            digest = found[1]
        yield answer


def _filled(word: str, values: dict[str, str]) -> str:
    # not str.format: Go's templates are full of braces
    for name, value in values.items():
        word = re.sub(rf"(?<!{{){{{name}}}(?!}})", lambda _, value=value: value, word)  # type: ignore[misc]
    return word


def _ask(engine: Engine, words: Sequence[str], until: str | None) -> Answer:
    deadline = time.monotonic() + 20
    while True:
        answer = engine.ask(words)
        if until is None or until in answer.out + answer.err:
            return answer
        assert time.monotonic() < deadline, (words, until, answer)
        time.sleep(0.05)


def _plain(entry: Call, answer: Answer, engine: Engine) -> tuple[object, ...]:
    """What must be alike."""
    if entry.compare == "exit":
        return (answer.exit,)
    if entry.compare in ("shape", "info", "image"):
        return answer.exit, _shape(json.loads(answer.out), entry.compare)
    # a log's lines tell how loading went: only what it says, not how fast
    out = "ts serve ready" if entry.until == "ts serve ready" else _neutral(answer.out, engine)
    return answer.exit, out, _neutral(CHATTER.sub("", answer.err), engine)


def _neutral(text: str, engine: Engine) -> list[str]:
    text = text.replace(engine.weights, "<weights>")
    for pattern, name in UNLIKE:
        text = re.sub(pattern, name, text)
    return [_sorted(line.rstrip()) for line in text.splitlines() if line.strip()]


def _sorted(line: str) -> str:
    """A line of JSON with its keys in order: docker prints some structures in their own order and some by name."""
    try:
        return json.dumps(json.loads(line), sort_keys=True)
    except ValueError:
        return line


VOLATILE = {
    # Docker's own, which a kernel and a version decide
    "shape": ("Data", "Config.Labels", "Details", "KernelVersion"),
    "info": (
        "Runtimes",
        "DriverStatus",
        "Warnings",
        "SecurityOptions",
        "ClientInfo",
        "RegistryConfig",
        "DiscoveredDevices",
    ),
    "image": (),
}


def _shape(value: object, compare: str) -> object:
    """Keys with their values' types; lists by their first entry."""
    if isinstance(value, dict):
        return {key: type(v).__name__ if key in VOLATILE[compare] else _shape(v, compare) for key, v in value.items()}
    if isinstance(value, list):
        return [_shape(value[0], compare)] if value else []
    return type(value).__name__
