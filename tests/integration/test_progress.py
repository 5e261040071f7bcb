"""What an apply says while a server loads, where there is no terminal, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.command import Job
from tests.lab import Lab, LabHost


@pytest.fixture
def job(lab: Lab, clean_host: LabHost, tmp_path: Path) -> Job:
    made = Job(lab, (clean_host,), tmp_path)
    made.write_inventory()
    return made


def test_a_phase_is_one_line_with_the_time_left_as_last_time_and_the_decisions_are_kept(
    job: Job, clean_host: LabHost
) -> None:
    said = []
    for seqs in (8, 4):
        job.write({"container.env": {"STANDIN_LOAD_SECONDS": "6"}, "engine.max_num_seqs": seqs})
        done = job.run("apply")
        assert done.exit == 0, done.out
        said.append([line.partition("loading: ")[2] for line in done.err.splitlines() if ": loading: " in line])
    for lines in said:
        weights = [line for line in lines if line.startswith(("target weights", "drafter weights"))]
        assert len(weights) == 2, lines
        phases = [line.partition(",")[0].rstrip("0123456789/ (%)") for line in lines]
        assert len(phases) == len(set(phases))
    assert [any("left, as last time" in line for line in lines) for lines in said] == [False, True]
    for entry in job.run("history").host(clean_host.name)["entries"]:
        assert (entry["decided"]["context"], entry["decided"]["kv_tokens"]) == (131072, 1310720)
        assert 0 < entry["phases"]["target weights"] <= entry["phases"]["ready"] <= entry["seconds"]
