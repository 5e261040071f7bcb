"""What stands in the way of a spec on a host: each check's verdict, and what it says. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from beamdeploy.errors import Problem
from beamdeploy.look.facts import Container, Disk, Facts, Gpu, GpuProcess, Gpus, Shard, System, Weights
from beamdeploy.precheck import judged
from beamdeploy.preflight import Check, checks
from beamdeploy.preflight.image import requirement_met
from beamdeploy.preflight.memory import serving, strangers
from beamdeploy.rules.pages import rule_of
from tests.test_look_parse import smi
from tests.test_plan import GPUS, IMAGE, OLD, SPEC_NOW, STRANGER, container, facts, spec_of

GIB = 2**30
DATA = Path(__file__).parent / "data"


def of(found: Facts, *subjects: str, verdict: str | None = None) -> list[Check]:
    """The checks of these subjects, or of this verdict."""
    return [
        check
        for check in checks(SPEC_NOW, found)
        if (check.subject in subjects or not subjects) and verdict in (None, check.verdict)
    ]


def gpus(**changes: object) -> Gpus:
    """The host's GPUs, all changed alike."""
    return replace(GPUS, gpus=tuple(replace(gpu, **changes) for gpu in GPUS.gpus))  # type: ignore[arg-type]


def one(**changes: object) -> Gpus:
    """The host's GPUs, the second one changed."""
    first, second, *rest = GPUS.gpus
    return replace(GPUS, gpus=(first, replace(second, **changes), *rest))  # type: ignore[arg-type]


def test_every_check_names_a_page_that_explains_it() -> None:
    for found in (facts(), facts(images=()), facts(gpus=None), facts(gpus=one(mig=True, compute_mode="Prohibited"))):
        assert [check for check in checks(SPEC_NOW, found) if check.subject != "weights" and not check.page] == []
    said = {check.page: rule_of(check.page) for check in checks(SPEC_NOW, facts()) if check.page}
    assert None not in said.values()
    assert {"BD242", "BD245", "BD246", "BD252", "BD261", "BD265"} & set(said)


def test_a_healthy_host_passes_every_check() -> None:
    report = judged(SPEC_NOW, facts())
    assert [check.subject for check in checks(SPEC_NOW, facts()) if check.verdict != "ok"] == []
    assert (report.outcome, report.exit, report.problems) == ("ok", 0, ())


def test_a03_a_daemon_without_gpus_blocks_and_names_the_toolkit_and_the_host() -> None:
    docker = replace(facts().docker, gpu_support=False)  # type: ignore[type-var]
    report = judged(SPEC_NOW, facts(docker=docker))
    (problem,) = report.problems
    assert (report.exit, problem.where, problem.level) == (3, "gpu-a: docker", "error")
    assert problem.what == "docker on this host cannot reach the GPUs: its daemon has no NVIDIA runtime"
    assert "NVIDIA Container Toolkit" in problem.remedy and "restart the docker daemon" in problem.remedy


def test_a15_a_pull_is_refused_for_lack_of_inodes_with_room_for_every_byte() -> None:
    disk = Disk("/var/lib/docker", 170_000_000_000, 812)
    found = facts(container(), images=(), disks={"/var/lib/docker": disk, "/": Disk("/", 9 * GIB, 3_000_000)})
    (check,) = of(found, "disk")
    assert (check.verdict, check.saw) == (
        "block",
        "/var/lib/docker (docker's images): 158.3 GiB and 812 inodes free: too few inodes to pull an image",
    )
    assert "prune" not in check.remedy.replace("nothing is pruned", "")


@pytest.mark.parametrize(
    ("size", "inodes", "verdict"),
    [
        (900 * GIB, 50_000_000, "ok"),
        (900 * GIB, None, "ok"),
        (30 * GIB, 50_000_000, "warn"),
        (900 * GIB, 100_000, "warn"),
        (2 * GIB, None, "block"),
    ],
)
def test_room_for_an_image(size: int, inodes: int | None, verdict: str) -> None:
    disk = Disk("/var/lib/docker", size, inodes)
    (check,) = of(facts(images=(), disks={"/var/lib/docker": disk}), "disk")
    assert check.verdict == verdict


def test_an_image_that_is_there_needs_no_room() -> None:
    (check,) = of(facts(disks={"/var/lib/docker": Disk("/var/lib/docker", 2 * GIB, 9000)}), "disk")
    assert check.verdict == "ok"


def test_c09_an_image_that_needs_a_newer_cuda_than_the_driver_gives() -> None:
    image = replace(IMAGE, env=("NVIDIA_REQUIRE_CUDA=cuda>=13.0", "CUDA_VERSION=13.0.1"))
    spec = spec_of(("hardware.min_driver", '"550"'))
    found = facts(images=(image,), gpus=replace(GPUS, driver="550.142"))
    (check,) = [each for each in checks(spec, found) if each.verdict == "block"]
    assert check == Check(
        "CUDA",
        "driver 550.142 gives CUDA 12.4, the image needs 13.0",
        "block",
        "Update the NVIDIA driver on the host, or use an older image (image.reference).",
    )


@pytest.mark.parametrize(
    ("wanted", "driver", "cuda", "met"),
    [
        ("cuda>=13.0", "580.95.05", "13.0", True),
        ("cuda>=12.8", "580.95.05", "13.0", True),
        ("cuda>=13.0", "550.142", "12.4", False),
        ("cuda>=13.0 driver>=535,driver<536", "535.161.08", "12.2", True),
        ("cuda>=13.0 brand=tesla,driver>=535,driver<536", "535.161.08", "12.2", None),
        ("cuda>=13.0 brand=tesla,driver>=535,driver<536", "550.142", "12.4", False),
        ("cuda>=13.0", "999.1", "", None),
        ("nonsense", "580.1", "13.0", None),
    ],
)
def test_requirements_on_the_driver(wanted: str, driver: str, cuda: str, met: bool | None) -> None:
    assert requirement_met(wanted, driver, cuda) is met


@pytest.mark.parametrize(
    ("cards", "system", "subject", "verdict", "saw"),
    [
        (one(mig=True), System(), "MIG", "block", "MIG is on for GPU 1: a container gets no whole GPU there"),
        (
            one(ecc_errors=2),
            System(),
            "ECC",
            "warn",
            "uncorrected memory errors since the driver was loaded (GPU 1: 2)",
        ),
        (
            one(compute_mode="Prohibited"),
            System(),
            "compute mode",
            "block",
            "Prohibited on GPU 1: nothing may compute there",
        ),
        (
            gpus(compute_mode="Exclusive_Process"),
            System(),
            "compute mode",
            "warn",
            "Exclusive_Process on GPU 0, 1, 2, 3: a second process of the engine on one GPU is refused",
        ),
        (gpus(fabric="Completed"), System(fabric_manager=False), "NVLink fabric", "ok", "joined"),
        (
            one(fabric="In Progress"),
            System(),
            "NVLink fabric",
            "block",
            "the GPUs have not joined the NVLink fabric (GPU 1: In Progress)",
        ),
        (
            GPUS,
            System(fabric_manager=False),
            "NVLink fabric",
            "warn",
            "there are NVLink switches, and the fabric manager does not run",
        ),
        (
            None,
            System(programs=frozenset({"amd-smi"}), there=frozenset({"/dev/kfd"})),
            "GPUs",
            "block",
            "this host has AMD GPUs (amd-smi), which are not supported: the engines' images here are built for CUDA",
        ),
        (None, System(), "GPUs", "block", "no NVIDIA driver was found (nvidia-smi is not there)"),
        (GPUS, System(clock=1, skew=-95.0), "clock", "warn", "the host's clock is 95 s behind this machine's"),
        (
            GPUS,
            System(memory_total=32 * GIB, memory_available=30 * GIB),
            "memory",
            "warn",
            "32.0 GiB, 30.0 GiB available: container.shm_size 64g is more than the host has",
        ),
    ],
)
def test_what_is_wrong_with_a_host(cards: Gpus | None, system: System, subject: str, verdict: str, saw: str) -> None:
    (check,) = of(facts(gpus=cards, system=system), subject)
    assert (check.verdict, check.saw) == (verdict, saw)
    assert bool(check.remedy) == (verdict != "ok")


def test_a_driver_that_does_not_answer_is_said_once() -> None:
    broken = Problem("the driver and its library differ in version", "reboot", rule="BD237")
    found = facts(gpus=None, blockers=(broken,))
    assert [check.saw for check in of(found, verdict="block")] == [broken.what]


@pytest.mark.parametrize(
    ("driver", "cdi", "there", "verdict"),
    [
        ("systemd", False, {"/dev/nvidiactl"}, "warn"),
        ("systemd", False, {"/dev/nvidiactl", "/dev/char/195:255"}, "ok"),
        ("systemd", True, {"/dev/nvidiactl"}, "ok"),
        ("cgroupfs", False, {"/dev/nvidiactl"}, "ok"),
    ],
)
def test_a14_the_trap_that_takes_gpus_on_a_reload(driver: str, cdi: bool, there: set[str], verdict: str) -> None:
    names = frozenset({"nvidia.com/gpu=0"} if cdi else ())
    docker = replace(facts().docker, cgroup_driver=driver, cdi_devices=names)  # type: ignore[type-var]
    (check,) = of(facts(docker=docker, system=System(there=frozenset(there))), "cgroups")
    assert check.verdict == verdict
    assert ("create-dev-char-symlinks" in check.remedy and "CDI" in check.remedy) == (verdict == "warn")


@pytest.mark.parametrize(
    ("limit", "rdma", "verdict"), [("65536", False, "ok"), ("65536", True, "warn"), ("unlimited", True, "ok")]
)
def test_what_containers_may_lock(limit: str, rdma: bool, verdict: str) -> None:
    docker = replace(facts().docker, memlock=limit)  # type: ignore[type-var]
    there = frozenset({"/dev/infiniband"} if rdma else ())
    (check,) = of(facts(docker=docker, system=System(there=there)), "memlock")
    assert check.verdict == verdict


@pytest.mark.parametrize(("server", "verdict"), [("18.09.9", "block"), ("19.03.1", "ok"), ("28.2.2", "ok")])
def test_a_docker_that_knows_gpus(server: str, verdict: str) -> None:
    docker = replace(facts().docker, server=server)  # type: ignore[type-var]
    assert of(facts(docker=docker), "docker")[0].verdict == verdict


def given(access: str, *docker_args: str, found: Facts, env: tuple[str, ...] = ()) -> dict[str, Check]:
    """Docker's checks and the image's by subject, on a host that gives GPUs in this way."""
    spec = replace(SPEC_NOW, host=replace(SPEC_NOW.host, gpu_access=access, docker_args=docker_args))
    images = tuple(replace(image, env=env) for image in found.images)
    return {check.subject: check for check in checks(spec, replace(found, images=images))}


NAMES = frozenset(f"nvidia.com/gpu={index}" for index in range(4))
NODES = frozenset({*(f"/dev/nvidia{index}" for index in range(4)), "/dev/nvidiactl", "/dev/nvidia-uvm"})


@pytest.mark.parametrize(
    ("server", "names", "there", "verdict", "saw"),
    [
        ("28.2.2", NAMES, (), "ok", "containers get nvidia.com/gpu=0, nvidia.com/gpu=1"),
        ("28.2.2", NAMES - {"nvidia.com/gpu=3"}, (), "block", "docker's CDI devices lack nvidia.com/gpu=3"),
        ("28.2.2", (), (), "block", "docker names no CDI devices of NVIDIA"),
        ("27.5.1", (), (), "warn", "docker names no CDI devices of NVIDIA"),
        ("27.5.1", (), ("/etc/cdi/nvidia.yaml",), "ok", "a CDI description is there"),
    ],
)
def test_gpus_by_cdi(server: str, names: frozenset[str], there: tuple[str, ...], verdict: str, saw: str) -> None:
    # the toolkit's runtime is not asked for: CDI names need none
    docker = replace(facts().docker, server=server, cdi_devices=frozenset(names), gpu_support=False)  # type: ignore[type-var]
    check = given("cdi", found=facts(docker=docker, system=System(there=frozenset(there))))["toolkit"]
    assert (check.verdict, check.saw[: len(saw)]) == (verdict, saw)


def test_a_docker_that_knows_no_cdi() -> None:
    docker = replace(facts().docker, server="24.0.7")  # type: ignore[type-var]
    check = given("cdi", found=facts(docker=docker))["docker"]
    assert (check.verdict, "older than 25.0, which knows CDI names" in check.saw) == ("block", True)


@pytest.mark.parametrize(
    ("there", "docker_args", "verdict"),
    [
        (NODES, ("-v", "/usr/local/nvidia:/usr/local/nvidia:ro"), "ok"),
        (NODES, (), "warn"),
        (NODES - {"/dev/nvidia-uvm"}, ("-v", "/x:/x"), "block"),
        (NODES - {"/dev/nvidia3"}, ("-v", "/x:/x"), "block"),
    ],
)
def test_gpus_by_device_files(there: frozenset[str], docker_args: tuple[str, ...], verdict: str) -> None:
    docker = replace(facts().docker, server="18.09.9", gpu_support=False)  # type: ignore[type-var]
    found = given("devices", *docker_args, found=facts(docker=docker, system=System(there=there)))
    assert (found["docker"].verdict, found["toolkit"].verdict) == ("ok", verdict)


@pytest.mark.parametrize(("access", "verdict"), [("gpus", "block"), ("cdi", "warn"), ("devices", "warn")])
def test_only_the_nvidia_runtime_holds_a_container_to_what_the_image_needs(access: str, verdict: str) -> None:
    found = given(access, found=facts(), env=("NVIDIA_REQUIRE_CUDA=cuda>=99.0",))
    assert found["CUDA"].verdict == verdict


def busy(*processes: GpuProcess) -> Gpus:
    """The second GPU is in use by these."""
    held = sum(process.memory_mib or 0 for process in processes) + 600
    return replace(one(memory_used_mib=held), processes=processes)


def process(mib: int, holder: str = "", pid: int = 4242) -> GpuProcess:
    return GpuProcess(pid, "python3", "GPU-1", mib, holder)


def front(**changes: object) -> Container:
    return replace(container(), id=STRANGER, name="front", labels={}, ports=(), **changes)  # type: ignore[arg-type]


def test_a_stranger_on_a_gpu_blocks_and_is_named() -> None:
    found = facts(front(), gpus=busy(process(200_000, STRANGER)))
    assert of(found, "GPU memory")[0] == Check(
        "GPU memory",
        "GPU 1: 200600 of 275040 MiB in use by python3 (pid 4242, container front): not enough is left for "
        "utilization 0.9",
        "block",
        "Stop it, or list other GPUs in the inventory; nothing is stopped here that is not this deployment's.",
    )
    assert of(found, "GPU memory")[1].saw == "GPU 0, 2, 3: free"


def test_a_stranger_that_leaves_enough_is_a_warning() -> None:
    (check, _) = of(facts(gpus=busy(process(5000))), "GPU memory")
    assert (check.verdict, check.saw) == ("warn", "GPU 1: 5600 of 275040 MiB in use by python3 (pid 4242)")


@pytest.mark.parametrize(
    ("held", "verdict"), [(200_000, "warn"), (275_040 - 40_000, "warn"), (275_040 - 4_000, "block")]
)
def test_of_a_server_that_is_not_known_the_weights_alone_must_fit_beside_a_stranger(held: int, verdict: str) -> None:
    shards = (Shard("model-1.safetensors", 30 * GIB, 30 * GIB, 1, 1, tensor_bytes=30 * GIB),)
    there = Weights("/m", (), {}, None, "", shards, ())
    recipe = replace(SPEC_NOW.recipe, engine=replace(SPEC_NOW.recipe.engine, name="openai", tensor_parallel=1))
    spec = replace(SPEC_NOW, recipe=replace(recipe, speculative=None))
    found = replace(facts(gpus=busy(process(held))), weights={recipe.model.weights.path: there})
    assert next(each for each in checks(spec, found) if each.subject == "GPU memory").verdict == verdict


def test_what_strangers_hold_is_not_waited_for() -> None:
    name = SPEC_NOW.recipe.name
    beside = facts(container(), gpus=busy(process(5000, STRANGER)))
    assert strangers(beside, serving(name, beside)) == {1: 5000}
    alone = facts(container())
    assert strangers(alone, serving(name, alone)) == {}


def test_memory_of_a_process_that_is_not_told_is_told() -> None:
    (check, _) = of(facts(gpus=one(memory_used_mib=250_000)), "GPU memory")
    assert (check.verdict, check.saw) == (
        "block",
        "GPU 1: 250000 of 275040 MiB in use by a process that nvidia-smi hides: not enough is left for utilization 0.9",
    )


@pytest.mark.parametrize("holder", [OLD, ""])
def test_f11_the_running_server_does_not_count_as_occupied(holder: str) -> None:
    old = container(spec_of(digest="sha256:" + "3" * 64))
    found = facts(old, gpus=busy(process(247_000, holder)))
    assert [check.verdict for check in of(found, "GPU memory")] == ["ok"]


def test_a_stranger_beside_the_running_server_blocks_a_replacement_and_not_what_serves() -> None:
    both = busy(process(200_000, OLD, 7), process(40_000, STRANGER))
    old = container(spec_of(digest="sha256:" + "3" * 64))
    assert of(facts(old, gpus=both), "GPU memory")[0].verdict == "block"
    (check, _) = of(facts(container(), gpus=both), "GPU memory")
    assert check.verdict == "warn"
    assert check.saw == f"GPU 1: 40000 of 275040 MiB in use by python3 (pid 4242, container {STRANGER[:12]})"


def test_gpus_that_are_not_used_may_be_as_they_are() -> None:
    other = Gpu(4, "NVIDIA H200", "GPU-4", 143771, 140000, "9.0", mig=True, ecc_errors=3, compute_mode="Prohibited")
    found = facts(gpus=replace(GPUS, gpus=(*GPUS.gpus, other)))
    assert of(found, verdict="block") + of(found, verdict="warn") == []


def test_what_was_seen_on_a_real_h200_is_judged_the_same() -> None:
    """Recorded there with `connection: local`; docker was not on that machine."""
    recorded = json.loads((DATA / "h200" / "preflight.json").read_text())["hosts"]["h200"]
    spec = spec_of(("hardware.gpu", "H200"), ("hardware.count", "1"), ("engine.tensor_parallel", "1"))
    cards = smi((DATA / "look" / "gpus-h200.txt").read_text(), version="CUDA Version        : 13.0").gpus
    seen = {check.subject: check for check in checks(spec, facts(gpus=cards))}
    subjects = ("GPUs", "family", "driver", "MIG", "ECC", "compute mode", "GPU memory")
    assert [asdict(seen[subject]) for subject in subjects] == [
        check for check in recorded["checks"] if check["subject"] in subjects
    ]
    assert "NVLink fabric" not in seen
