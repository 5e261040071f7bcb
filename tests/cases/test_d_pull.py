"""D06: the connection, or the pull, dies while an image is pulled."""

from __future__ import annotations

import time

from tests.cases.lab_docker import pulling
from tests.cases.test_f_change import next_image, started, until_phase
from tests.cases.test_f_life import events, now
from tests.integration.command import Job, container_id
from tests.lab import Lab, LabHost


def test_d06_main_it_reconnects_looks_and_goes_on(job: Job, clean_host: LabHost, name: str) -> None:
    assert job.run("apply").exit == 0
    before = container_id(clean_host)
    next_image(job)
    with pulling(clean_host, "sleep 3") as docker:
        job.write_inventory(docker=docker)
        since = now(clean_host)
        run = started(job)
        until_phase(run, "pull")
        time.sleep(1)
        clean_host.drop()
        assert (container_id(clean_host), events(clean_host, since)) == (before, [])
        out, err = run.communicate(timeout=120)
    job.write_inventory()
    assert run.returncode == 0, out + err
    assert "again: the connection was lost during the pull" in err
    assert container_id(clean_host) not in ("", before)
    assert job.run("apply").host(name)["outcome"] == "unchanged"


def test_d06_variant_killed(job: Job, clean_host: LabHost, name: str) -> None:
    assert job.run("apply").exit == 0
    before = container_id(clean_host)
    next_image(job)
    with pulling(clean_host, "kill -9 $$") as docker:
        job.write_inventory(docker=docker)
        done = job.run("apply")
    assert (done.exit, done.host(name)["outcome"]) == (1, "failed"), done.out
    assert "pull ended abnormally" in done.problems and "was not touched and still runs" in done.problems
    assert container_id(clean_host) == before


def test_d06_variant_gone(lab: Lab, job: Job, clean_hosts: tuple[LabHost, ...], name: str) -> None:
    gone, other = clean_hosts
    job = Job(lab, clean_hosts, type(job.folder)(job.folder))
    with pulling(gone, "sleep 5") as docker:
        job.write_inventory(docker=docker)
        with pulling(other, "sleep 5"):
            run = started(job)
            until_phase(run, "pull")
            time.sleep(1)
            gone.shut()
            gone.run("ip", "link", "set", "eth0", "down")
            began = time.monotonic()
            try:
                out, err = run.communicate(timeout=240)
            finally:
                gone.run("ip", "link", "set", "eth0", "up")
                gone.reopen()
    assert time.monotonic() - began < 200
    assert run.returncode != 0 and "Traceback" not in err
    assert "the state of this host is unknown" in out, out
    assert container_id(other) != "" and f"{other.name} " in out
