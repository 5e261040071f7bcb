"""Following a container's log through real processes: every line once, however often the following breaks off."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from beamdeploy.errors import HostError
from beamdeploy.inventory import Host
from beamdeploy.remote import open_session
from beamdeploy.startup import State
from beamdeploy.watch import Watch, log_text, running

# Stands for docker: `logs` prints as many lines of the file "log" as "cut" says and lingers, `inspect` prints "state".
DOCKER = """#!/bin/sh
cd "$(dirname "$0")"
case "$1" in
logs) head -n "$(cat cut)" log; echo "$*" >> asked; case "$*" in *--follow*) sleep "$(cat linger)" ;; esac ;;
inspect) case "$*" in *RestartCount*) echo 1 ;; *) cat state ;; esac ;;
esac
"""
SHARDS = [f"Loading safetensors checkpoint shards: {10 * n:3d}% Completed | {n}/10 [x]" for n in range(1, 11)]
STATE = '{"Status": "exited", "ExitCode": 1, "OOMKilled": true, "Error": "", "StartedAt": "2026-11-30T17:00:05.5Z"}'


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    files = {"docker": DOCKER, "log": "\n".join(SHARDS) + "\n", "cut": "99", "linger": "0", "state": STATE + "\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "docker").chmod(0o755)
    return tmp_path / "docker"


def test_a_following_that_breaks_off_is_taken_up_without_a_gap_or_a_repetition(docker: Path) -> None:
    watch, said = Watch("tokenspeed", "0", 0.0), list[str]()

    def moment(state: State, tick: bool) -> None:
        said.extend(() if tick else (state.said,))

    with open_session(Host("here", connection="local")) as session:
        for cut in (3, 3, 7, 99):
            (docker.parent / "cut").write_text(str(cut), encoding="utf-8")
            watch.follow(session, (str(docker),), "c", (0,), moment, timeout=20)
    assert said == [f"target weights {n}/10 ({10 * n} %)" for n in range(1, 11)]


def test_there_is_a_moment_a_second_while_the_log_is_silent_and_what_it_raises_ends_the_following(docker: Path) -> None:
    (docker.parent / "linger").write_text("30", encoding="utf-8")
    ticks = list[float]()

    def moment(state: State, tick: bool) -> None:
        ticks.extend((time.monotonic(),) if tick else ())
        if len(ticks) == 2:
            raise KeyError("enough")

    started = time.monotonic()
    with open_session(Host("here", connection="local")) as session, pytest.raises(KeyError, match="enough"):
        Watch("tokenspeed", "0", 0.0).follow(session, (str(docker),), "c", (), moment, timeout=60)
    assert time.monotonic() - started < 15
    assert 0.5 < ticks[1] - ticks[0] < 5


def test_the_end_of_the_log_ends_the_following_at_once(docker: Path) -> None:
    started = time.monotonic()
    with open_session(Host("here", connection="local")) as session:
        Watch("vllm", "0", 0.0).follow(session, (str(docker),), "c", (), lambda state, tick: None, timeout=60)
    assert time.monotonic() - started < 3


def test_a_container_is_told_with_the_time_from_which_its_log_counts(docker: Path) -> None:
    with open_session(Host("here", connection="local")) as session:
        found = running(session, (str(docker),), "c")
        text = log_text(session, (str(docker),), "c", found.since)
    assert (found.status, found.exit_code, found.oom_killed, found.restarts, found.ended) == (
        "exited",
        1,
        True,
        1,
        True,
    )
    assert text.splitlines() == SHARDS
    assert "--since 2026-11-30T17:00:04.500000+00:00" in (docker.parent / "asked").read_text(encoding="utf-8")


def test_a_container_that_is_gone_is_said_to_be(docker: Path) -> None:
    docker.write_text("#!/bin/sh\necho 'Error: No such object: c' >&2\nexit 1\n", encoding="utf-8")
    with open_session(Host("here", connection="local")) as session, pytest.raises(HostError) as caught:
        running(session, (str(docker),), "c")
    assert caught.value.problems[0].what == "container c is gone: Error: No such object: c"
