"""The lab as fixtures: `lab` for the session, `clean_host` for a test that wants its host as new, and a `job` on it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import lab as labs
from tests.integration.command import Job
from tests.lab import Lab, LabHost


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two hosts with their own Docker engines and a registry. What this machine lacks for it is named."""
    if missing := labs.missing():
        pytest.skip(f"the lab needs {', '.join(missing)} (scripts/install-test-tools, as root)")
    # not pytest's tmp_path: sockets and ControlPath need a short path
    folder = Path(tempfile.mkdtemp(prefix="bdlab-", dir="/tmp"))
    started = labs.start(folder, hosts=2)
    yield started
    labs.stop(started)
    shutil.rmtree(folder)


@pytest.fixture
def clean_host(lab: Lab) -> LabHost:
    """The first host, with no container, no image, an empty home and complete weights. What a test leaves there stays
    until the next one wants it clean."""
    labs.clean(lab.hosts[0])
    return lab.hosts[0]


@pytest.fixture
def clean_hosts(lab: Lab) -> tuple[LabHost, ...]:
    """All hosts of the lab, each as new."""
    for host in lab.hosts:
        labs.clean(host)
    return lab.hosts


@pytest.fixture
def job(lab: Lab, clean_host: LabHost, tmp_path: Path) -> Job:
    """The Beam recipe for the first host, which has not seen it yet."""
    made = Job(lab, (clean_host,), tmp_path)
    made.write()
    made.write_inventory()
    return made


@pytest.fixture
def name(clean_host: LabHost) -> str:
    """How the first host is called in inventory and reports."""
    return clean_host.name
