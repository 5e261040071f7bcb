"""facts.sh by every shell and awk that hosts have, against real files."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from beamdeploy.look import Question, script
from beamdeploy.look.facts import Disk, File, Gpu, Gpus, LfsPointer, Listener, Shard, Weights
from tests import checkpoint
from tests.look_script import run, weights

BUSYBOX = ("awk", "od", "head", "dd", "stat", "readlink", "find", "grep", "sed", "df", "cat", "tr", "id", "timeout")
SHELLS = {"dash": ("dash",), "bash": ("bash", "--posix"), "busybox": ("busybox", "sh")}


@pytest.fixture(params=["dash", "bash", "busybox", "busybox-tools", "mawk", "gawk"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Sequence[str], dict[str, str]]:
    """A shell and its environment: Debian's tools, or busybox for all of them, or mawk or gawk for awk."""
    folder = tmp_path / "bin"
    folder.mkdir()
    kind = request.param
    programs = {"busybox-tools": BUSYBOX, "mawk": ("awk",), "gawk": ("awk",)}.get(kind, ())
    source = shutil.which({"busybox-tools": "busybox", "mawk": "mawk", "gawk": "gawk"}.get(kind, "sh"))
    shell = SHELLS.get(kind.partition("-")[0], ("dash",))
    if source is None or shutil.which(shell[0]) is None:
        pytest.skip(f"there is no {kind.partition('-')[0]} here")
    for program in programs:
        (folder / program).symlink_to(source)
    return shell, {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model_dir = tmp_path / 'mod\'els "x" $HOME'
    checkpoint.target(model_dir / "nv fp4'")
    checkpoint.drafter(model_dir / "dflash2")
    return model_dir


def test_a_checkpoint_is_reduced_the_same_by_every_shell_and_awk(
    host: tuple[Sequence[str], dict[str, str]], root: Path
) -> None:
    folder = root / "nv fp4'"
    first, second = checkpoint.SHARDS
    odd = 'a "quoted" name.txt'
    checkpoint.write(
        folder,
        {
            odd: "x",
            second: checkpoint.safetensors({"lm_head.weight": 64, "stray": 1}),
            "tokenizer.json": checkpoint.lfs_pointer(17209920),
            "-dash.json": "{}",
            "generation_config.json": '{"a": "ünïcode"}\n\n',
        },
    )
    (folder / "gone").symlink_to("nowhere")
    (folder / "out").symlink_to(root.parent / "bin")
    question = Question(model_dir=str(root), folders=(folder.name, "absent"), docker=(), need_gpus=False)
    facts = run(question, shell=host[0], env=host[1])
    size = {path.name: path.stat().st_size for path in folder.iterdir() if path.exists()}
    names = ("-dash.json", odd, "chat_template.jinja", "config.json", "generation_config.json", "hf_quant_config.json")
    last = ("tokenizer.json", "tokenizer_config.json")
    files = (*names, first, second, "model.safetensors.index.json", *last)
    found = facts.weights[folder.name]
    assert found is not None
    assert replace(found, files=tuple(sorted(found.files, key=lambda file: file.name))) == Weights(
        path=folder.name,
        files=tuple(
            sorted(
                (
                    *(File(name, size[name]) for name in files),
                    File("gone", None, f"{folder}/nowhere"),
                ),
                key=lambda file: file.name,
            )
        ),
        texts={
            "config.json": (folder / "config.json").read_text(),
            "hf_quant_config.json": (folder / "hf_quant_config.json").read_text(),
            "generation_config.json": '{"a": "ünïcode"}',
        },
        index={first: 2, second: 2},
        index_error="",
        shards=(
            Shard(first, size[first], size[first], 2, 2, tensor_bytes=80),
            Shard(second, size[second], size[second], 2, 2, 1, "model.layers.5.w", 1, "stray", 65),
        ),
        pointers=(LfsPointer("tokenizer.json", 17209920),),
        total=160,
    )
    assert facts.weights["absent"] is None
    assert facts.model_dir_exists is True
    assert facts.blockers == ()


def test_only_a_leftover_that_grows_is_told_as_growing(host: tuple[Sequence[str], dict[str, str]], root: Path) -> None:
    folder = root / "nv fp4'"
    still, going = ".cache/huggingface/download/a b.incomplete", "b.part"
    checkpoint.write(folder, {still: "x" * 77, going: "x" * 77})
    writer = threading.Timer(1, lambda: (folder / going).write_text("x" * 91))
    writer.start()
    question = Question(model_dir=str(root), folders=(folder.name,), docker=(), need_gpus=False)
    found = run(question, shell=host[0], env=host[1]).weights[folder.name]
    writer.join()
    assert found is not None
    assert {file.name: file.growing for file in found.files if file.name in (still, going)} == {
        still: False,
        going: True,
    }


def test_a_model_dir_that_is_not_there_stays_so_and_its_disk_is_told(
    host: tuple[Sequence[str], dict[str, str]], tmp_path: Path
) -> None:
    missing = tmp_path / "modles" / "beam"
    question = Question(model_dir=str(missing), folders=("nvfp4",), docker=(), need_gpus=False)
    facts = run(question, shell=host[0], env=host[1])
    assert (facts.model_dir_exists, facts.weights) == (False, {"nvfp4": None})
    disk = facts.disks[str(missing)]
    here = os.statvfs(tmp_path)
    assert disk == Disk(str(missing), disk.free_bytes, disk.free_inodes)
    assert abs(disk.free_bytes - here.f_bavail * here.f_frsize) < 1 << 30
    assert not missing.parent.exists()


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_listener_is_told_with_its_program() -> None:
    with listening() as port:
        facts = run(Question(ports=(port,), docker=(), need_gpus=False))
    (listener,) = facts.listeners
    assert (listener.address, listener.port, listener.pid) == ("127.0.0.1", port, os.getpid())


def test_without_ss_the_kernels_table_tells_listeners(tmp_path: Path) -> None:
    programs = ("sh", "awk", "cat", "df", "od", "dd", "head", "stat", "readlink", "find", "grep", "sed")
    (tmp_path / "bin").mkdir()
    for program in programs:
        (tmp_path / "bin" / program).symlink_to(shutil.which(program) or "")
    # the script looks into the sbin folders as well, so its own words for that are taken out
    text = script().replace("PATH=$PATH:/usr/sbin:/sbin", ":")
    with listening() as port, socket.create_server(("::1", 0), family=socket.AF_INET6) as six:
        ports = (port, six.getsockname()[1])
        question = Question(ports=ports, docker=(), need_gpus=False)
        facts = run(question, env={"PATH": str(tmp_path / "bin")}, text=text)
    assert facts.listeners == (Listener("127.0.0.1", ports[0]), Listener("::1", ports[1]))


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}")
    (folder / name).chmod(0o755)


def test_gpus_are_asked_and_told(host: tuple[Sequence[str], dict[str, str]], tmp_path: Path) -> None:
    recorded = Path(__file__).parents[1] / "data" / "look" / "gpus-h200.txt"
    uuid = "GPU-00000000-0000-0000-0000-00000000000a"
    program(
        tmp_path / "bin",
        "nvidia-smi",
        f"""case $1 in
          --query-gpu=*fabric.state) cat {recorded} ;;
          --query-compute-apps=*) echo "$PPID, a, b, 12, {uuid}" ;;
          --version) echo "CUDA Version        : 13.0" ;;
        esac""",
    )
    facts = run(Question(docker=()), shell=host[0], env=host[1])
    card = Gpu(0, "NVIDIA H200", uuid, 143771, 0, "9.0", mig=False, ecc_errors=0, compute_mode="Default")
    assert facts.gpus is not None
    assert replace(facts.gpus, processes=()) == Gpus("580.159.04", (card,), cuda="13.0")
    assert [(each.name, each.memory_mib) for each in facts.gpus.processes] == [("a, b", 12)]
    assert facts.system.machine == os.uname().machine
    assert facts.system.clock is not None
    assert abs(facts.system.clock - time.time()) < 60
    assert facts.system.memory_total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_an_old_driver_is_asked_for_less(host: tuple[Sequence[str], dict[str, str]], tmp_path: Path) -> None:
    recorded = Path(__file__).parents[1] / "data" / "look" / "gpus-old-driver.txt"
    refused = """echo 'Field "compute_cap" is not a valid field to query.'; echo; exit 2"""
    program(
        tmp_path / "bin", "nvidia-smi", f"case $1 in *compute_cap*) {refused} ;; --query-gpu*) cat {recorded} ;; esac"
    )
    facts = run(Question(docker=()), shell=host[0], env=host[1])
    assert facts.gpus is not None
    assert (facts.gpus.driver, len(facts.gpus.gpus), facts.blockers) == ("450.80.02", 2, ())


def test_a_docker_that_is_not_on_the_path_is_a_blocker_with_the_setting(tmp_path: Path) -> None:
    facts = run(Question(docker=("docker-of-nobody",), need_gpus=False))
    (problem,) = facts.blockers
    assert "docker-of-nobody is not on the PATH of this user's non-interactive SSH sessions" in problem.what
    assert "`docker: " in problem.remedy
    assert facts.docker is None


def test_questions_run_at_the_same_time(tmp_path: Path) -> None:
    program(tmp_path / "bin", "docker", "sleep 3; exit 1")
    program(tmp_path / "bin", "nvidia-smi", "sleep 3")
    start = time.monotonic()
    run(Question(name="beam", images=("a:b",)), env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    # all beside each other, docker's and the GPU questions
    assert time.monotonic() - start < 9


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_what_this_user_may_not_read_is_told_and_never_taken_as_absent(open_to_all: Path) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh") if os.geteuid() == 0 else ("sh",)
    model_dir = open_to_all / "models"
    (checkpoint.drafter(model_dir / "dflash2") / "model.safetensors").chmod(0)
    checkpoint.drafter(model_dir / "hidden").chmod(0)
    question = Question(model_dir=str(model_dir), folders=("dflash2", "hidden"), docker=(), need_gpus=False)
    facts = run(question, shell=nobody)
    (model_dir / "hidden").chmod(0o755)
    found, hidden = facts.weights["dflash2"], facts.weights["hidden"]
    assert found is not None
    assert hidden is not None
    assert [file.name for file in found.files if not file.readable] == ["model.safetensors"]
    assert (found.shards, hidden.files) == ((), (File(".", None, readable=False),))
    model_dir.chmod(0)
    beyond = replace(question, model_dir=str(model_dir / "beam"))
    facts = run(beyond, shell=nobody)
    model_dir.chmod(0o755)
    assert (facts.model_dir_exists, facts.weights) == (None, {})
    assert [problem.what for problem in facts.blockers] == [
        f"this user may not look into {model_dir}, so the weights cannot be looked at"
    ]


def test_a_large_checkpoint_is_looked_at_in_little_time(tmp_path: Path) -> None:
    checkpoint.large(tmp_path / "big", shards=64, tensors_a_shard=3125, tensor_bytes=2_000_000)
    start = time.monotonic()
    found = weights(tmp_path, "big")
    taken = time.monotonic() - start
    assert found is not None
    assert sum((found.index or {}).values()) == 200_000
    assert {(s.size - (s.implied_size or 0), s.tensors, s.missing, s.unlisted) for s in found.shards} == {
        (0, 3125, 0, 0)
    }
    # about 1 s on two cores; the bound only catches a scan that reads tensors or starts a process a tensor
    assert taken < 15


# What the script may start. None of it changes anything as it is used: `dd` writes to stdout only (no of=).
ALLOWED = frozenset(
    re.findall(
        r"\S+",
        "awk cat date dd df docker find grep head id nvidia-smi od readlink sed sleep ss stat tail timeout tr uname",
    )
)
BUILTIN = frozenset(
    re.findall(r"\S+", "[ : break cd command continue echo eval exit export printf read return set shift")
)
KEYWORDS = frozenset(re.findall(r"\w+", "if then else elif fi for while do done case esac in"))
DOCKER = {"info", "ps", "container inspect", "image inspect"}


def unquoted(text: str) -> str:
    """The script without comments and quoted text; a command substitution stays, as a command of its own."""
    kept: list[str] = []
    quotes: list[bool] = [False]
    at = 0
    while at < len(text):
        here, inside = text[at], quotes[-1]
        if here == "\\":
            at += 1
        elif here == "'" and not inside:
            at = text.index("'", at + 1)
            kept.append("Q")
        elif here == '"':
            quotes[-1] = not inside
            kept.append("Q")
        elif here == "#" and not inside and kept[-1:] in ([" "], ["\n"], []):
            at = text.index("\n", at) - 1
        elif text.startswith(("$((", "))"), at):
            at += 1 + text.startswith("$((", at)
        elif text.startswith("$(", at):
            quotes.append(False)
            kept.append("\n")
            at += 1
        elif here == ")" and len(quotes) > 1 and not inside:
            quotes.pop()
            kept.append(" Q")
        elif not inside:
            kept.append(here)
        at += 1
    return "".join(kept)


def commands(text: str) -> set[str]:
    """The first word of every simple command; assignments before it are not it."""
    start = r"(?:^|[;|&{(!]|\b(?:then|do|else|if|while|until)\b|[^\s;]\))\s*(?:\w+=\S*\s+)*"
    return set(re.findall(rf"{start}(?=([a-z_\[:][\w.-]*)(?:[\s;)]|$))", unquoted(text), re.MULTILINE))


def test_the_script_starts_nothing_that_changes_anything() -> None:
    text = script()
    functions = set(re.findall(r"^(\w+)\(\) \{", text, re.MULTILINE))
    assert commands(text) - functions - KEYWORDS - BUILTIN <= ALLOWED
    assert commands("x=1 rm -rf /\nif mv a b; then :; fi") >= {"rm", "mv"}
    assert {"/dev/null"} >= set(re.findall(r">\s*([^\s&;)]+)", unquoted(text)))
    assert set(re.findall(r"\bdk (container inspect|image inspect|\w+)", text)) == DOCKER
    assert not re.search(r"\b(rm|mv|cp|mkdir|touch|tee|ln|chmod|chown|kill|mktemp|truncate|install)\b", unquoted(text))
    assert not re.search(r"\bof=|\bsed -i|-delete\b|-exec\b|-fprint", text)


def test_what_was_looked_at_is_left_as_it_was(root: Path) -> None:
    def state() -> list[tuple[str, int, float]]:
        return sorted((str(path), path.lstat().st_size, path.lstat().st_mtime) for path in root.rglob("*"))

    before = state()
    run(Question(name="beam", model_dir=str(root), folders=("dflash2", "absent"), ports=(1,), images=("a",)))
    assert state() == before
