"""Starts that fail, each explained by its first cause; and servers that answer without serving, which are seen."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import Job, beamdeploy, container_id
from tests.lab import LabHost

LOGS = Path(__file__).parents[1] / "data" / "logs"
LOST = """printf '#!/bin/sh\\necho "Failed to initialize NVML: Unknown Error"\\nexit 255\\n' > /bin/nvidia-smi
chmod 755 /bin/nvidia-smi"""


def fault(name: str, **environment: str) -> Mapping[str, Any]:
    """A change of the recipe that makes the stand-in engine fail so."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return {"container.env": {**offline, "STANDIN_FAULT": name, **environment}}


@pytest.mark.parametrize(
    ("name", "cause", "evidence", "setting"),
    [
        ("crash-at-start", "could not be joined by NCCL", "NCCL error: unhandled system error", "container.env"),
        ("cuda-oom", "ran out of memory while the weights were read", "Tried to allocate 2.50 GiB", "tensor_parallel"),
        ("graph-oom", "the weights fit", "Tried to allocate 512.00 MiB", "engine.gpu_memory_utilization"),
        ("bad-gateway-flag-late", "weights and GPUs are not at fault", "--no-such-flag", "engine.args.no-such-flag"),
    ],
)
def test_a_start_that_fails_ends_with_its_first_cause(
    job: Job, clean_host: LabHost, name: str, cause: str, evidence: str, setting: str
) -> None:
    job.write(fault(name))
    for _ in range(2):
        done = job.run("apply")
        assert (done.exit, done.host(clean_host.name)["outcome"]) == (1, "failed"), done.out
        (problem,) = [each for each in done.report["problems"] if each["level"] == "error"]
        assert cause in done.host(clean_host.name)["summary"]
        assert evidence in problem["what"].splitlines()[0] and "startup failed" in problem["what"]
        assert setting in problem["remedy"]
        sick = job.run("doctor")
        assert sick.exit == 1 and cause in sick.problems, sick.out


def test_a_start_that_stalls_is_seen_within_its_limit(job: Job, clean_host: LabHost) -> None:
    job.write({**fault("stall"), "ready.stall": "3s"})
    for _ in range(2):
        started = time.monotonic()
        done = job.run("apply")
        assert time.monotonic() - started < 30
        assert (done.exit, done.host(clean_host.name)["outcome"]) == (6, "not ready"), done.out
        assert "no progress" in done.problems and "in: target weights 1/" in done.problems
        assert "disk or network storage" in done.problems
        sick = job.run("doctor")
        assert (sick.exit, sick.host(clean_host.name)["outcome"]) == (6, "not ready")
        assert "it is loading: target weights 1/" in sick.problems


def test_a_slow_start_is_no_stall_and_its_progress_is_told(job: Job, clean_host: LabHost) -> None:
    job.write({**fault("", STANDIN_LOAD_SECONDS="12"), "ready.stall": "8s"})
    done = job.run("apply")
    assert done.exit == 0, done.out
    assert "loading: target weights" in done.err and "drafter weights" in done.err
    decided = done.host(clean_host.name)["completion"]["decided"]
    assert (decided["context"], decided["max_input"]) == (131072, 131071)
    job.run("destroy", "-y")


def test_a_context_that_the_engine_shortened_is_told(job: Job, clean_host: LabHost) -> None:
    job.write(fault("", STANDIN_CACHE_TOKENS="90000"))
    done = job.run("apply")
    assert done.exit == 0, done.out
    assert "the engine shortened the context to 90000 tokens; engine.max_model_len is 131072" in done.problems


def test_a_server_that_lost_its_gpus_answers_and_is_not_healthy(job: Job, clean_host: LabHost) -> None:
    assert job.run("apply").exit == 0
    well, made = job.run("doctor"), container_id(clean_host)
    assert (well.exit, well.host(clean_host.name)["outcome"]) == (0, "ok"), well.out
    assert job.run("status", "--deep").host(clean_host.name)["deployments"][0]["seconds"] > 0
    clean_host.docker("exec", "beam", "sh", "-c", LOST)
    for _ in range(2):
        assert job.run("status").exit == 0
        deep = job.run("status", "--deep")
        assert (deep.exit, deep.host(clean_host.name)["deployments"][0]["ready"]) == (6, "GPUs lost")
        sick = job.run("doctor")
        assert (sick.exit, sick.host(clean_host.name)["outcome"]) == (1, "failed")
        for told in (deep.problems, sick.problems):
            assert "lost its access to the GPUs" in told and "the host still has 4" in told
            assert "Make the container again" in told and "CDI" in told
        assert (job.run("apply").host(clean_host.name)["outcome"], container_id(clean_host)) == ("unchanged", made)


def test_a_pasted_log_is_explained_without_a_host(tmp_path: Path) -> None:
    file = str(LOGS / "ts-gateway-value.log")
    told = beamdeploy("doctor", "--log", file, "-o", "json")
    (problem,) = told.report["problems"]
    assert told.exit == 1 and told.report["diagnosis"]["path"] == "parsers.tool_call"
    assert (problem["file"], problem["line"], problem["rule"]) == (file, 3, "ts-gateway-value")
    assert "kimi_k3" in beamdeploy("doctor", "--log", file).err
    healthy = beamdeploy("doctor", "--log", str(LOGS / "healthy-vllm.log"), "-o", "json")
    assert (healthy.exit, healthy.report["engine"], healthy.report["diagnosis"]) == (0, "vllm", None)
    assert json.loads(healthy.out)["kind"] == "DoctorReport"
    assert beamdeploy("doctor", "--log", str(tmp_path / "absent")).exit == 2


def test_a_container_that_dies_while_it_loads_is_noticed_at_once(job: Job, clean_host: LabHost) -> None:
    job.write(fault("", STANDIN_LOAD_SECONDS="300"))
    for _ in range(2):
        words = ("apply", job.recipe, "-i", job.inventory, "-o", "json")
        run = subprocess.Popen((sys.executable, "-m", "beamdeploy", *words), stdout=subprocess.PIPE, text=True)
        while not clean_host.docker("ps", "--quiet", "--filter", "name=^/beam$").strip():
            time.sleep(0.1)
        time.sleep(3)
        clean_host.docker("kill", "beam")
        killed = time.monotonic()
        out, _ = run.communicate(timeout=30)
        # three seconds to notice, and two for the log, the reason and the report on a busy machine
        assert time.monotonic() - killed < 15
        assert run.returncode == 1 and "killed (SIGKILL)" in json.loads(out)["problems"][0]["what"]
        job.run("destroy", "-y")
