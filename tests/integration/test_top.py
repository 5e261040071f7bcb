"""`top` and `status -w`: who uses the GPUs, and one connection however often it is looked."""

from __future__ import annotations

import json
import subprocess
import sys
from signal import SIGINT

import pytest

from tests.integration.command import Job, beamdeploy, container_id, environment
from tests.lab import LabHost


@pytest.fixture
def job(job: Job) -> Job:
    """The Beam recipe, served."""
    assert job.run("apply").exit == 0
    return job


def test_top_says_who_uses_the_gpus_and_what_is_ours(job: Job, clean_host: LabHost) -> None:
    stranger = ("run", "--detach", "--name", "theirs", "--entrypoint", "sleep", job.lab.image("beam"), "600")
    clean_host.docker(*stranger)
    ours, theirs = (
        clean_host.docker("inspect", "--format", "{{.State.Pid}}", box).strip() for box in ("beam", "theirs")
    )
    uuids = [f"GPU-00000000-0000-0000-0000-{at + 10:012x}" for at in range(4)]
    users = ((ours, uuids[0]), (theirs, uuids[1]), ("1", uuids[1]))
    rows = [f"{pid}, python, {uuid}, 1000" for pid, uuid in users]
    (clean_host.folder / "apps.csv").write_text(
        "\n".join(["pid, process_name, gpu_uuid, used_gpu_memory", *rows]) + "\n", encoding="utf-8"
    )
    for _ in range(2):
        done = beamdeploy("top", "-i", job.inventory, "-o", "json")
        host = done.host(clean_host.name)
        assert [gpu["holders"] for gpu in host["gpus"]] == [
            [f"beam (pid {ours})"],
            [f"container theirs (pid {theirs}), not ours", "python (pid 1), not ours"],
            [],
            [],
        ]
        assert (host["gpus"][3]["index"], host["gpus"][3]["total"], host["gpus"][3]["busy"]) == (3, 275040, 0)
        [serving] = host["deployments"]
        assert (serving["name"], serving["endpoint"]) == ("beam", "http://127.0.0.1:8000/v1")
        assert serving["status"].startswith("Up") and serving["running"] is None
    shown = beamdeploy("top", "-i", job.inventory)
    assert shown.exit == 0 and f"beam (pid {ours})" in shown.out and "http://127.0.0.1:8000/v1" in shown.out
    (clean_host.folder / "nvidia-smi.fails").write_text("NVML: Driver/library version mismatch\n", encoding="utf-8")
    broken = beamdeploy("top", "-i", job.inventory)
    assert (broken.exit, "Driver/library version mismatch" in broken.err) == (0, True)


def test_status_that_is_watched_keeps_one_connection_and_takes_another_when_it_is_lost(
    job: Job, clean_host: LabHost
) -> None:
    def connections() -> int:
        return (clean_host.folder / "sshd.log").read_text(encoding="utf-8").count("Accepted publickey")

    before = connections()
    words = ("status", "-w", "--interval", "0.2", "-i", job.inventory, "-o", "json")
    run = subprocess.Popen(
        (sys.executable, "-m", "beamdeploy", *words),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert run.stdout is not None
    for lost in range(3):
        for _ in range(3):
            assert json.loads(run.stdout.readline())["exit"] == 0
        assert connections() == before + 1 + lost
        clean_host.drop()
        # one look may have been on its way
        json.loads(run.stdout.readline())
    run.send_signal(SIGINT)
    _, err = run.communicate(timeout=20)
    assert "Traceback" not in err
    assert container_id(clean_host) != ""
