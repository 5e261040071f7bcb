"""Changing a server that serves: restored when the new one fails, one run at a time, written down, and undone."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.integration.command import Job, container_id, environment
from tests.lab import Lab, LabHost


def test_a_failed_replacement_brings_the_old_server_back_and_sees_it_answer(job: Job, clean_host: LabHost) -> None:
    name = clean_host.name
    assert job.run("apply").exit == 0
    before = container_id(clean_host)
    for _ in range(2):
        job.write({"container.env": {"STANDIN_FAULT": "crash-at-start"}})
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (1, "failed"), done.out
        assert "was started again and answers" in done.problems
        assert "NCCL error" in done.problems
        assert (container_id(clean_host), container_id(clean_host, "beam.previous")) == (before, "")
        job.write()
        assert job.run("status").exit == 0
        assert job.run("apply").host(name)["outcome"] == "unchanged"
        # our own restart of the old one is no other hand's doing
        assert job.run("drift").exit == 0


def test_history_tells_what_was_done_and_rollback_returns_without_a_file(job: Job, clean_host: LabHost) -> None:
    name = clean_host.name
    for seqs in (8, 4):
        job.write({"engine.max_num_seqs": seqs})
        assert job.run("apply").exit == 0
    entries = job.run("history").host(name)["entries"]
    assert [(each["number"], each["action"], each["outcome"]) for each in entries] == [
        (1, "apply", "ready"),
        (2, "apply", "ready"),
    ]
    assert entries[0]["recipe"]["engine"]["max_num_seqs"] == 8 and entries[0]["completion"]
    told = job.run("history", "1", output="text").out
    assert told.startswith(f"{name}: entry 1, beam\n") and "\n    engine.max_num_seqs" in told, told
    assert "beamdeploy.spec" not in told and "{}" not in job.run("history", "99", output="text").out
    back = job.run("rollback", "-y")
    assert (back.exit, back.host(name)["outcome"]) == (0, "changed"), back.out
    assert back.host(name)["plan"]["changes"] == [{"path": "engine.max_num_seqs", "old": 4, "new": 8}]
    again = job.run("rollback", "1")
    assert (again.exit, again.host(name)["outcome"]) == (0, "unchanged")
    assert job.run("rollback", "9").exit == 2
    assert job.run("destroy", "-y").exit == 0
    actions = [each["action"] for each in job.run("history").host(name)["entries"]]
    assert actions == ["apply", "apply", "rollback", "destroy"]
    # what was destroyed is the last good one; nothing runs, so there is nothing before which it stands
    anew = job.run("rollback", "-y")
    assert (anew.exit, "back to entry 3, " in anew.err) == (0, True), anew.out
    assert job.run("status", "-", "beam").host(name)["deployments"][0]["ready"] == "ready"


def test_the_history_is_for_its_user_alone(job: Job, clean_host: LabHost) -> None:
    assert job.run("apply").exit == 0
    found = clean_host.run(
        "sh",
        "-c",
        "cd /root/.local/state && stat -c '%a %n' beamdeploy beamdeploy/* beamdeploy/beam/*; "
        "stat -c '%a a probe' beamdeploy/probes/*",
    )
    assert found.splitlines() == [
        "700 beamdeploy",
        "700 beamdeploy/beam",
        "700 beamdeploy/probes",
        "600 beamdeploy/beam/history.jsonl",
        "600 beamdeploy/beam/runs.jsonl",
        "600 a probe",
    ]


def test_drift_is_ten_and_none_is_zero(job: Job) -> None:
    assert job.run("apply").exit == 0
    assert job.run("drift").exit == 0
    job.write({"engine.max_num_seqs": 4})
    assert job.run("drift").exit == 10


def started(job: Job, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-m", "beamdeploy", *words, job.recipe, "-i", job.inventory),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip


def slow(job: Job, seconds: int = 8) -> None:
    job.write({"container.env": {"STANDIN_LOAD_SECONDS": str(seconds)}})


def wait_for_phase(process: subprocess.Popen[str], phase: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if f": {phase}" in line:
            return
    raise AssertionError(f"it ended before {phase}")


def test_two_runs_at_a_time_are_kept_apart(job: Job, clean_host: LabHost) -> None:
    slow(job, 25)
    first = started(job, "apply")
    wait_for_phase(first, "loading")
    for command, more in (("destroy", ("-y",)), ("destroy", ("-y",))):
        second = job.run(command, *more)
        assert second.exit == 5, second.out
        assert "another run works on beam" in second.problems and "apply" in second.problems
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert job.run("destroy", "-y", "--lock-wait", "5").exit == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_loading_it_says_so_and_the_server_goes_on(
    job: Job, clean_host: LabHost, number: signal.Signals
) -> None:
    slow(job)
    run = started(job, "apply")
    wait_for_phase(run, "loading")
    began = time.monotonic()
    run.send_signal(number)
    out, err = run.communicate(timeout=20)
    assert time.monotonic() - began < 15
    assert run.returncode == 130, err
    assert "goes on loading" in out and "Traceback" not in err
    assert container_id(clean_host) != ""
    done = job.run("apply")
    assert (done.exit, done.host(clean_host.name)["plan"]["outcome"]) == (0, "settle")


def test_killed_in_the_middle_of_a_swap_the_next_apply_completes_it(job: Job, clean_host: LabHost) -> None:
    assert job.run("apply").exit == 0
    for phase, seconds in (("stop", 8), ("wait for GPUs", 9), ("settle", 10)):
        slow(job, seconds)
        run = started(job, "apply")
        wait_for_phase(run, phase)
        run.kill()
        run.communicate(timeout=20)
        done = job.run("apply", "--lock-wait", "40")
        assert done.exit == 0, done.out
        assert job.run("apply").host(clean_host.name)["outcome"] == "unchanged"
        assert container_id(clean_host, "beam.previous") == ""


def test_waves_stop_after_a_failure_and_say_who_was_left_out(
    lab: Lab, clean_hosts: tuple[LabHost, ...], tmp_path: Path
) -> None:
    job = Job(lab, clean_hosts, tmp_path)
    job.write()
    job.write_inventory()
    assert job.run("apply", "--serial", "1").exit == 0
    before = {host.name: container_id(host) for host in clean_hosts}
    job.write({"container.env": {"STANDIN_FAULT": "crash-at-start"}})
    for words in (("--serial", "50%"), ("--canary",)):
        done = job.run("apply", *words)
        assert done.exit == 1
        assert [done.host(host.name)["outcome"] for host in clean_hosts] == ["failed", "not attempted"]
        assert {host.name: container_id(host) for host in clean_hosts} == before


def test_hooks_are_told_and_a_failing_one_stops_before_the_server(
    job: Job, clean_host: LabHost, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    script = 'cat > /dev/null; echo "$BEAMDEPLOY_HOOK $BEAMDEPLOY_NAME $BEAMDEPLOY_HOST" >> "$0"; exit "$1"'
    hooks = {when: ["sh", "-c", script, str(told), "0"] for when in ("before_stop", "after_ready", "on_failure")}
    job.write_inventory(hooks=hooks)
    assert job.run("apply").exit == 0
    job.write({"engine.max_num_seqs": 4})
    assert job.run("apply").exit == 0
    name = clean_host.name
    assert told.read_text().splitlines() == [
        f"{when} beam {name}" for when in ("after_ready", "before_stop", "after_ready")
    ]

    before = container_id(clean_host)
    job.write_inventory(hooks={**hooks, "before_stop": ["sh", "-c", script, str(told), "7"]})
    job.write({"engine.max_num_seqs": 2})
    for _ in range(2):
        told.write_text("")
        refused = job.run("apply")
        assert refused.exit == 1 and "the hook before_stop (sh) failed with exit code 7" in refused.problems
        assert "was not touched" in refused.problems
        assert told.read_text().splitlines() == [f"before_stop beam {name}", f"on_failure beam {name}"]
        assert container_id(clean_host) == before


def test_a_connection_that_is_lost_during_the_pull_is_taken_up_again(job: Job, clean_host: LabHost) -> None:
    run = started(job, "apply")
    wait_for_phase(run, "pull")
    clean_host.run("sh", "-c", "kill -9 $(pgrep -f '[s]shd: root@notty')")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert "again: the connection was lost during the pull" in err
    assert job.run("apply").host(clean_host.name)["outcome"] == "unchanged"


def test_a_change_whose_words_nobody_reads_any_more_is_completed(job: Job, clean_host: LabHost) -> None:
    assert job.run("apply").exit == 0
    job.write({"engine.max_num_seqs": 4})
    run = started(job, "apply")
    wait_for_phase(run, "stop")
    assert run.stderr is not None and run.stdout is not None
    run.stderr.close()
    run.stdout.close()
    assert run.wait(60) == 141
    assert job.run("apply").host(clean_host.name)["outcome"] == "unchanged"


def test_a_server_that_ends_while_it_is_waited_for_is_started_again(job: Job, clean_host: LabHost) -> None:
    assert job.run("apply").exit == 0
    job.write({"engine.max_num_seqs": 4, "container.env": {"STANDIN_LOAD_SECONDS": "4"}})
    first = started(job, "apply")
    wait_for_phase(first, "settle")
    first.kill()
    first.communicate()
    hold = "exec 9</run/lock/beamdeploy-beam.lock; flock 9; while [ ! -e /root/moved ]; do sleep 0.1; done"
    other = threading.Thread(target=clean_host.run, args=("sh", "-c", hold))
    other.start()
    run = started(job, "apply", "--lock-wait", "60")
    wait_for_phase(run, "lock: waiting for")
    clean_host.docker("kill", "beam")
    clean_host.run("touch", "/root/moved")
    out, err = run.communicate(timeout=60)
    other.join()
    assert run.returncode == 0, out + err
    assert "start: the container is exited" in err
    assert job.run("apply").host(clean_host.name)["outcome"] == "unchanged"


@pytest.mark.parametrize(
    ("deed", "moved"),
    [
        (("kill", "beam"), r"the container beam exited at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ with exit code 137 "),
        (("rm", "--force", "beam"), r"the container beam \([0-9a-f]{12}\) is gone "),
    ],
)
def test_a_server_that_is_gone_between_plan_and_lock_is_told_and_nothing_is_done(
    job: Job, clean_host: LabHost, deed: tuple[str, ...], moved: str
) -> None:
    assert job.run("apply").exit == 0
    job.write({"engine.max_num_seqs": 4})
    hold = "exec 9</run/lock/beamdeploy-beam.lock; flock 9; while [ ! -e /root/moved ]; do sleep 0.1; done"
    other = threading.Thread(target=clean_host.run, args=("sh", "-c", hold))
    other.start()
    run = started(job, "apply", "--lock-wait", "60")
    wait_for_phase(run, "lock: waiting for")
    clean_host.docker(*deed)
    left = container_id(clean_host)
    clean_host.run("touch", "/root/moved")
    out, err = run.communicate(timeout=60)
    other.join()
    assert run.returncode == 3, out + err
    assert re.search(rf"the host has changed since the plan was made: {moved}", out), out
    assert "Nothing was done here. Run the same again: it looks anew and shows the new plan." in err
    assert container_id(clean_host) == left
    assert job.run("apply").exit == 0
    assert job.run("apply").host(clean_host.name)["outcome"] == "unchanged"
