"""Group D: on the way to a host."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from beamdeploy.inventory import Host
from beamdeploy.remote.ssh_config import resolve
from tests.cases.conftest import Render
from tests.cases.intent import DATA, load
from tests.cases.recorder import PWNED, SHELLS, sent
from tests.integration.command import Job, Ran, container_id, environment
from tests.integration.sshd import make_key
from tests.lab import LabHost

UNREACHABLE = 4


def log_of(host: LabHost) -> str:
    return (host.folder / "sshd.log").read_text(encoding="utf-8", errors="replace")


def refused(run: Callable[[], Ran], host: LabHost) -> str:
    """All that is said of a host to which no command was sent; nothing is asked, nobody waits."""
    before, began = len(log_of(host)), time.monotonic()
    ran = run()
    assert time.monotonic() - began < 10
    assert (ran.exit, [each["outcome"] for each in ran.report["hosts"].values()]) == (UNREACHABLE, ["unreachable"])
    assert "Starting session" not in log_of(host)[before:]
    assert len(ran.report["problems"]) == 1
    assert ran.problems.count("\n") == 0
    return ran.problems


@pytest.fixture
def ssh_folder(clean_host: LabHost) -> Path:
    """~/.ssh of root on a lab host, with the case's configuration; Include is relative to it."""
    folder = clean_host.folder / "root" / ".ssh"
    shutil.copytree(DATA / "D01", folder)
    return folder


def test_d01_aliases_of_an_included_file_resolve(ssh_folder: Path, clean_host: LabHost) -> None:
    """ssh itself reads the configuration, as root of a lab host, where no other is in the way."""
    said = {alias: clean_host.run("ssh", "-G", alias).splitlines() for alias in ("gpu-a", "gpu-b")}
    gpu_a, gpu_b = (resolve(Host(alias), lines) for alias, lines in said.items())
    assert (str(gpu_a), gpu_a.identity_files) == (
        "deploy@192.0.2.10:2202",
        (str(Path("~/.ssh/lab_ed25519").expanduser()),),
    )
    assert (str(gpu_b), gpu_b.port) == ("deploy@192.0.2.11", 22)


def planned_with(job: Job, **variables: str) -> Ran:
    """`beamdeploy plan` with these variables in its environment."""
    words = (sys.executable, "-m", "beamdeploy", "plan", job.recipe, "-i", job.inventory, "-o", "json")
    done = subprocess.run(words, env=environment() | variables, capture_output=True, text=True, timeout=60, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def test_d01_an_alias_that_an_included_file_defines_is_a_host(job: Job, clean_host: LabHost) -> None:
    lab = job.lab
    (job.folder / "lab.conf").write_text(
        f"Host some-alias\n  HostName {clean_host.address}\n  User root\n  IdentityFile {lab.identity_file}\n"
        f"  UserKnownHostsFile {lab.known_hosts}\n"
    )
    (job.folder / "config").write_text(f"Include {job.folder}/lab.conf\n")
    Path(job.inventory).write_text("all: {hosts: {some-alias: {model_dir: /srv/models/beam}}}\n")
    config = str(job.folder / "config")
    done = planned_with(job, BEAMDEPLOY_SSH_CONFIG=config)
    assert done.exit == 0, done.out
    assert done.host("some-alias")["plan"]["outcome"] == "create"
    # a machine without an OpenSSH client
    (job.folder / "bin").mkdir()
    path = str(job.folder / "bin")
    said = refused(lambda: planned_with(job, BEAMDEPLOY_SSH_CONFIG=config, PATH=path), clean_host)
    assert f"{job.folder}/config:1: Include {job.folder}/lab.conf: only the OpenSSH client can follow it" in said


@pytest.mark.parametrize("words", [(), ("--accept-new",)])
@pytest.mark.parametrize("command", ["apply", "destroy"])
def test_d03_a_changed_host_key_is_refused(job: Job, clean_host: LabHost, command: str, words: tuple[str, ...]) -> None:
    make_key(job.folder / "old")
    old = (job.folder / "old.pub").read_text().split()[:2]
    known = job.folder / "known_hosts"
    known.write_text(f"# of last year\n\n{clean_host.address} {' '.join(old)}\n")
    content = known.read_text()
    job.write_inventory(known_hosts=str(known))
    more = ("-y",) if command == "destroy" else ()
    for _ in range(2):
        said = refused(lambda: job.run(command, *words, *more), clean_host)
        assert "changed" in said and said.count("SHA256:") == 2 and f"{known}:3" in said
        assert f"ssh-keygen -f {known} -R '{clean_host.address}'" in said
        assert known.read_text() == content


def test_d05_an_unknown_host_is_refused_at_once_and_stored_only_when_that_is_asked_for(
    job: Job, clean_host: LabHost
) -> None:
    known = job.folder / "known_hosts"
    job.write_inventory(known_hosts=str(known))
    for command, words in (("apply", ()), ("status", ("-",)), ("destroy", ("-", "-y"))):
        said = refused(lambda command=command, words=words: job.run(command, *words), clean_host)  # type: ignore[misc]
        assert "SHA256:" in said and f"{clean_host.address} {clean_host.host_key}" in said
        assert str(known) in said and "--accept-new" in said
        assert not known.exists()
    for command, words in (("plan", ()), ("status", ("-",)), ("destroy", ("-", "-y"))):
        stored = job.run(command, *words, "--accept-new")
        assert stored.exit == 0, stored.err
        assert "stored the new host key" in stored.problems and str(known) in stored.problems
        assert known.read_text() == f"{clean_host.address} {clean_host.host_key}\n"
        assert "stored" not in job.run("plan").problems
        known.unlink()


def without_docker(host: LabHost) -> Path:
    """root's PATH in sessions that are no login: everything but docker."""
    folder = host.folder / "root" / "bin"
    folder.mkdir()
    for place in ("/bin", "/usr/bin"):
        for program in Path(place).iterdir():
            if not program.name.startswith("docker") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    (folder / "nvidia-smi").symlink_to(host.folder / "bin" / "nvidia-smi")
    (host.folder / "root" / ".bashrc").write_text("export PATH=/root/bin\n", encoding="utf-8")
    return folder


def test_d08_docker_that_is_not_on_the_path_is_told_with_its_place_and_the_setting(
    job: Job, clean_host: LabHost, name: str
) -> None:
    without_docker(clean_host)
    place = shutil.which("docker")
    for _ in range(2):
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (3, "blocked")
        assert "docker is not on the PATH of this user's non-interactive SSH sessions (/root/bin)" in done.problems
        assert f", but {place} " in done.problems
        assert f"set `docker: {place}` for the host in the inventory (the setting takes a full path)" in done.problems
        assert "entrypoint" not in done.problems
    job.write_inventory(docker=place)
    assert job.run("apply").exit == 0


def an_image(host: LabHost, folder: Path, program: str | None) -> str:
    """An image that holds a shell and, as `tokenspeed`, a program whose text is this; its id."""
    import tarfile

    root = folder / "image.tar"
    with tarfile.open(root, "w", dereference=True) as tar:
        tar.add("/bin/busybox", arcname="bin/sh")
        if program is not None:
            file = folder / "tokenspeed"
            file.write_text(program, encoding="utf-8")
            file.chmod(0o755)
            tar.add(file, arcname="usr/local/bin/tokenspeed")
    return host.docker("import", "--change", "ENV PATH=/usr/local/bin:/bin", str(root), "local/odd:1").strip()


NO_PROGRAM = "the image has no such program: it is not an image of this engine, or its entrypoint is elsewhere"
NOT_EXECUTABLE = "the image's program cannot be executed"


@pytest.mark.parametrize("init", [True, False])
@pytest.mark.parametrize(
    ("program", "meaning"),
    [(None, NO_PROGRAM), ("#!/bin\n", NOT_EXECUTABLE)],
    ids=["no-entrypoint", "not-executable"],
)
def test_d08_a_program_that_the_image_lacks_is_no_matter_of_the_hosts_path(
    job: Job, clean_host: LabHost, name: str, program: str | None, meaning: str, init: bool
) -> None:
    image = an_image(clean_host, job.folder, program)
    job.write({"image": {"id": image}, "container.init": init})
    for _ in range(2):
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (1, "failed")
        assert meaning in done.problems and "image.reference" in done.problems
        assert "PATH of" not in done.problems and "docker: /" not in done.problems
        if program is None and not init:  # the one variant in which docker run itself fails
            assert container_id(clean_host) == "", "the husk is left"


def test_d11_environment_values_reach_docker_unchanged(render: Render, tmp_path: Path) -> None:
    wanted = load("D11")
    words = render(wanted).host("gpu-a")["words"]
    for shell in SHELLS:
        arrived = sent(shell, words, tmp_path / shell)
        given = [word for before, word in pairwise(arrived) if before == "-e"]
        assert given == [f"{name}={value}" for name, value in wanted.recipe["container"]["env"].items()]
        assert list(arrived) == words


@pytest.mark.parametrize("login", ["root", "sh", "tcsh", "fish"])
def test_d11_environment_values_reach_the_engine_unchanged(
    job: Job, clean_host: LabHost, name: str, login: str
) -> None:
    env = load("D11").recipe["container"]["env"]
    job.write({"container.env": env})
    job.write_inventory(user=login)
    assert job.run("apply").exit == 0
    inside = json.loads(
        clean_host.docker("exec", "beam", "python3", "-c", "import json, os; print(json.dumps(dict(os.environ)))")
    )
    assert {key: inside.get(key) for key in env} == env
    assert not PWNED.exists()
    assert job.run("apply").host(name)["outcome"] == "unchanged"


@pytest.fixture
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("BEAMDEPLOY_KEY_PASSPHRASE", raising=False)


@pytest.mark.usefixtures("no_agent")
def test_d15_an_encrypted_key_without_agent_and_terminal(job: Job, clean_host: LabHost) -> None:
    make_key(job.folder / "locked", passphrase="secret")
    job.write_inventory(identity_file=str(job.folder / "locked"))
    said = refused(lambda: job.run("plan"), clean_host)
    assert f"root@{clean_host.address}: " in said and f"{job.folder}/locked is encrypted" in said
    assert f"ssh-add {job.folder}/locked" in said and "BEAMDEPLOY_KEY_PASSPHRASE" in said


@pytest.mark.usefixtures("no_agent")
def test_d15_a_refused_key_is_told_with_its_user_and_not_tried_again(job: Job, clean_host: LabHost) -> None:
    make_key(job.folder / "other")
    job.write_inventory(identity_file=str(job.folder / "other"), user="fish")
    before = len(log_of(clean_host))
    said = refused(lambda: job.run("plan"), clean_host)
    assert f"fish@{clean_host.address}: authentication refused; offered for user 'fish': " in said
    assert f"{job.folder}/other" in said and "authorized_keys" in said
    assert log_of(clean_host)[before:].count("Connection from") == 1


def test_d15_a_key_file_that_is_not_there_is_told_with_the_setting_that_names_it(job: Job, clean_host: LabHost) -> None:
    job.write_inventory(identity_file="/home/op/.ssh/nokey")
    said = refused(lambda: job.run("plan"), clean_host)
    assert f"root@{clean_host.address}: the key file /home/op/.ssh/nokey does not exist" in said
    assert "`identity_file`" in said


def test_d15_a_name_that_does_not_resolve(job: Job, clean_host: LabHost) -> None:
    job.write_inventory(address="gpu-x.invalid")
    said = refused(lambda: job.run("plan"), clean_host)
    assert "root@gpu-x.invalid: the name 'gpu-x.invalid' does not resolve (after the ssh configuration)" in said
    assert "HostName" in said


def test_d15_a_closed_port(job: Job, clean_host: LabHost) -> None:
    job.write_inventory(port=2299)
    said = refused(lambda: job.run("plan"), clean_host)
    assert f"root@{clean_host.address}:2299: nothing listens on port 2299 of {clean_host.address}" in said


def packed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


@contextmanager
def agent_with_hardware_key() -> Iterator[Path]:
    """An agent that offers one key of a hardware token (SSH2_AGENT_IDENTITIES_ANSWER, 12)."""
    key = packed(b"sk-ssh-ed25519@openssh.com") + packed(bytes(32)) + packed(b"ssh:")
    answer = packed(bytes([12]) + (1).to_bytes(4, "big") + packed(key) + packed(b"token"))

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                asking, _ = listener.accept()
            except OSError:
                return
            with asking:
                while asking.recv(1000):
                    asking.sendall(answer)

    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / "agent"
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_d15_a_hardware_key_of_the_agent_is_named(
    job: Job, clean_host: LabHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_key(job.folder / "other")
    with agent_with_hardware_key() as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        job.write_inventory(identity_file=str(job.folder / "other"))
        said = refused(lambda: job.run("plan"), clean_host)
    assert "sk-ssh-ed25519@openssh.com of the agent: the SSH library does not know such keys" in said
    assert "use a plain key (identity_file)" in said
