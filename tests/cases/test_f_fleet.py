"""F05: three hosts, and the one in the middle cannot pull."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import lab as labs
from tests.cases.lab_docker import refusing_to_pull
from tests.integration.command import Job, Ran, container_id

LIMIT = "toomanyrequests: You have reached your unauthenticated pull rate limit."


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Job]:
    """gpu-a, gpu-b and gpu-c serve; the recipe wants an image that none of them has."""
    if missing := labs.missing():
        pytest.skip(f"the lab needs {', '.join(missing)} (scripts/install-test-tools, as root)")
    folder = Path(tempfile.mkdtemp(prefix="bdlab-", dir="/tmp"))
    started = labs.start(folder, hosts=3)
    job = Job(started, started.hosts, tmp_path)
    job.write()
    job.write_inventory()
    done = job.run("apply")
    assert done.exit == 0, done.out
    job.write({"image": {"reference": started.image("beam-next")}})
    yield job
    labs.stop(started)
    shutil.rmtree(folder)


def of_docker(job: Job, name: str, docker: str) -> None:
    """One host's docker is another program."""
    inventory = json.loads(Path(job.inventory).read_text(encoding="utf-8"))
    inventory["all"]["children"]["lab"]["hosts"][name]["docker"] = docker
    Path(job.inventory).write_text(json.dumps(inventory), encoding="utf-8")


def outcomes(done: Ran) -> dict[str, str]:
    return {name: host["outcome"] for name, host in done.report["hosts"].items()}


def test_f05_one_bad_host_loses_nobodys_result(three: Job) -> None:
    ids = {host.name: container_id(host) for host in three.hosts}
    bad = three.hosts[1]
    with refusing_to_pull(bad, LIMIT) as docker:
        of_docker(three, "gpu-b", docker)
        # variant_order: one at a time, and nothing more after a failure
        ordered = three.run("apply", "--serial", "1", "--order", "reverse_inventory", timeout=200)
        assert ordered.exit == 1
        assert outcomes(ordered) == {"gpu-c": "changed", "gpu-b": "failed", "gpu-a": "not attempted"}
        assert {host.name for host in three.hosts if container_id(host) == ids[host.name]} == {"gpu-a", "gpu-b"}
        done = three.run("apply", timeout=200)
        assert done.exit == 1
        assert outcomes(done) == {"gpu-a": "changed", "gpu-b": "failed", "gpu-c": "unchanged"}
        [problem] = done.report["problems"]
        assert problem["where"] == "gpu-b: pull" and "rate limit" in problem["what"]
        assert "was not touched and still runs" in problem["remedy"]
        shown = three.run("apply", output="text", timeout=200)
        lines = shown.out.splitlines()
        assert [line.split()[:2] for line in lines if line.startswith("gpu-")][-3:] == [
            ["gpu-a", "unchanged"], ["gpu-b", "failed"], ["gpu-c", "unchanged"],
        ]  # fmt: skip
    assert container_id(bad) == ids["gpu-b"]
    three.write_inventory()
    again = three.run("apply", "--limit", "@failed", timeout=200)
    assert (again.exit, outcomes(again)) == (0, {"gpu-b": "changed"}), again.out
    last = three.run("apply", timeout=200)
    assert outcomes(last) == dict.fromkeys(("gpu-a", "gpu-b", "gpu-c"), "unchanged")
    # the one that is left of nothing is nothing
    assert three.run("apply", "--limit", "@failed").exit == 2


def test_f05_lines_of_hosts_do_not_mix(three: Job) -> None:
    done = three.run("apply", output="text", timeout=200)
    assert done.exit == 0
    assert all(
        line.startswith(("gpu-", " ")) or ": warning" in line or "warning" in line for line in done.err.splitlines()
    )
