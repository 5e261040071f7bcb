"""What hosts answer, recorded, to facts and blockers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamdeploy.errors import HostError
from beamdeploy.look import Question, words
from beamdeploy.look.facts import Container, Disk, Docker, Facts, Gpu, GpuProcess, Gpus, Image, Listener, System
from beamdeploy.look.folders import leaves
from beamdeploy.look.frames import Frame, frames
from beamdeploy.look.parse import parse
from beamdeploy.look.system import skew

DATA = Path(__file__).parent / "data" / "look"
NONCE = "feed"


def recorded(name: str, docker: tuple[str, ...] = ("docker",), ports: tuple[int, ...] = ()) -> Facts:
    return parse((DATA / name).read_text("utf-8"), NONCE, docker, (), ports)


def answer(*sections: tuple[str, int, str], before: str = "") -> str:
    framed = "".join(f"@@{NONCE} {name} {code} {len(text.encode())}\n{text}\n" for name, code, text in sections)
    return f"{before}@@{NONCE} begin\n{framed}@@{NONCE} end\n"


def test_recorded_docker_answers() -> None:
    facts = recorded("docker-answers.txt", ports=(2024,))
    image = "sha256:a53f4e3b22078a7f0e4a149b0ef1f624e9b4b0cbfd9633acae56b05a77f7e66e"
    digest = "sha256:6edcc9a41fe4ab654a55911e4af0e04fff5efe13d5db7261042702a8a36e1352"
    both = tuple((ip, port, port) for port in (9000, 9001, 9002) for ip in ("0.0.0.0", "::"))

    def container(id: str, name: str, started: str, **other: object) -> Container:
        same = dict(image="lightseekorg/tokenspeed:beam", image_id=image, exit_code=0, oom_killed=False, error="")
        given = {**same, "state": "running", "restart_count": 0, "labels": {}, "ports": (), **other}
        return Container(id=id, name=name, started_at=f"2026-11-30T17:03:03.{started}Z", **given)  # type: ignore[arg-type]

    assert facts == Facts(
        docker=Docker(
            client="28.2.2",
            server="20.10.24+dfsg1",
            root_dir="/var/lib/docker",
            arch="x86_64",
            runtimes=("io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "runc"),
            gpu_support=False,
            storage="vfs",
            user="root",
        ),
        images=(Image(image, ("lightseekorg/tokenspeed:beam",), (f"127.0.0.1:5000/ts@{digest}",), "amd64", "linux"),),
        containers=(
            container(
                "926f899230ac2142553d8c76766183e954823f04ce0fa393f1d7ca581b351a61",
                "front",
                "714033108",
                ports=(("127.0.0.1", 9100, 9100),),
            ),
            container(
                "540e17ffca951c7827f0cc76d7a045c041c1e47e5689225c97371a5c1abcc589",
                "beam.previous",
                "359413207",
                state="exited",
                exit_code=3,
                labels={"beamdeploy.name": "beam"},
            ),
            container(
                "1a984b6e415441e519853ac343bdcbf845c2a094e8bd875d663bba844ba74eda",
                "beam",
                "031072173",
                labels={"beamdeploy.name": "beam", "beamdeploy.spec": '{"a":"b, \\"c\\"=1"}'},
                ports=(("127.0.0.1", 8000, 8000), *both),
            ),
        ),
        listeners=(Listener("0.0.0.0", 2024),),
        gpus=None,
        disks={"/var/lib/docker": Disk("/var/lib/docker", 82982776 * 1024, 16353802)},
        weights={},
        model_dir_exists=None,
    )


@pytest.mark.parametrize(
    ("name", "docker", "rule", "what", "remedy"),
    [
        (
            "docker-permission-denied.txt",
            ("docker",),
            "BD233",
            "nobody may not use docker's socket: permission denied while trying to connect to the Docker daemon socket",
            "add the user to the docker group (`sudo usermod -aG docker nobody`, then a new login)",
        ),
        (
            "docker-no-daemon.txt",
            ("docker",),
            "BD234",
            "the docker daemon does not answer: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
            "start it on the host (`systemctl start docker`)",
        ),
        (
            "docker-not-found.txt",
            ("docker2",),
            "BD231",
            "docker2 is not on the PATH of this user's non-interactive SSH sessions (/usr/local/sbin:/usr/local/bin:"
            "/usr/sbin:/usr/bin:/sbin:/bin), but /usr/local/bin/docker and /usr/bin/docker exists",
            "set `docker: /usr/local/bin/docker` for the host in the inventory (the setting takes a full path)",
        ),
        (
            "docker-not-executable.txt",
            ("/etc",),
            "BD232",
            "/etc is there and cannot be run: timeout: failed to run command '/etc': Permission denied",
            "make it executable for this user",
        ),
    ],
)
def test_why_docker_could_not_be_asked(name: str, docker: tuple[str, ...], rule: str, what: str, remedy: str) -> None:
    facts = recorded(name, docker)
    (problem,) = facts.blockers
    assert (facts.docker, facts.containers, facts.images) == (None, (), ())
    assert (problem.rule, problem.level) == (rule, "error")
    assert problem.what.startswith(what)
    assert problem.remedy.startswith(remedy)


def failed_docker(code: int, err: str, docker: tuple[str, ...] = ("docker",)) -> str:
    text = answer(
        ("path", 0, "/usr/bin:/bin"),
        ("docker.info", code, ""),
        ("docker.info.err", 0, err),
    )
    (problem,) = parse(text, NONCE, docker).blockers
    return f"{problem.rule} {problem.what}"


def test_sudo_that_refuses_and_daemons_that_hang_are_told_apart() -> None:
    sudo = ("sudo", "-n", "docker")
    assert failed_docker(1, "sudo: a password is required", sudo).startswith("BD233 `become` is set, but sudo refuses")
    assert (
        failed_docker(127, "sh: 1: sudo: not found", sudo) == "BD233 `become` is set, but there is no sudo on this host"
    )
    assert failed_docker(1, "sudo: docker: command not found", sudo) == (
        "BD231 docker is not on sudo's PATH, nor at a usual place"
    )
    assert failed_docker(124, "") == "BD235 the docker daemon gave no answer in 30 s"
    assert failed_docker(1, "Error response from daemon: client version 1.50 is too new").startswith(
        "BD236 docker could"
    )


def test_a_container_that_went_away_between_list_and_inspect_is_absent() -> None:
    good = (DATA / "docker-answers.txt").read_text("utf-8")
    start, end = good.index("@@feed docker.containers 0"), good.index("@@feed docker.info 0")
    said = "Error: No such container: 540e17ffca95"
    gone = f"@@feed docker.containers 1 0\n\n@@feed docker.containers.err 0 {len(said)}\n{said}\n"
    facts = parse(good[:start] + gone + good[end:], NONCE)
    assert (facts.containers, facts.blockers) == ((), ())


def smi(text: str, code: int = 0, err: str = "", apps: str = "", kernel: str = "", version: str = "") -> Facts:
    more = (("gpus.kernel", 0, kernel), ("gpus.version", 0, version))
    return parse(answer(("gpus", code, text), ("gpus.err", 0, err), ("gpus.apps", 0, apps), *more), NONCE)


H200 = (DATA / "gpus-h200.txt").read_text("utf-8").strip()
UUID, SECOND = ("GPU-00000000-0000-0000-0000-00000000000" + last for last in "ab")
CARD = Gpu(0, "NVIDIA H200", UUID, 143771, 0, "9.0", mig=False, ecc_errors=0, compute_mode="Default")


def test_a_recorded_gpu_and_what_runs_on_it() -> None:
    apps = f"4242, python3, -c, run(), 1200, {UUID}\n4243, [Not Found], [N/A], {UUID}"
    assert smi(H200, apps=apps).gpus == Gpus(
        "580.159.04",
        (CARD,),
        (GpuProcess(4242, "python3, -c, run()", UUID, 1200), GpuProcess(4243, "[Not Found]", UUID, None)),
    )


def test_a_process_is_told_with_its_container() -> None:
    one, two = "ab" * 32, "cd" * 32
    groups = (
        f"/proc/7/cgroup:0::/system.slice/docker-{one}.scope\n"
        f"/proc/8/cgroup:12:devices:/docker/{two}\n/proc/8/cgroup:0::/system.slice/docker.service\n"
        "/proc/9/cgroup:0::/user.slice/user-1000.slice\n"
    )
    apps = "".join(f"{pid}, python3, 100, {UUID}\n" for pid in (7, 8, 9))
    text = answer(("gpus", 0, H200), ("gpus.apps", 0, apps), ("gpus.groups", 2, groups))
    gpus = parse(text, NONCE).gpus
    assert gpus is not None
    assert [(each.pid, each.container) for each in gpus.processes] == [(7, one), (8, two), (9, "")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "old-driver",
            Gpus(
                "450.80.02",
                (
                    Gpu(0, "Tesla V100-SXM2-32GB", UUID, 32510, 3, "", None, 0, "Default"),
                    Gpu(1, "Tesla V100-SXM2-32GB", SECOND, 32510, 11, "", None, 2, "Exclusive_Process"),
                ),
            ),
        ),
        (
            "mig",
            Gpus(
                "535.161.08",
                (
                    Gpu(0, "NVIDIA H100 80GB HBM3", UUID, 81559, 87, "9.0", True, 0, "Default", "Completed"),
                    Gpu(1, "NVIDIA H100 80GB HBM3", SECOND, 81559, 4, "9.0", False, 0, "Default", "In Progress"),
                ),
            ),
        ),
        (
            "silent",
            Gpus(
                "580.95.05",
                (
                    Gpu(0, "NVIDIA GB10", UUID, None, None, "12.1", None, None, "Default"),
                    Gpu(1, "NVIDIA GeForce GTX 1080", SECOND, 8119, None, "", None, None),
                ),
            ),
        ),
    ],
)
def test_forms_of_nvidia_smi(name: str, expected: Gpus) -> None:
    facts = smi((DATA / f"gpus-{name}.txt").read_text("utf-8"))
    assert (facts.gpus, facts.blockers) == (expected, ())


@pytest.mark.parametrize(
    ("version", "cuda"),
    [
        ("NVIDIA-SMI version  : 580.159.04\nCUDA Version        : 13.0", "13.0"),
        ("NVIDIA-SMI version  : 595.10\nCUDA UMD Version    : 13.2\nCUDA Version: 13.2", "13.2"),
        ("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", ""),
    ],
)
def test_the_newest_cuda_of_the_driver(version: str, cuda: str) -> None:
    gpus = parse(answer(("gpus", 0, H200), ("gpus.version", 0, version)), NONCE).gpus
    assert gpus is not None
    assert gpus.cuda == cuda


def test_the_host_itself() -> None:
    lines = (
        "machine x86_64\nclock 1764521000\nMemTotal:       2113513728 kB\nMemAvailable:   1900000000 kB\n"
        "there /dev/nvidiactl\nthere /dev/nvidia-nvswitchctl\nprogram nvidia-ctk\nrunning nv-fabricmanager"
    )
    assert parse(answer(("system", 0, lines)), NONCE).system == System(
        "x86_64",
        1764521000,
        2113513728 * 1024,
        1900000000 * 1024,
        frozenset({"/dev/nvidiactl", "/dev/nvidia-nvswitchctl"}),
        frozenset({"nvidia-ctk"}),
        True,
    )


@pytest.mark.parametrize(("clock", "seconds"), [(100, 0.0), (102, 0.0), (163, 60.5), (40, -59.2), (None, 0.0)])
def test_a_clock_differs_by_what_the_round_trip_does_not_explain(clock: int | None, seconds: float) -> None:
    assert skew(clock, 100.2, 102.5) == pytest.approx(seconds)


def test_a_host_without_nvidia_smi_has_no_gpus_and_no_blocker() -> None:
    assert (smi("", 127).gpus, smi("", 127).blockers) == (None, ())


def test_a_driver_without_devices_is_an_empty_list() -> None:
    kernel = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder)"
    facts = smi("No devices were found", 6, kernel=kernel)
    assert (facts.gpus, facts.blockers) == (Gpus("580.159.04", ()), ())


@pytest.mark.parametrize(
    ("code", "text", "rule", "remedy"),
    [
        (
            18,
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.159",
            "BD237",
            "reboot",
        ),
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "BD237", "modprobe"),
        (124, "", "BD238", "Xid"),
        (2, 'Field "compute_cap" is not a valid field to query.', "BD237", "by hand"),
    ],
)
def test_a_driver_that_cannot_be_asked_is_a_blocker(code: int, text: str, rule: str, remedy: str) -> None:
    facts = smi(text, code)
    (problem,) = facts.blockers
    assert (facts.gpus, problem.rule) == (None, rule)
    assert remedy in problem.remedy


def test_a_lost_gpu_blocks_and_the_others_are_still_told() -> None:
    facts = smi(H200, 15, "Unable to determine the device handle for GPU1: 0000:3B:00.0: GPU is lost.")
    assert facts.gpus == Gpus("580.159.04", (CARD,))
    assert [problem.rule for problem in facts.blockers] == ["BD238"]


def test_listeners_of_ss() -> None:
    text = (
        'LISTEN 0 128 127.0.0.1:8000 0.0.0.0:* users:(("jupyter-lab",pid=4242,fd=3))\n'
        "LISTEN 0 4096 [::]:8000 [::]:*\n"
        "LISTEN 0 4096 *:8000 *:*\n"
        "LISTEN 0 5 [fe80::1]%eth0:8000 [::]:*\n"
        "LISTEN 0 5 127.0.0.53%lo:53 0.0.0.0:*"
    )
    assert parse(answer(("ports.ss", 0, text)), NONCE, wanted_ports=(8000,)).listeners == (
        Listener("127.0.0.1", 8000, 4242, "jupyter-lab"),
        Listener("::", 8000),
        Listener("*", 8000),
        Listener("fe80::1", 8000),
    )


def test_ports_that_could_not_be_asked_are_a_blocker_only_if_they_were_wanted() -> None:
    text = answer(("ports.ss", 1, ""), ("ports.ss.err", 0, "Cannot open netlink socket"))
    assert parse(text, NONCE).blockers == ()
    assert [problem.rule for problem in parse(text, NONCE, wanted_ports=(1,)).blockers] == ["BD239"]


@pytest.mark.parametrize(
    ("kib", "inodes", "disk"),
    [
        (
            "Filesystem 1024-blocks Used Available Capacity Mounted on\n//nas/my share 100 60 40 60% /mnt/a b",
            "Filesystem Inodes IUsed IFree IUse% Mounted on\n//nas/my share 10 9 1 90% /mnt/a b",
            Disk("/m", 40960, 1),
        ),
        (
            "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda 100 105 -5 105% /",
            "Filesystem Inodes IUsed IFree IUse% Mounted on\n/dev/sda 0 0 0 - /",
            Disk("/m", -5120, None),
        ),
    ],
    ids=["blanks", "overfull-btrfs"],
)
def test_free_room(kib: str, inodes: str, disk: Disk) -> None:
    text = answer(("disk.path", 0, "/m"), ("disk.kib", 0, kib), ("disk.inodes", 0, inodes))
    assert parse(text, NONCE).disks == {"/m": disk}


def test_a_greeting_is_no_answer() -> None:
    assert tuple(frames(answer(("path", 0, "/bin"), before="Welcome!\n@@ beware\n"), NONCE)) == (
        Frame("path", 0, "/bin"),
    )


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r")))
def test_any_text_comes_back_whole(text: str) -> None:
    kept = text.rstrip("\n")
    (frame,) = frames(answer(("a", 3, kept), ("a.err", 0, "said")), NONCE)
    assert frame == Frame("a", 3, kept, "said")


@pytest.mark.parametrize("text", ["", "Welcome!\n", answer(("path", 0, "/bin"))[:-12], "@@feed end\n"])
def test_an_answer_without_its_end_is_an_error(text: str) -> None:
    with pytest.raises(HostError) as caught:
        parse(text, NONCE, err="Connection closed")
    assert caught.value.problems[0].rule == "BD230"
    assert "Connection closed" in caught.value.problems[0].what


def test_the_words_of_a_question() -> None:
    question = Question("beam", ("a:b",), "/srv/m", ("nvfp4",), (8000,), ("sudo", "-n", "docker"), need_gpus=True)
    assert tuple(words(question, NONCE)) == (
        "nonce=feed",
        "name=beam",
        "model_dir=/srv/m",
        "gpus=1",
        "docker=sudo",
        "docker=-n",
        "docker=docker",
        "image=a:b",
        "folder=nvfp4",
        "port=8000",
    )


@pytest.mark.parametrize(
    ("link", "resolved", "out"),
    [
        ("../blobs/b", "/m/blobs/b", False),
        ("b", "/m/nvfp4/b", False),
        ("../../blobs/b", "/blobs/b", True),
        ("../../m/blobs/b", "/m/blobs/b", True),
        ("/m/blobs/b", "/m/blobs/b", True),
        ("../blobs/b", "/elsewhere/b", True),
        ("../mother/b", "/mother/b", True),
        ("gone", "", False),
    ],
)
def test_which_links_leave_the_mounted_folder(link: str, resolved: str, out: bool) -> None:
    assert leaves(link, resolved, "/m/nvfp4", "/m") == out
