"""Plans as whole values: what is done for each state of a host, in which order, and what blocks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from beamdeploy.endpoint import Answer
from beamdeploy.errors import BLOCKED
from beamdeploy.inventory import Host
from beamdeploy.label import DIGEST, NAME, SPEC, Change
from beamdeploy.lock import Lock
from beamdeploy.look.facts import Container, Docker, Facts, Gpu, Gpus, Image, Listener, Weights
from beamdeploy.outcome import Report
from beamdeploy.plan import Plan, plan_apply, plan_destroy
from beamdeploy.recap import drifted, planned, without
from beamdeploy.recipe import load_recipe
from beamdeploy.render import Spec, render
from beamdeploy.report.text import plain, report_lines
from tests import checkpoint, look_script

BEAM = str(Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml")
ONES, THREES = ("sha256:" + digit * 64 for digit in "13")
REPOSITORY = "lightseekorg/tokenspeed"
OLD, ASIDE, STRANGER = ("c0ffee" + "0" * 58, "decade" + "0" * 58, "bad" + "0" * 61)


def spec_of(*overrides: tuple[str, str], digest: str = ONES) -> Spec:
    lock = Lock("beam.lock.yaml", f"{REPOSITORY}:beam", digest)
    return render(load_recipe(BEAM, overrides), Host("gpu-a", model_dir="/srv/models/beam"), lock)


SPEC_NOW = spec_of()
IMAGE = Image("sha256:" + "2" * 64, (), (f"{REPOSITORY}@{ONES}",), "amd64", "linux")
GPUS = Gpus("580.95.05", tuple(Gpu(i, "NVIDIA B300 SXM6 AC", f"GPU-{i}", 275040, 4, "10.3") for i in range(4)))
READY = {"/readiness": Answer(200, "{}"), "/v1/models": Answer(200, '{"data":[{"id":"Beam-1.0-501B-A23B"}]}')}


@cache
def weights() -> dict[str, Weights | None]:
    """Staged folders that pass, as the look finds them on disk."""
    with TemporaryDirectory() as folder:
        checkpoint.target(Path(folder) / "nvfp4")
        checkpoint.drafter(Path(folder) / "dflash2")
        return {name: look_script.weights(Path(folder), name) for name in ("nvfp4", "dflash2")}


def facts(*containers: Container, **changes: object) -> Facts:
    docker = Docker("28.2.2", "28.2.2", "/var/lib/docker", "x86_64", ("runc", "nvidia"), True)
    healthy = Facts(docker, (IMAGE,), containers, (), GPUS, {}, weights(), True, (), {})
    return replace(healthy, **changes)  # type: ignore[arg-type]  # each test names fields of Facts


def container(spec: Spec = SPEC_NOW, **changes: object) -> Container:
    words = spec.words
    pairs = [word.split("=", 1) for before, word in itertools.pairwise(words) if before == "--label"]
    ours = Container(
        OLD, "beam", spec.image.word, IMAGE.id, "running", 0, False, "", "2026-11-30T10:00:00Z", 0,
        {name: value for name, value in pairs}, (("127.0.0.1", 8000, 8000),),
    )  # fmt: skip
    return replace(ours, **changes)  # type: ignore[arg-type]  # each test names fields of Container


def kinds(plan: Plan) -> list[str]:
    return [step.kind for step in plan.steps]


def test_labels_are_the_three_we_read() -> None:
    assert set(container().labels) == {NAME, DIGEST, SPEC}


def test_equal_running_and_ready_needs_nothing() -> None:
    assert plan_apply(SPEC_NOW, facts(container(), answers=READY)) == Plan("gpu-a", "unchanged")


def test_an_empty_host_gets_the_container_and_a_proof() -> None:
    plan = plan_apply(SPEC_NOW, facts())
    assert (plan.outcome, kinds(plan), plan.fallback) == ("create", ["probe", "try GPUs", "run", "settle"], None)
    assert plan.steps[2].words == SPEC_NOW.words


def test_an_absent_image_is_pulled_by_digest_before_all_else() -> None:
    plan = plan_apply(SPEC_NOW, facts(images=()))
    assert kinds(plan) == ["pull", "probe", "try GPUs", "run", "settle"]
    assert plan.steps[0].words == ("docker", "pull", f"{REPOSITORY}@{ONES}")


def test_the_digest_of_another_repository_is_not_ours() -> None:
    other = replace(IMAGE, repo_digests=(f"mirror.example/x@{ONES}",))
    assert kinds(plan_apply(SPEC_NOW, facts(images=(other,)))) == ["pull", "probe", "try GPUs", "run", "settle"]


def test_the_right_repository_counts_wherever_it_is_listed() -> None:
    both = replace(IMAGE, repo_digests=(f"mirror.example/x@{THREES}", f"docker.io/{REPOSITORY}@{ONES}"))
    assert kinds(plan_apply(SPEC_NOW, facts(images=(both,)))) == ["probe", "try GPUs", "run", "settle"]


def test_one_changed_flag_is_named_and_the_old_server_is_stopped_last() -> None:
    plan = plan_apply(spec_of(("engine.max_num_seqs", "16")), facts(container(), images=(), answers=READY))
    assert plan.changes == (Change("engine.max_num_seqs", 8, 16),)
    first, swap = ["pull", "probe", "try GPUs"], ["stop", "set aside", "wait for GPUs", "run", "settle", "remove"]
    assert kinds(plan) == first + swap
    assert [step.words for step in plan.steps if step.kind in ("stop", "set aside", "remove")] == [
        ("docker", "stop", "-t", "70", OLD),
        ("docker", "rename", OLD, "beam.previous"),
        ("docker", "rm", OLD),
    ]
    assert plan.fallback == OLD
    assert plan.interrupts


def test_a_moved_digest_is_a_change_although_the_tag_is_the_same() -> None:
    plan = plan_apply(spec_of(digest=THREES), facts(container(), answers=READY))
    assert plan.changes == (Change("image", f"{REPOSITORY}@{ONES}", f"{REPOSITORY}@{THREES}"),)
    assert kinds(plan)[:2] == ["pull", "probe"]


def test_a_setting_that_shapes_no_word_is_no_change() -> None:
    spec = spec_of(("request.temperature", "0.1"), ("ready.timeout", "10m"), ("container.stop_timeout", "90"))
    assert plan_apply(spec, facts(container(), answers=READY)).outcome == "unchanged"


def test_an_ended_container_is_started_again() -> None:
    plan = plan_apply(SPEC_NOW, facts(container(state="exited", exit_code=137)))
    assert (plan.outcome, kinds(plan)) == ("start", ["start", "settle"])
    assert plan.steps[0].words == ("docker", "start", OLD)


def test_a_loading_container_is_waited_for_and_nothing_is_changed() -> None:
    plan = plan_apply(SPEC_NOW, facts(container()))
    assert (plan.outcome, kinds(plan), plan.writes) == ("settle", ["settle"], False)
    assert plan.steps[0].container == OLD


def test_another_model_on_the_port_is_not_ready() -> None:
    answers = {**READY, "/v1/models": Answer(200, '{"data":[{"id":"beam-1.0-501b-a23b"}]}')}
    assert plan_apply(SPEC_NOW, facts(container(), answers=answers)).outcome == "settle"


def test_a_husk_is_removed_and_made_anew() -> None:
    assert kinds(plan_apply(SPEC_NOW, facts(container(state="created")))) == [
        "probe",
        "try GPUs",
        "remove",
        "wait for GPUs",
        "run",
        "settle",
    ]


def test_an_interrupted_swap_keeps_its_fallback() -> None:
    aside = container(id=ASIDE, name="beam.previous", state="exited")
    create = plan_apply(SPEC_NOW, facts(aside))
    asked = ["probe", "try GPUs"]
    assert (create.outcome, kinds(create), create.fallback) == ("create", [*asked, "run", "settle", "remove"], ASIDE)
    changed = plan_apply(spec_of(("engine.max_num_seqs", "16")), facts(container(), aside))
    steps = [*asked, "stop", "remove", "wait for GPUs", "run", "settle", "remove"]
    assert (kinds(changed), changed.fallback) == (steps, ASIDE)
    tidied = plan_apply(SPEC_NOW, facts(container(), aside, answers=READY))
    assert [step.words for step in tidied.steps] == [("docker", "rm", "--force", ASIDE)]


@pytest.mark.parametrize("state", ["running", "exited"])
def test_a_container_of_our_name_that_is_not_ours_blocks(state: str) -> None:
    stranger = Container(STRANGER, "beam", "nginx", "", state, 0, False, "", "", 0, {})
    plan = plan_apply(SPEC_NOW, facts(stranger))
    assert (plan.outcome, plan.steps) == ("blocked", ())
    assert "nginx" in plan.problems[0].what and "beamdeploy's label" in plan.problems[0].what


def test_a_port_held_by_a_program_blocks_and_names_it() -> None:
    plan = plan_apply(SPEC_NOW, facts(listeners=(Listener("127.0.0.1", 8000, 4242, "jupyter-lab"),)))
    assert plan.outcome == "blocked"
    assert plan.problems[0].where == "gpu-a: port"
    assert plan.problems[0].what == "port 127.0.0.1:8000 is taken by jupyter-lab (pid 4242) on 127.0.0.1:8000"


def test_our_own_port_and_another_address_do_not_block() -> None:
    ours = Listener("127.0.0.1", 8000, 1, "docker-proxy")
    assert plan_apply(SPEC_NOW, facts(container(), listeners=(ours,), answers=READY)).outcome == "unchanged"
    elsewhere = Listener("10.0.0.7", 8000, 1, "nginx")
    assert plan_apply(SPEC_NOW, facts(listeners=(elsewhere,))).outcome == "create"


def test_another_container_on_the_port_is_named() -> None:
    other = Container(STRANGER, "old-exp", "vllm", "", "running", 0, False, "", "", 0, {}, (("0.0.0.0", 8000, 8000),))
    plan = plan_apply(SPEC_NOW, facts(other))
    assert "the container old-exp (vllm)" in plan.problems[0].what


def test_all_that_blocks_is_said_at_once() -> None:
    docker = Docker("28", "28", "/", "x86_64", ("runc",), False)
    old_driver = Gpus("550.142", tuple(replace(gpu, name="NVIDIA H200") for gpu in GPUS.gpus[:2]))
    plan = plan_apply(SPEC_NOW, facts(docker=docker, gpus=old_driver, images=(replace(IMAGE, arch="arm64"),)))
    assert [problem.what for problem in plan.problems] == [
        "docker on this host cannot reach the GPUs: its daemon has no NVIDIA runtime",
        "GPU 2, 3 is not there; the host has 2",
        "hardware.gpu is B300, the host has NVIDIA H200",
        "the driver is 550.142, hardware.min_driver is 580",
        "the image is for arm64, the host is amd64",
    ]


def test_missing_weights_name_the_folder_and_the_field() -> None:
    plan = plan_apply(SPEC_NOW, facts(container(), weights={"nvfp4": None, "dflash2": None}, model_dir_exists=False))
    assert plan.outcome == "blocked"
    assert "/srv/models/beam/nvfp4" in plan.problems[0].what


def test_an_unpinned_image_is_said_in_the_plan() -> None:
    spec = render(load_recipe(BEAM), Host("gpu-a", model_dir="/srv/models/beam"), None)
    tagged = replace(IMAGE, repo_tags=(f"{REPOSITORY}:beam",))
    plan = plan_apply(spec, facts(images=(tagged,)))
    assert kinds(plan) == ["probe", "try GPUs", "run", "settle"]
    assert "is not pinned" in plan.notes[0].what


def test_destroy_stops_with_grace_removes_and_is_repeatable() -> None:
    host = Host("gpu-a")
    aside = container(id=ASIDE, name="beam.previous", state="exited")
    plan = plan_destroy(host, "beam", facts(container(), aside), 70)
    assert [step.words for step in plan.steps] == [
        ("docker", "stop", "-t", "70", OLD),
        ("docker", "rm", OLD),
        ("docker", "rm", ASIDE),
    ]
    assert plan_destroy(host, "beam", facts(), 70) == Plan("gpu-a", "unchanged")


def test_destroy_refuses_a_stranger() -> None:
    stranger = Container(STRANGER, "beam", "nginx", "", "running", 0, False, "", "", 0, {})
    assert plan_destroy(Host("gpu-a"), "beam", facts(stranger), 70).outcome == "blocked"


def test_a_blocked_plan_says_so_and_not_that_nothing_is_to_be_done() -> None:
    plan = plan_apply(SPEC_NOW, facts(weights={"nvfp4": None, "dflash2": None}, model_dir_exists=False))
    assert plan.outcome == "blocked"
    shown = plain(report_lines(Report("Plan", BLOCKED, (planned(SPEC_NOW, plan),))))
    assert shown.splitlines()[:2] == ["gpu-a:", f"  ! blocked  {len(plan.problems)} in the way"]


def drift_of(plan: Plan, *patterns: str) -> tuple[str, int, str]:
    """Outcome, exit code and what drift tells of it on stdout."""
    host = drifted(SPEC_NOW, *without(plan, patterns))
    return host.outcome, host.exit, plain(report_lines(Report("Drift", host.exit, (host,))))


def test_drift_tells_what_differs_and_no_step_that_apply_would_take() -> None:
    plan = plan_apply(spec_of(("engine.max_num_seqs", "16")), facts(container(), answers=READY))
    told = "gpu-a:\n  ~ engine.max_num_seqs  8 → 16\ngpu-a  drifted (10)  engine.max_num_seqs\n"
    assert drift_of(plan) == ("drifted", 10, told)
    none = "gpu-a  drifted (10)  there is no container named beam\n"
    assert drift_of(plan_apply(SPEC_NOW, facts())) == ("drifted", 10, none)
    ended = drift_of(plan_apply(SPEC_NOW, facts(container(state="exited", exit_code=137))))
    assert ended[2] == "gpu-a  drifted (10)  the container is exited (exit code 137)\n"
    dead = drift_of(plan_apply(SPEC_NOW, facts(container(state="dead"))))
    assert dead[2] == "gpu-a  drifted (10)  the container is dead\n"


def test_drift_names_what_it_ignored() -> None:
    plan = plan_apply(spec_of(("engine.max_num_seqs", "16")), facts(container(), answers=READY))
    told = "gpu-a  unchanged  as the recipe says; ignored: engine.max_num_seqs\n"
    assert drift_of(plan, "engine.*") == ("unchanged", 0, told)
    assert drifted(SPEC_NOW, *without(plan, ("engine.*",))).details["ignored"] == [
        {"path": "engine.max_num_seqs", "old": 8, "new": 16}
    ]
    assert (
        drift_of(plan_apply(SPEC_NOW, facts(container(), answers=READY)))[2] == "gpu-a  unchanged  as the recipe says\n"
    )
