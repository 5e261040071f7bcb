"""What is wrong with a host, or with an image on it, is told before what serves is touched: groups A and C."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from beamdeploy.act import act
from beamdeploy.errors import HostError
from beamdeploy.inventory import load_inventory
from beamdeploy.look import look
from beamdeploy.plan import plan_apply
from beamdeploy.recipe import load_recipe
from beamdeploy.remote import open_session
from beamdeploy.render import render
from beamdeploy.sandbox import lifetime
from beamdeploy.survey import question
from tests.integration.command import BEAM, Ran, beamdeploy

OTHER = "lightseekorg/tokenspeed@sha256:" + "2" * 64


@dataclass(frozen=True)
class Emulated:
    """An emulated host in a folder of its own."""

    folder: Path

    @property
    def inventory(self) -> str:
        return str(self.folder / "inventory.yaml")

    def is_now(self, *faults: str) -> None:
        lifetime.up("4xb300", self.folder, faults, recipes=[load_recipe(str(BEAM))])

    def apply(self, *words: str) -> Ran:
        return beamdeploy("apply", str(BEAM), "-i", self.inventory, "-o", "json", "-y", *words)

    def docker(self, *words: str) -> str:
        asked = (str(self.folder / "bin" / "docker"), *words)
        return subprocess.run(asked, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Emulated]:
    made = Emulated(tmp_path / "sandbox")
    made.is_now()
    yield made
    lifetime.down(made.folder)


def blocked(done: Ran) -> str:
    """What it was told, in one text that names the host."""
    (report,) = done.report["hosts"].values()
    assert (done.exit, report["outcome"]) == (3, "blocked"), done.out
    (name,) = done.report["hosts"]
    assert f"{name}: " in done.problems
    return done.problems


def test_a03_a_daemon_without_gpus_is_told_before_anything_is_made(host: Emulated) -> None:
    host.is_now("no-gpu-runtime")
    for _ in range(2):
        told = blocked(host.apply())
        assert "docker on this host cannot reach the GPUs" in told
        assert "NVIDIA Container Toolkit" in told and "restart the docker daemon" in told
        assert "--gpus" not in told
        assert (host.docker("ps", "--all", "--quiet"), host.docker("images", "--quiet")) == ("", "")


def test_a03_a_runtime_that_goes_after_the_look_is_told_with_docker_s_line_and_leaves_no_husk(host: Emulated) -> None:
    [where] = load_inventory(host.inventory, environ={}).hosts
    spec = render(load_recipe(str(BEAM)), where, None)
    said = []
    with open_session(where) as session:
        plan = plan_apply(spec, look(session, question(spec)))
        host.is_now("no-gpu-runtime")
        for _ in range(2):
            with pytest.raises(HostError) as caught:
                act(session, spec, plan, lambda phase, detail: None)
            (problem,) = caught.value.problems
            said.append((problem.where, problem.what))
            assert 'could not select device driver "" with capabilities: [[gpu]]' in problem.what
            assert "NVIDIA Container Toolkit" in problem.remedy
            assert host.docker("ps", "--all", "--quiet") == ""
    assert said[0] == said[1] and said[0][0] == f"{where.name}: try GPUs"


def test_a15_too_few_inodes_for_a_pull_are_told_and_the_old_server_still_runs(host: Emulated) -> None:
    assert host.apply().exit == 0
    serving, images = host.docker("ps", "--quiet"), host.docker("images", "--quiet")
    host.is_now("disk-full")
    for _ in range(2):
        told = blocked(host.apply("-e", f"image.reference={OTHER}"))
        assert "/var/lib/docker" in told and "inodes free" in told and "too few" in told
        assert "nothing is pruned" in told
        assert (host.docker("ps", "--quiet"), host.docker("images", "--quiet")) == (serving, images)


def test_c09_an_image_that_needs_a_newer_cuda_is_told_after_its_pull_and_from_then_on_in_the_plan(
    host: Emulated,
) -> None:
    assert host.apply().exit == 0
    serving = host.docker("ps", "--quiet")
    host.is_now("old-cuda")
    plans = []
    for _ in range(2):
        done = host.apply("-e", f"image.reference={OTHER}")
        told = blocked(done)
        assert "driver 580.95.05 gives CUDA 13.0, the image needs 99.0" in told
        assert "Update the NVIDIA driver on the host, or use an older image (image.reference)" in told
        assert "NVIDIA_DISABLE_REQUIRE" not in told
        assert host.docker("ps", "--all", "--quiet") == serving
        (report,) = done.report["hosts"].values()
        plans.append([step["kind"] for step in report["plan"]["steps"]])
    assert (plans[0][0], plans[1]) == ("pull", [])


def test_cuda_that_does_not_start_is_told_while_the_old_server_serves(host: Emulated) -> None:
    assert host.apply().exit == 0
    serving = host.docker("ps", "--quiet")
    host.is_now("no-fabric")
    for _ in range(2):
        told = blocked(host.apply("-e", "engine.max_num_seqs=4"))
        assert "try GPUs: CUDA does not start in the image" in told and "802" in told and "fabric manager" in told
        assert "still runs" in told
        assert host.docker("ps", "--all", "--quiet") == serving
