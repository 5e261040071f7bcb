"""Group F: a server is changed while it serves; what can fail fails before it is stopped, or is undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from beamdeploy.errors import HostError
from beamdeploy.gpu_memory import wait_for_gpus
from beamdeploy.inventory import load_inventory
from beamdeploy.remote import open_session
from tests.cases.lab_docker import refusing_to_pull
from tests.cases.test_f_life import events, now
from tests.integration.command import Job, container_id, environment
from tests.lab import LabHost

REFUSALS = {
    "rate": ("toomanyrequests: You have reached your unauthenticated pull rate limit.", "rate limit"),
    "denied": (
        "pull access denied for lightseekorg/tokenspeed, repository does not exist or may require 'docker login'",
        "log",
    ),
    "unknown-manifest": (
        "manifest for lightseekorg/tokenspeed@sha256:1111 not found: manifest unknown: manifest unknown",
        "digest",
    ),
    "dns": ("dial tcp: lookup registry-1.docker.io: no such host", "DNS"),
    "clock": (
        "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time "
        "2019-03-01T00:00:00Z is before 2026-05-01T00:00:00Z",
        "clock",
    ),
    "proxy": ("proxyconnect tcp: dial tcp 10.0.0.1:3128: connect: connection refused", "proxy"),
}


def next_image(job: Job) -> None:
    """The recipe with an image that is not on the host yet."""
    job.write({"image": {"reference": job.lab.image("beam-next")}})


@pytest.mark.parametrize("row", REFUSALS)
def test_f13_a_refused_pull_leaves_the_old_server_alone_and_is_explained(
    job: Job, clean_host: LabHost, name: str, row: str
) -> None:
    said, expected = REFUSALS[row]
    assert job.run("apply").exit == 0
    before = container_id(clean_host)
    next_image(job)
    with refusing_to_pull(clean_host, said) as docker:
        job.write_inventory(docker=docker)
        since = now(clean_host)
        done = job.run("apply")
    assert (done.exit, done.host(name)["outcome"]) == (1, "failed"), done.out
    [problem] = done.report["problems"]
    assert expected.lower() in (problem["what"] + problem["remedy"]).lower(), problem
    assert "was not touched and still runs" in problem["remedy"]
    assert (container_id(clean_host), events(clean_host, since)) == (before, [])


def test_f13_present_anyway(job: Job, clean_host: LabHost, name: str) -> None:
    clean_host.docker("pull", job.lab.image("beam"))
    with refusing_to_pull(clean_host, REFUSALS["dns"][0]) as docker:
        job.write_inventory(docker=docker)
        done = job.run("apply")
    assert (done.exit, done.host(name)["outcome"]) == (0, "changed"), done.out


def test_f11_the_order_of_a_replacement_and_memory_that_is_freed_later(
    job: Job, clean_host: LabHost, name: str
) -> None:
    assert job.run("apply").exit == 0
    table = clean_host.folder / "gpus.csv"
    idle = table.read_text(encoding="utf-8")
    table.write_text(idle.replace(", 4, 275036,", ", 246000, 29040,"), encoding="utf-8")
    job.write({"engine.max_num_seqs": 4})
    # memory that our own server holds is no obstacle
    plan = job.run("plan").host(name)["plan"]
    kinds = [step["kind"] for step in plan["steps"]]
    assert kinds == ["probe", "try GPUs", "stop", "set aside", "wait for GPUs", "run", "settle", "remove"]
    since = now(clean_host)
    partly = idle.replace(", 4, 275036,", ", 90000, 185040,", 1)
    later = [threading.Timer(seconds, table.write_text, (text,)) for seconds, text in ((15, partly), (20, idle))]
    for timer in later:
        timer.start()
    done = job.run("apply")
    for timer in later:
        timer.join()
    assert done.exit == 0, done.out
    wanted = ("container stop", "container rename", "container create", "container start", "container destroy")
    # before the stop the image is asked, in two containers that go at once: for flags, and whether CUDA starts
    asked = ("container create", "container start", "container destroy")
    assert [event for event in events(clean_host, since) if event in wanted] == [*asked, *asked, *wanted]
    assert "wait for GPUs: GPU 0: " in done.err
    assert job.run("apply").host(name)["outcome"] == "unchanged"


@pytest.fixture(params=["on the PATH", "off the PATH"])
def place_of_nvidia_smi(request: pytest.FixtureRequest, clean_host: LabHost) -> Iterator[None]:
    """Where the look finds it beside the PATH of the session, too."""
    if request.param == "on the PATH":
        yield
        return
    (clean_host.folder / "root" / ".bashrc").write_text("export PATH=/usr/bin:/bin\n", encoding="utf-8")
    link = f"ln -s {clean_host.folder}/bin/nvidia-smi /usr/local/bin/nvidia-smi"
    clean_host.run("sh", "-c", f"mount -t tmpfs none /usr/local/bin && {link}")
    yield
    clean_host.run("umount", "/usr/local/bin")


@pytest.mark.usefixtures("place_of_nvidia_smi")
def test_f11_variant_never_free_names_the_holder_and_kills_nobody(job: Job, clean_host: LabHost) -> None:
    table, apps = clean_host.folder / "gpus.csv", clean_host.folder / "apps.csv"
    table.write_text(table.read_text().replace(", 4, 275036,", ", 90000, 185040,", 1), encoding="utf-8")
    uuid = table.read_text(encoding="utf-8").splitlines()[1].split(", ")[2]
    apps.write_text(f"{apps.read_text().splitlines()[0]}\n77123, python3, {uuid}, 90000\n", encoding="utf-8")
    [host] = load_inventory(job.inventory, environ=os.environ).hosts
    with open_session(host) as session, pytest.raises(HostError) as caught:
        wait_for_gpus(session, host, (0, 1, 2, 3), lambda phase, detail: None, within=2)
    [problem] = caught.value.problems
    assert problem.what == (
        "GPU memory is still in use after the server has stopped "
        "(GPU 0: 90000 MiB, held by python3 (pid 77123) on GPU 0)"
    )
    assert "nothing is killed" in problem.remedy


def started(job: Job) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-m", "beamdeploy", "apply", job.recipe, "-i", job.inventory),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip


def until_phase(run: subprocess.Popen[str], phase: str) -> None:
    assert run.stderr is not None
    assert any(f": {phase}" in line for line in run.stderr), f"it ended before {phase}"


def slow_stop(job: Job) -> None:
    """A server that takes eight seconds to stop serves; the recipe wants another."""
    env = {"STANDIN_FAULT": "ignore-term"}
    job.write({"container.env": env, "container.stop_timeout": 8})
    assert job.run("apply").exit == 0
    job.write({"engine.max_num_seqs": 4})


def until_stopped(host: LabHost) -> None:
    """The stop that was sent goes on there; an apply whose plan it overtakes would say so and end with 3."""
    deadline = time.monotonic() + 60
    while host.docker("inspect", "--format", "{{.State.Running}}", "beam").strip() == "true":
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_f06_interrupted_while_the_old_server_stops(
    job: Job, clean_host: LabHost, name: str, number: signal.Signals
) -> None:
    slow_stop(job)
    run = started(job)
    until_phase(run, "stop")
    time.sleep(1)
    began = time.monotonic()
    run.send_signal(number)
    out, err = run.communicate(timeout=20)
    assert time.monotonic() - began < 15
    assert run.returncode == 130 and "Traceback" not in err
    assert "the old server was being stopped and no new one was started: apply again" in out
    until_stopped(clean_host)
    done = job.run("apply", "--lock-wait", "40")
    assert (done.exit, done.host(name)["outcome"]) == (0, "changed"), done.out
    assert job.run("apply").host(name)["outcome"] == "unchanged"
    assert container_id(clean_host, "beam.previous") == ""


def test_f06_a_second_interrupt_ends_it_at_once(job: Job) -> None:
    slow_stop(job)
    run = started(job)
    until_phase(run, "stop")
    began = time.monotonic()
    for _ in range(2):
        run.send_signal(signal.SIGINT)
        time.sleep(0.05)
    run.communicate(timeout=20)
    assert run.returncode != 0 and time.monotonic() - began < 15
    # whether the stop was sent before the interrupt is a race; if it ends between plan and lock, that apply says so
    exits = [job.run("apply", "--lock-wait", "40").exit for _ in range(2)]
    assert exits in ([0, 0], [3, 0])


def test_f06_a_laptop_that_sleeps_says_that_it_does_not_know_and_the_next_apply_completes(
    job: Job, clean_host: LabHost, name: str
) -> None:
    slow_stop(job)
    run = started(job)
    until_phase(run, "stop")
    run.send_signal(signal.SIGSTOP)
    clean_host.run("sh", "-c", "kill -9 $(pgrep -f '[s]shd: root@notty')")
    time.sleep(3)
    # the lock went with the connection, so others can work while it sleeps
    assert job.run("apply", "--lock-wait", "40").exit == 0
    made = container_id(clean_host)
    run.send_signal(signal.SIGCONT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 4 and "the state of this host is unknown" in out, out + err
    assert container_id(clean_host) == made
    assert job.run("apply").host(name)["outcome"] == "unchanged"


def test_f11_variant_a_stranger_that_stays_is_not_waited_for(job: Job, clean_host: LabHost, name: str) -> None:
    """It leaves enough: the change is made beside it, and a failed one ends with the old server up again."""
    assert job.run("apply").exit == 0
    table, apps = clean_host.folder / "gpus.csv", clean_host.folder / "apps.csv"
    table.write_text(table.read_text().replace(", 4, 275036,", ", 20000, 255040,", 1), encoding="utf-8")
    uuid = table.read_text(encoding="utf-8").splitlines()[1].split(", ")[2]
    ours = clean_host.docker("inspect", "--format", "{{.State.Pid}}", "beam").strip()
    rows = f"77123, python3, {uuid}, 20000\n{ours}, tokenspeed, {uuid}, 900\n"
    apps.write_text(f"{apps.read_text().splitlines()[0]}\n{rows}", encoding="utf-8")
    job.write({"engine.max_num_seqs": 4})
    began = time.monotonic()
    done = job.run("apply")
    assert (done.exit, done.host(name)["outcome"]) == (0, "changed"), done.out
    assert "wait for GPUs: GPU 0" not in done.err and time.monotonic() - began < 60
    assert [problem["level"] for problem in done.report["problems"]] == ["warning"]
