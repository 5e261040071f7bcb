"""Words reach a program unchanged through every login shell; settings, known hosts and lines are read as ssh does."""

from __future__ import annotations

import base64
import getpass
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamdeploy.errors import UNREACHABLE, HostError
from beamdeploy.inventory import Host
from beamdeploy.remote.connect import connect
from beamdeploy.remote.gates import Gates
from beamdeploy.remote.known_hosts import KnownKey, algorithms, append, fingerprint, parse
from beamdeploy.remote.lines import Lines
from beamdeploy.remote.local import LocalSession
from beamdeploy.remote.ssh_config import config_lines, parse_hop, read_without_client, resolve
from beamdeploy.remote.words import LONGEST, after_mark, command_line, framed, script_words
from beamdeploy.web import ask

DATA = Path(__file__).parent / "data" / "ssh_config"
SHELLS = (
    *("sh", "dash", "bash", "tcsh", "fish", "busybox"),
    # not asked for, but tried where they are
    *(shell for shell in ("zsh", "ksh", "csh") if shutil.which(shell)),
)

ENV_WORDS = (
    "docker",
    "run",
    "-e",
    "PLAIN=1",
    "-e",
    "BLANKS=a b  c",
    "-e",
    "SHELL=x; touch PWNED; $(touch PWNED)",
    "-e",
    'QUOTES=it\'s "quoted"',
    "-e",
    "EQUALS=k=v=w",
    "-e",
    "EMPTY=",
    "-e",
    'JSON={"a": [1, 2]}',
    "",
    "`touch PWNED`",
    "!!",
    "!$",
    "back\\slash\\\\",
    "two\nlines\r\n",
    "tab\there",
    "é 漢字",
    "~root",
    "*",
    "{a,b}",
    "=ls",
    "%1",
    "^a^b",
    "$HOME",
    "#comment",
    "a&b|c>PWNED",
    "'",
    '"',
    "\\",
)


def shell_words(shell: str) -> tuple[str, ...]:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    return ("busybox", "sh") if shell == "busybox" else (shell,)


def recorded(shell: str, words: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """What a program named docker gets when the shell runs the text for these words."""
    recorder = folder / "docker"
    recorder.write_text("#!/bin/sh\nprintf '%s\\0' docker \"$@\"\n")
    recorder.chmod(0o755)
    line = command_line(words)
    assert "\n" not in line and "\\" not in line and "!" not in line
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    ran = subprocess.run([*shell_words(shell), "-c", line], cwd=folder, env=env, capture_output=True, check=True)
    out = after_mark(ran.stdout)
    return tuple((ran.stdout if out is None else out).decode().split("\0")[:-1])


@pytest.mark.parametrize("shell", SHELLS)
def test_every_byte_of_every_word_arrives_and_nothing_else_runs(shell: str, tmp_path: Path) -> None:
    assert recorded(shell, ENV_WORDS, tmp_path) == ENV_WORDS
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_frame_hands_the_words_on_unchanged(shell: str, tmp_path: Path) -> None:
    words = framed(ENV_WORDS, 20)
    assert recorded(shell, words, tmp_path) == ENV_WORDS
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_list_of_gpus_keeps_its_quotes(shell: str, tmp_path: Path) -> None:
    words = ("docker", "run", "--gpus", '"device=0,1,2,3"')
    assert recorded(shell, words, tmp_path) == words


@pytest.mark.parametrize("shell", SHELLS)
def test_sixty_kilobytes_arrive(shell: str, tmp_path: Path) -> None:
    words = ("docker", "x'\n" * 4_000, "y" * 60_000)
    assert recorded(shell, words, tmp_path) == words


def test_harmless_words_stay_readable() -> None:
    assert command_line(("docker", "ps", "--filter", "name=^/beam$")) == "docker ps --filter 'name=^/beam$'"


def test_a_program_whose_name_is_an_assignment_is_not_assigned(tmp_path: Path) -> None:
    ran = subprocess.run(["sh", "-c", command_line(("A=1", "touch", str(tmp_path / "PWNED")))], capture_output=True)
    assert (ran.returncode, list(tmp_path.iterdir())) == (127, [])


def test_a_word_with_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="a word holds a NUL"):
        command_line(("echo", "a\0b"))


def test_more_than_the_kernel_takes_in_one_word_is_refused() -> None:
    with pytest.raises(ValueError, match="more than a host takes"):
        command_line(("echo", "x" * (LONGEST + 1)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12), max_size=5))
def test_any_words_arrive(words: list[str]) -> None:
    printing = ("printf", r"%s\0", "first", *words)
    for shell in ("sh", "tcsh", "fish"):
        ran = subprocess.run([*shell_words(shell), "-c", command_line(printing)], capture_output=True, check=True)
        assert ran.stdout.decode().split("\0")[:-1] == ["first", *words]


def test_a_script_gets_its_arguments(tmp_path: Path) -> None:
    line = command_line(script_words('printf \'%s|\' "$#" "$1" "$2"\n', ("a b", "c'd\n")))
    assert subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout == b"2|a b|c'd\n|"


def test_noise_before_the_mark_is_cut_off_and_an_echoed_command_is_no_mark() -> None:
    echoed = command_line(framed(("true",), 5)).encode()
    assert after_mark(b"welcome\n" + echoed + b"\nbeamdeploy:beamdeploy:own") == b"own"
    assert after_mark(echoed) is None


needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here")


@pytest.fixture
def ssh_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The main file with its Include made absolute: ssh itself reads relative ones below ~/.ssh only."""
    text = (DATA / "config").read_text().replace("conf.d", str(DATA / "conf.d"))
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("BEAMDEPLOY_SSH_CONFIG", str(tmp_path / "config"))


@needs_ssh
@pytest.mark.usefixtures("ssh_config")
def test_aliases_of_an_included_file_and_of_a_match_block_resolve() -> None:
    gpu_a, gpu_b = (resolve(Host(name=name), config_lines(Host(name=name))) for name in ("gpu-a", "gpu-b"))
    assert (gpu_a.user, gpu_a.hostname, gpu_a.port) == ("deploy", "192.0.2.10", 2202)
    assert gpu_a.identity_files == (os.path.expanduser("~/.ssh/lab_ed25519"),)
    assert gpu_a.host_key_name == "[192.0.2.10]:2202"
    assert (gpu_b.user, gpu_b.hostname, gpu_b.port, gpu_b.host_key_name) == ("deploy", "192.0.2.11", 22, "192.0.2.11")


@needs_ssh
@pytest.mark.usefixtures("ssh_config")
def test_bastions_and_key_settings_of_the_configuration_are_taken() -> None:
    target = resolve(Host(name="gpu-c"), config_lines(Host(name="gpu-c")))
    assert target.proxy_jump == ("op@bastion.example:2222", "inner")
    assert (target.host_key_name, target.identities_only) == ("lab-c", True)
    assert target.known_hosts[0] == os.path.expanduser("~/.ssh/known_lab")


@needs_ssh
@pytest.mark.usefixtures("ssh_config")
def test_a_proxy_command_gets_host_port_and_user() -> None:
    host = Host(name="gpu-d", user="op")
    assert resolve(host, config_lines(host)).proxy_command == "gate --to gpu-d:22 --as op"


@needs_ssh
@pytest.mark.usefixtures("ssh_config")
def test_the_inventory_wins_over_the_configuration() -> None:
    host = Host(name="gpu-a", user="op", port=2299, known_hosts="/k", identity_file="/i", proxy_jump="b1,b2")
    target = resolve(host, config_lines(host))
    assert (target.user, target.hostname, target.port) == ("op", "192.0.2.10", 2299)
    assert (target.known_hosts, target.stated_key, target.proxy_jump) == (("/k",), "/i", ("b1", "b2"))


def test_without_any_configuration_the_name_is_the_address() -> None:
    target = resolve(Host(name="gpu-x"), ())
    assert (target.user, target.hostname, target.port, target.proxy_jump) == (getpass.getuser(), "gpu-x", 22, ())


NO_NAMES = ("a..b", ".a", f"{'a' * 64}.example")


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("bastion", [False, True])
def test_a_name_that_can_be_none_is_an_unreachable_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, bastion: bool
) -> None:
    (tmp_path / "config").write_text("")
    monkeypatch.setenv("BEAMDEPLOY_SSH_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))  # ssh refuses some of them itself, in its own words
    host = Host(name="gpu-a", address="192.0.2.1", proxy_jump=name) if bastion else Host(name=name)
    with pytest.raises(HostError, match=f"the name '{re.escape(name)}' is no host name") as refused:
        connect(host, accept_new=False, timeout=1, gates=Gates())
    assert refused.value.exit == UNREACHABLE


@pytest.mark.parametrize("name", NO_NAMES)
def test_no_channel_and_no_question_on_the_web_fails_for_such_a_name(name: str) -> None:
    with pytest.raises(socket.gaierror, match="is no host name"):
        LocalSession(Host(name="localhost")).channel(80, name)
    assert ask(f"http://{name}/").reason == f"{name!r} is no host name"


def test_a_bastion_needs_no_bastion() -> None:
    assert resolve(Host(name="bastion"), ("proxyjump bastion",)).proxy_jump == ()


def test_without_an_ssh_client_an_include_is_refused_with_its_line() -> None:
    with pytest.raises(HostError, match=r"config:1: Include conf\.d/\*\.conf: only the OpenSSH client can follow it"):
        read_without_client(DATA / "config", Host(name="gpu-a"))


def test_without_an_ssh_client_plain_aliases_resolve() -> None:
    plain = DATA / "conf.d" / "gpus.conf"
    target = resolve(Host(name="gpu-a"), read_without_client(plain, Host(name="gpu-a")))
    assert (target.user, target.hostname, target.port) == ("deploy", "192.0.2.10", 2202)


@needs_ssh
def test_a_wrong_configuration_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Bogus yes\n")
    monkeypatch.setenv("BEAMDEPLOY_SSH_CONFIG", str(tmp_path / "config"))
    with pytest.raises(HostError, match="line 1: Bad configuration option: bogus"):
        config_lines(Host(name="gpu-a"))


@pytest.mark.parametrize("place", ["/dev/zero", "pipe", "names-a-pipe", "dev-in-a-chain"])
def test_what_is_no_file_is_read_nowhere_in_a_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "names-a-pipe").write_text(f"Host *\n  Include {tmp_path}/none {tmp_path}/pip*\n")
    (tmp_path / "dev-in-a-chain").write_text(f'include="{tmp_path}/next"\n')
    (tmp_path / "next").write_text("Include /dev/zero\n")
    monkeypatch.setenv("BEAMDEPLOY_SSH_CONFIG", str(tmp_path / place))
    with pytest.raises(HostError, match=r"(/dev/zero|/pipe): it is no regular file") as refused:
        config_lines(Host(name="gpu-a"))
    assert refused.value.exit == UNREACHABLE


def test_the_users_own_configuration_is_no_pipe_either(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    os.mkfifo(tmp_path / ".ssh" / "config")
    monkeypatch.delenv("BEAMDEPLOY_SSH_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(HostError, match="config: it is no regular file"):
        config_lines(Host(name="gpu-a"))


def test_the_null_device_is_no_configuration_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEAMDEPLOY_SSH_CONFIG", os.devnull)
    assert resolve(Host(name="gpu-a"), config_lines(Host(name="gpu-a"))).hostname == "gpu-a"


@pytest.mark.parametrize(
    ("hop", "parsed"),
    [
        ("bastion", (None, "bastion", None)),
        ("op@bastion:2222", ("op", "bastion", 2222)),
        ("ssh://op@bastion:2222", ("op", "bastion", 2222)),
        ("op@[2001:db8::1]:22", ("op", "2001:db8::1", 22)),
        ("2001:db8::1", (None, "2001:db8::1", None)),
    ],
)
def test_a_hop_is_read(hop: str, parsed: tuple[str | None, str, int | None]) -> None:
    assert parse_hop(hop) == parsed


KEY = base64.b64encode(b"key").decode()


@pytest.mark.parametrize(
    ("field", "name", "found"),
    [
        ("gpu-a,192.0.2.10", "gpu-a", True),
        ("gpu-b", "gpu-a", False),
        ("[gpu-a]:2222", "[gpu-a]:2222", True),
        ("gpu-a", "[gpu-a]:2222", False),
        ("*.example,!bad.example", "good.example", True),
        ("*.example,!bad.example", "bad.example", False),
        ("GPU-A", "gpu-a", True),
        # ssh-keygen -H of "gpu-a", and of "[gpu-a]:2222"
        ("|1|c2FsdHNhbHRzYWx0c2FsdHNhbHQ=|{digest}", "gpu-a", True),
        ("|1|c2FsdHNhbHRzYWx0c2FsdHNhbHQ=|{digest}", "gpu-b", False),
        ("|1|broken", "gpu-a", False),
    ],
)
def test_a_line_names_a_host(field: str, name: str, found: bool) -> None:
    import hashlib
    import hmac

    digest = base64.b64encode(hmac.new(b"saltsaltsaltsaltsalt", b"gpu-a", hashlib.sha1).digest()).decode()
    text = f"# comment\n\n{field.format(digest=digest)} ssh-ed25519 {KEY} comment\n"
    assert parse(name, "/k", text) == ((KnownKey("/k", 3, "", "ssh-ed25519", b"key"),) if found else ())


def test_markers_are_kept_and_broken_lines_passed_over() -> None:
    text = f"@revoked gpu-a ssh-ed25519 {KEY}\ngpu-a ssh-ed25519 §§§\ngpu-a ssh-rsa\n"
    assert parse("gpu-a", "/k", text) == (KnownKey("/k", 1, "@revoked", "ssh-ed25519", b"key"),)


def test_algorithms_of_known_keys_come_first() -> None:
    offered = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256")
    known = KnownKey("/k", 1, "", "ssh-rsa", b"key")
    assert algorithms((known,), offered) == ("rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519", "ecdsa-sha2-nistp256")
    assert algorithms((), offered) == offered


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen here")
def test_a_fingerprint_is_the_one_that_ssh_prints(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    listed = subprocess.run(
        ["ssh-keygen", "-lf", str(tmp_path / "key.pub")], capture_output=True, text=True, check=True
    )
    blob = base64.b64decode((tmp_path / "key.pub").read_text().split()[1])
    assert fingerprint(blob) == listed.stdout.split()[1]


def test_a_stored_key_stands_on_a_line_of_its_own_in_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "ssh" / "known_hosts"
    append(file, "gpu-a ssh-ed25519 AAAA")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.write_text(file.read_text().strip())
    append(file, "gpu-b ssh-ed25519 AAAA")
    assert file.read_text() == "gpu-a ssh-ed25519 AAAA\ngpu-b ssh-ed25519 AAAA\n"


def test_lines_end_at_line_feeds_and_carriage_returns_and_characters_stay_whole() -> None:
    seen: list[str] = []
    lines = Lines(seen.append)
    for part in (b"a\r\nb", b"c\r10%\r\xc3", b"\xa9\n", b"rest"):
        lines.feed(part)
    lines.end()
    assert seen == ["a", "bc", "10%", "é", "rest"]
    assert lines.last == "a\nbc\n10%\né\nrest"


def test_the_last_two_hundred_lines_are_kept() -> None:
    lines = Lines(lambda line: None)
    lines.feed("".join(f"{number}\n" for number in range(500)).encode())
    assert lines.last.split("\n") == [str(number) for number in range(300, 500)]
