"""`beamdeploy bench` against the stand-in engine, and compared with itself."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.integration.command import Job, beamdeploy
from tests.lab import Lab, LabHost


@pytest.fixture
def job(lab: Lab, clean_host: LabHost, tmp_path: Path) -> Job:
    """The Beam recipe, served on the first host of the lab, with a pause before each token."""
    made = Job(lab, (clean_host,), tmp_path)
    env = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "STANDIN_TOKEN_SECONDS": "0.005"}
    made.write({"container.env": env, "engine.args": {"enable-metrics": True}})
    made.write_inventory()
    assert made.run("apply").exit == 0
    return made


def test_figures_are_measured_written_drawn_and_compared(job: Job, clean_host: LabHost, tmp_path: Path) -> None:
    how = ("-i", job.inventory, "--concurrency", "1,4", "--requests", "4", "--input", "200", "--output", "20")
    first = beamdeploy("bench", job.recipe, *how, "-o", "json")
    assert first.exit == 0, first.err
    levels = first.host(clean_host.name)["levels"]
    assert [(each["concurrency"], each["requests"], each["failed"]) for each in levels] == [(1, 4, 0), (4, 4, 0)]
    for each in levels:
        assert 180 <= each["input_tokens"] <= 220
        assert each["output_tokens"] == 20
        assert each["inter_token"]["p50"] >= 0.005
        assert each["acceptance"] == 0.6667
        assert each["ttft"]["p50"] <= each["ttft"]["p99"] <= each["latency"]["p99"]
    assert levels[1]["tokens_per_second"] > levels[0]["tokens_per_second"]

    (tmp_path / "first.json").write_text(first.out, encoding="utf-8")
    plot = tmp_path / "plot.svg"
    again = beamdeploy("bench", "beam", *how, "--against", str(tmp_path / "first.json"), "--plot", str(plot))
    assert (again.exit, "tokens_per_second" in again.out) == (0, True), again.err
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def test_a_server_that_is_gone_gives_no_figures(job: Job, clean_host: LabHost) -> None:
    clean_host.docker("kill", "beam")
    ran = beamdeploy("bench", job.recipe, "-i", job.inventory, "-o", "json")
    assert (ran.exit, "no figures can be had: nothing answers there" in ran.problems) == (6, True)
