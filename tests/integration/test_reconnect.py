"""A connection that is lost while a server loads: the server goes on, and is found again, or left to another run."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from beamdeploy.errors import LOCKED, HostError
from beamdeploy.hostlock import locked
from beamdeploy.inventory import Host
from beamdeploy.remote import open_session
from tests.chaos.faults import until
from tests.integration.command import Job, container_id, environment
from tests.integration.test_safe_change import slow, started, wait_for_phase
from tests.lab import LabHost

LAPSE = "until pkill -f '[t]imeout 30 head'; do sleep 0.05; done"
SLOW_DOCKER = """#!/bin/sh
if [ "$1" = "$(cat /root/slow 2>/dev/null)" ] && pgrep -f '[t]imeout 30 head' >/dev/null; then
  : > /root/waits
  while [ -e /root/slow ]; do sleep 0.1; done
fi
exec docker "$@"
"""
OTHER = "exec 9</run/lock/beamdeploy-beam.lock; flock 9; echo 'somebody else' > /run/lock/beamdeploy-beam.lock; sleep 5"


def read_on(run: subprocess.Popen[str], word: str) -> str:
    """The lines up to the first that holds a word."""
    said = ""
    assert run.stderr is not None
    for line in run.stderr:
        said += line
        if word in line:
            return said
    raise AssertionError(f"it ended before {word}: {said}")


def test_an_apply_whose_link_is_cut_while_it_loads_finds_the_server_again_under_its_lock(
    job: Job, clean_host: LabHost
) -> None:
    slow(job, 18)
    run = started(job, "apply")
    wait_for_phase(run, "loading")
    made = container_id(clean_host)
    for _ in range(2):
        clean_host.drop()
        said = read_on(run, "connected: again")
        assert "reconnect: the connection was lost, the server goes on there; tried again for 10 min" in said
        read_on(run, "loading")
    busy = job.run("destroy", "-y")
    assert (busy.exit, "another run works on beam" in busy.problems) == (5, True)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    assert container_id(clean_host) == made
    assert job.run("apply").host(clean_host.name)["outcome"] == "unchanged"


def test_a_link_that_stands_still_is_said_to_while_it_does(job: Job, clean_host: LabHost) -> None:
    slow(job, 30)
    run = started(job, "apply")
    wait_for_phase(run, "loading")
    for chain in ("INPUT", "OUTPUT"):
        clean_host.run(
            "iptables", "-I", chain, "-p", "tcp", "!", "-i" if chain == "INPUT" else "-o", "lo", "-j", "DROP"
        )
    try:
        said = read_on(run, "waiting: no answer for")
        assert "connection was lost" not in said
    finally:
        clean_host.run("iptables", "-F")
    _, err = run.communicate(timeout=90)
    assert (run.returncode, err.count("waiting: no answer for")) == (0, 0), err


def test_a_server_that_another_run_took_meanwhile_is_left_alone(job: Job, clean_host: LabHost) -> None:
    slow(job, 15)
    run = started(job, "apply")
    wait_for_phase(run, "loading")
    made = container_id(clean_host)
    clean_host.shut()
    other = threading.Thread(target=clean_host.run, args=("sh", "-c", OTHER))
    other.start()
    time.sleep(0.5)
    clean_host.reopen()
    out, err = run.communicate(timeout=60)
    assert run.returncode == 5, out + err
    assert "another run has worked on beam since: somebody else" in out
    assert container_id(clean_host) == made
    other.join()
    assert job.run("apply").exit == 0
    assert container_id(clean_host) == made


def test_nothing_is_put_right_after_the_lock_ended_and_another_run_took_it(job: Job, clean_host: LabHost) -> None:
    assert job.run("apply").exit == 0
    old = container_id(clean_host)
    for number, taken in enumerate((False, True)):
        slow(job, 20 + number)
        run = started(job, "apply")
        wait_for_phase(run, "loading")
        new = container_id(clean_host)
        clean_host.run("sh", "-c", LAPSE)
        other = threading.Thread(target=clean_host.run, args=("sh", "-c", OTHER if taken else "true"))
        other.start()
        time.sleep(0.5)
        clean_host.docker("kill", new)
        out, err = run.communicate(timeout=60)
        other.join()
        assert run.returncode == (5 if taken else 1), out + err
        assert ("another run has worked on beam since: somebody else" in out) == taken
        assert (container_id(clean_host) == old) == (not taken)
    assert job.run("apply").exit == 0


def test_a_lock_is_taken_again_only_if_nobody_had_it_since(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BEAMDEPLOY_LOCK_DIR", str(tmp_path))
    told: list[tuple[str, str]] = []

    def say(phase: str, detail: str) -> None:
        told.append((phase, detail))

    with (
        open_session(Host("here", connection="local")) as session,
        locked(session, "beam", "ours", wait=0, say=say) as lock,
    ):
        for _ in range(2):
            lock.retake(session, say)
        with (
            pytest.raises(HostError, match="another run works on beam: ours"),
            locked(session, "beam", "theirs", wait=0, say=say),
        ):
            pass
        lock.release()
        with locked(session, "beam", "theirs", wait=0, say=say):
            for _ in range(2):
                with pytest.raises(HostError, match="another run has worked on beam since: theirs") as caught:
                    lock.retake(session, say)
                assert caught.value.exit == LOCKED
        for _ in range(2):
            with pytest.raises(HostError, match="another run has worked on beam since: theirs"):
                lock.retake(session, say)
    assert set(told) <= {("lock", "waiting for the end of the lost connection")}


def test_a_host_that_stays_away_is_said_to_be_lost_and_the_next_apply_completes_it(
    job: Job, clean_host: LabHost
) -> None:
    job.write({"container.env": {"STANDIN_LOAD_SECONDS": "8"}, "ready.timeout": "10s", "ready.stall": "9s"})
    run = started(job, "apply")
    wait_for_phase(run, "loading")
    clean_host.shut()
    try:
        out, err = run.communicate(timeout=60)
    finally:
        clean_host.reopen()
    assert run.returncode == 4, out + err
    assert "it does not come back" in out and "the state of this host is unknown" in out
    assert job.run("apply").exit == 0


@pytest.mark.parametrize("tail", [(), ("--tail", "0")])
def test_a_log_is_followed_over_a_cut_link_without_a_gap_or_a_repetition(
    job: Job, clean_host: LabHost, tail: tuple[str, ...]
) -> None:
    odd = "[ $((i % 7)) -ne 0 ] || echo err $i >&2"
    count = f"i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo line $i; {odd}; sleep 0.1; done"
    labels = ("--label", "beamdeploy.name=beam")
    clean_host.docker(
        "run", "--detach", "--name", "beam", *labels, "--entrypoint", "sh", job.lab.image("beam"), "-c", count
    )
    words = (sys.executable, "-m", "beamdeploy", "logs", "beam", "-i", job.inventory, "-f", *tail)
    shown = job.folder / "shown"
    with shown.open("w") as out:
        run = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, text=True, env=environment()
        )
    until(lambda: shown.stat().st_size > 0)
    for _ in range(2):
        clean_host.drop()
        time.sleep(1.5)
    _, err = run.communicate(timeout=60)
    lines = [line for line in shown.read_text(encoding="utf-8").splitlines() if line.startswith("line")]
    begin = int(lines[0].split()[1])
    assert lines == [f"line {n}" for n in range(begin, 61)], err
    assert begin == 1 or tail
    assert (run.returncode, err.count("reconnect")) == (0, 2), err


@pytest.mark.parametrize(
    ("command", "slow_word", "stands"), [("destroy", "stop", "beam"), ("prune", "ps", "beam.failed")]
)
def test_what_destroys_asks_before_each_deed_whether_its_lock_still_holds(
    job: Job, clean_host: LabHost, command: str, slow_word: str, stands: str
) -> None:
    """Docker is slow under the lock, which ends meanwhile; once nobody had it since, once another run took it."""
    holds, waits = (clean_host.folder / "root" / name for name in ("slow", "waits"))
    slow_docker = clean_host.folder / "bin" / "slowdocker"
    slow_docker.write_text(SLOW_DOCKER, encoding="utf-8")
    slow_docker.chmod(0o755)
    for taken in (True, False):
        job.write({"container.stop_timeout": 5})
        assert job.run("apply").exit == 0
        if command == "prune":
            job.write({"container.env": {"STANDIN_FAULT": "crash-at-start"}})
            assert job.run("apply", "--keep-failed").exit == 1
        before = container_id(clean_host, stands)
        job.write_inventory(docker="slowdocker")
        holds.write_text(slow_word, encoding="utf-8")
        run = started(job, command, "-y")
        until(waits.exists, 60)
        clean_host.run("sh", "-c", LAPSE)
        other = threading.Thread(target=clean_host.run, args=("sh", "-c", OTHER if taken else "true"))
        other.start()
        if taken:
            until(lambda: "somebody else" in clean_host.run("cat", "/run/lock/beamdeploy-beam.lock"))
        holds.unlink()
        out, err = run.communicate(timeout=90)
        other.join()
        waits.unlink()
        assert run.returncode == (5 if taken else 0), out + err
        assert ("another run has worked on beam since: somebody else" in out) == taken
        assert container_id(clean_host, stands) == (before if taken else "")
        job.write_inventory()
    slow_docker.unlink()
