"""Sessions against a real OpenSSH server on loopback, with each login shell."""

from __future__ import annotations

import base64
import http.client
import http.server
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from beamdeploy.errors import FAILED, UNREACHABLE, HostError
from beamdeploy.inventory import Host
from beamdeploy.remote import Result, Session, open_session
from beamdeploy.remote.known_hosts import fingerprint
from tests.integration.sshd import SSHD, Sshd, free_port, make_key, sshd

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SSHD).exists(), reason="needs root and /usr/sbin/sshd (openssh-server)"
)

SHELLS = ("dash", "bash", "tcsh", "fish")
NOISE = "echo welcome to this host; echo beware >&2\n"
START_UP_FILES = {"bash": ".bashrc", "tcsh": ".cshrc", "fish": ".config/fish/config.fish", "dash": ".profile"}


@contextmanager
def folder() -> Iterator[Path]:
    """Not pytest's tmp_path, which other users may not enter."""
    with tempfile.TemporaryDirectory(prefix="bd-sshd-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def server() -> Iterator[Sshd]:
    with folder() as path, sshd(path) as started:
        yield started


@pytest.fixture
def session(server: Sshd) -> Iterator[Session]:
    with open_session(server.host()) as opened:
        yield opened


@pytest.fixture(params=SHELLS)
def account(request: pytest.FixtureRequest) -> Iterator[str]:
    """A user with this login shell, whose start-up file talks."""
    shell, name = request.param, f"bd-{request.param}"
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"there is no {shell} here")
    # "*": no password, and not locked, which sshd would refuse
    subprocess.run(["useradd", "-m", "-p", "*", "-s", path, name], check=True)
    home = Path(f"~{name}").expanduser()
    start_up = home / START_UP_FILES[shell]
    start_up.parent.mkdir(parents=True, exist_ok=True)
    start_up.write_text(NOISE)
    yield name
    remove_user(name)


def remove_user(name: str) -> None:
    """sshd's child of this user ends a moment after the connection; until then userdel refuses (8)."""
    until = time.monotonic() + 10
    while subprocess.run(["userdel", "-r", name], capture_output=True, check=False).returncode == 8:
        assert time.monotonic() < until, f"{name} is still in use"
        time.sleep(0.05)


def processes(marker: str) -> list[str]:
    """The processes whose words hold the marker."""
    found = subprocess.run(["pgrep", "-f", "-a", marker], capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if "pgrep" not in line]


def gone(marker: str, within: float = 5.0) -> bool:
    until = time.monotonic() + within
    while processes(marker):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def failure(host: Host, **options: object) -> HostError:
    with pytest.raises(HostError) as caught:
        open_session(host, **options).close()  # type: ignore[arg-type]  # the tests say which
    return caught.value


def test_each_login_shell_hands_over_the_words_and_only_their_output(account: str) -> None:
    words = ("printf", r"%s|", "a b", "it's", "$(id)", "x\ny", "!!", "\\", "")
    with folder() as path, sshd(path, user=account) as server, open_session(server.host()) as session:
        assert session.run(words, timeout=10) == Result(words, 0, "a b|it's|$(id)|x\ny|!!|\\||", "")
        plain = ("printf", "%s", "plain")
        assert session.run(plain, timeout=10) == Result(plain, 0, "plain", "")
        seen: list[str] = []
        session.follow(("sh", "-c", "echo one; echo two >&2"), seen.append, timeout=10)
        assert sorted(seen) == ["one", "two"]
        script = session.script('echo "$#:$1" >&2; exit 3\n', ("it's\n",), timeout=10)
        assert (script.exit, script.out, script.err) == (3, "", "1:it's\n\n")


def test_each_login_shell_takes_sixty_kilobytes(account: str) -> None:
    with folder() as path, sshd(path, user=account) as server, open_session(server.host()) as session:
        assert session.run(("printf", "%s", "x" * 60_000), timeout=10).out == "x" * 60_000


def test_an_account_that_runs_nothing_is_named() -> None:
    subprocess.run(["useradd", "-M", "-p", "*", "-s", "/usr/sbin/nologin", "bd-nologin"], check=True)
    try:
        with (
            folder() as path,
            sshd(path, user="bd-nologin") as server,
            open_session(server.host()) as session,
            pytest.raises(HostError, match="did not run docker; it said: This account is currently not available"),
        ):
            session.run(("docker", "ps"), timeout=5)
    finally:
        remove_user("bd-nologin")


def test_twenty_commands_and_one_that_is_not_there_run_on_one_connection(server: Sshd, session: Session) -> None:
    assert [session.run(("sh", "-c", f"exit {n}"), timeout=5).exit for n in range(20)] == list(range(20))
    missing = session.run(("no-such-program",), timeout=5)
    assert (missing.exit, "No such file or directory" in missing.err) == (127, True)
    assert len(server.children()) == 1


def test_megabytes_of_both_outputs_arrive(session: Session) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' a; head -c 3000000 /dev/zero | tr '\\0' b >&2"
    result = session.script(script, (), timeout=30)
    assert (result.out, result.err) == ("a" * 3_000_000, "b" * 3_000_000)


def test_words_read_an_empty_stdin(session: Session) -> None:
    assert session.run(("cat",), timeout=5) == Result(("cat",), 0, "", "")


def test_time_is_kept_on_the_host_and_nothing_is_left(session: Session) -> None:
    words = ("sh", "-c", "echo begun; sleep 4141; true")
    assert session.run(words, timeout=1) == Result(words, 124, "begun\n", "")
    assert gone("sleep 4141")


def test_what_ignores_the_end_of_its_time_is_killed(session: Session) -> None:
    words = ("sh", "-c", "trap '' TERM; while :; do sleep 0.4242; done")
    assert session.run(words, timeout=1).exit == 124
    assert gone("sleep 0.4242")


def test_a_process_that_a_signal_ended_has_no_exit_status(session: Session) -> None:
    # the frame replaces itself by `timeout`, which is ended here: sshd reports a signal
    assert session.run(("sh", "-c", "kill -KILL $PPID"), timeout=5).exit is None
    assert session.run(("true",), timeout=5).ok


def kill_children(server: Sshd) -> None:
    for pid in server.children():
        os.kill(pid, signal.SIGKILL)


def test_a_connection_that_dies_under_a_command_is_an_error_and_no_hang(server: Sshd, session: Session) -> None:
    threading.Timer(0.5, kill_children, (server,)).start()
    start = time.monotonic()
    with pytest.raises(HostError, match=r"the connection was lost .*; the state of this host is unknown") as caught:
        session.run(("sleep", "80"), timeout=90)
    assert caught.value.exit == UNREACHABLE
    assert time.monotonic() - start < 30
    with pytest.raises(HostError, match="the connection was lost"):
        session.run(("true",), timeout=5)


def test_a_connection_that_dies_ends_what_is_followed(server: Sshd, session: Session) -> None:
    with pytest.raises(HostError, match="the connection was lost"):
        session.follow(("sh", "-c", "echo begun; sleep 4343; true"), lambda line: kill_children(server), timeout=60)
    assert gone("sleep 4343")


def test_lines_are_handed_over_as_they_come(session: Session) -> None:
    times: list[float] = []
    words = ("sh", "-c", "echo a; sleep 0.4; printf 'b\\rc\\n'; exit 7")
    result = session.follow(words, lambda line: times.append(time.monotonic()), timeout=10)
    assert result == Result(words, 7, "a\nb\nc", "")
    assert times[1] - times[0] > 0.3


def test_followed_words_have_a_time_limit(session: Session) -> None:
    assert session.follow(("sleep", "4444"), lambda line: None, timeout=1).exit == 124
    assert gone("sleep 4444")


def test_a_listener_that_has_enough_ends_the_remote_process(session: Session) -> None:
    class Enough(Exception):
        pass

    def stop(line: str) -> None:
        raise Enough(line)

    start = time.monotonic()
    with pytest.raises(Enough, match="begun"):
        session.follow(("sh", "-c", "echo begun; sleep 4545; true"), stop, timeout=600)
    assert time.monotonic() - start < 30
    assert gone("sleep 4545")
    assert session.run(("true",), timeout=5).ok


class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(3):
            self.wfile.write(f"data: {number}\n".encode() * 1000)
            time.sleep(0.05)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def web() -> Iterator[int]:
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield served.server_port
    served.shutdown()
    thread.join()
    served.server_close()


def ask(channel: socket.socket) -> bytes:
    connection = http.client.HTTPConnection("beam")
    connection.sock = channel
    connection.request("GET", "/v1/models")
    body = connection.getresponse().read()
    connection.close()
    return body


ANSWER = b"".join(f"data: {number}\n".encode() * 1000 for number in range(3))


def test_a_channel_is_a_socket_that_http_client_can_use(session: Session, web: int) -> None:
    assert ask(session.channel(web)) == ANSWER


def test_several_threads_use_channels_of_one_session(session: Session, web: int) -> None:
    answers: list[bytes] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(session.channel(web)))) for _ in range(5)]
    for thread in threads:
        thread.start()
    session.run(("true",), timeout=5)
    for thread in threads:
        thread.join()
    assert answers == [ANSWER] * 5


def test_a_channel_that_waits_too_long_times_out(session: Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, session.channel(silent.getsockname()[1]) as channel:
        channel.settimeout(0.2)
        with pytest.raises(TimeoutError):
            channel.recv(1)


def test_closing_a_channel_closes_it_on_the_host(session: Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channel = session.channel(listener.getsockname()[1])
        accepted, _ = listener.accept()
        channel.close()
        accepted.settimeout(5)
        assert accepted.recv(1) == b""
        accepted.close()


def test_a_port_where_nothing_listens_refuses(session: Session) -> None:
    with pytest.raises(ConnectionRefusedError):
        session.channel(free_port())
    assert session.run(("true",), timeout=5).ok


def test_a_server_that_forbids_forwarding_is_named() -> None:
    with (
        folder() as path,
        sshd(path, "AllowTcpForwarding no") as server,
        open_session(server.host()) as session,
        pytest.raises(HostError, match="forbids forwarding") as caught,
    ):
        session.channel(8000)
    assert (caught.value.exit, "AllowTcpForwarding" in caught.value.problems[0].remedy) == (FAILED, True)


def test_closing_is_quick_and_twice_is_harmless(server: Sshd) -> None:
    session = open_session(server.host())
    start = time.monotonic()
    session.close()
    session.close()
    assert time.monotonic() - start < 2


def blob(server: Sshd, kind: str = "ed25519") -> bytes:
    return base64.b64decode(server.public_key(kind).split()[1])


def test_an_unknown_host_is_refused_with_fingerprint_line_and_option(server: Sshd) -> None:
    server.known_hosts.unlink()
    error = failure(server.host())
    problem = error.problems[0]
    assert (error.exit, problem.where) == (UNREACHABLE, "gpu-a: connect")
    assert fingerprint(blob(server)) in problem.what
    assert f"`[127.0.0.1]:{server.port} {server.public_key()}`" in problem.remedy
    assert str(server.known_hosts) in problem.remedy and "--accept-new" in problem.remedy
    assert not server.known_hosts.exists()


def test_a_new_host_is_stored_once_when_that_is_asked_for(server: Sshd) -> None:
    server.known_hosts.unlink()
    with open_session(server.host(), accept_new=True) as session:
        assert session.notes == (
            f"root@127.0.0.1:{server.port}: stored the new host key ssh-ed25519 {fingerprint(blob(server))} "
            f"in {server.known_hosts}",
        )
    line = f"[127.0.0.1]:{server.port} {server.public_key()}\n"
    assert (server.known_hosts.read_text(), server.known_hosts.stat().st_mode & 0o777) == (line, 0o600)
    with open_session(server.host(), accept_new=True) as session:
        assert session.notes == ()
    assert server.known_hosts.read_text() == line


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_changed_key_is_refused_even_when_new_ones_are_accepted(server: Sshd, accept_new: bool) -> None:
    make_key(server.folder / "old")
    old = (server.folder / "old.pub").read_text().split()[1]
    content = f"# a comment\n[127.0.0.1]:{server.port} ssh-ed25519 {old}\n"
    server.known_hosts.write_text(content)
    error = failure(server.host(), accept_new=accept_new)
    problem = error.problems[0]
    assert error.exit == UNREACHABLE
    for part in ("changed", fingerprint(base64.b64decode(old)), fingerprint(blob(server)), f"{server.known_hosts}:2"):
        assert part in problem.what
    assert f"ssh-keygen -f {server.known_hosts} -R '[127.0.0.1]:{server.port}'" in problem.remedy
    assert server.known_hosts.read_text() == content


def test_a_known_key_of_another_kind_is_asked_for_and_not_taken_for_a_change(server: Sshd) -> None:
    server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {server.public_key('ecdsa')}\n")
    with open_session(server.host()) as session:
        assert session.run(("true",), timeout=5).ok


def test_hashed_entries_are_known(server: Sshd) -> None:
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(server.known_hosts)], check=True, capture_output=True)
    assert "127.0.0.1" not in server.known_hosts.read_text()
    open_session(server.host()).close()


def test_a_refused_key_says_what_was_offered_for_whom(server: Sshd) -> None:
    make_key(server.folder / "other")
    error = failure(server.host(identity_file=str(server.folder / "other")))
    what = error.problems[0].what
    assert error.exit == UNREACHABLE
    assert "authentication refused; offered for user 'root': " in what and f"{server.folder}/other" in what


def test_an_encrypted_key_needs_an_agent_or_the_passphrase(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    make_key(server.folder / "locked", passphrase="secret")
    with (server.folder / "authorized_keys").open("a") as keys:
        keys.write((server.folder / "locked.pub").read_text())
    host = server.host(identity_file=str(server.folder / "locked"))
    problem = failure(host).problems[0]
    assert f"{server.folder}/locked is encrypted" in problem.what
    assert "ssh-add" in problem.remedy and "BEAMDEPLOY_KEY_PASSPHRASE" in problem.remedy
    monkeypatch.setenv("BEAMDEPLOY_KEY_PASSPHRASE", "secret")
    open_session(host).close()
    monkeypatch.setenv("BEAMDEPLOY_KEY_PASSPHRASE", "wrong")
    assert "locked" in failure(host).problems[0].what


@pytest.fixture
def agent(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """An ssh-agent of this test; adds a key."""
    path = str(server.folder / "agent")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    while not os.path.exists(path):
        time.sleep(0.02)
    monkeypatch.setenv("SSH_AUTH_SOCK", path)

    def add(key: Path) -> None:
        subprocess.run(["ssh-add", "-q", str(key)], check=True)

    yield add
    process.terminate()
    process.wait(5)


def test_keys_of_the_agent_open_a_session(server: Sshd, agent: Callable[[Path], None]) -> None:
    agent(server.folder / "id_ed25519")
    open_session(server.host(identity_file=None)).close()


def test_more_keys_than_the_server_tries_are_explained(agent: Callable[[Path], None], server: Sshd) -> None:
    with folder() as path, sshd(path, "MaxAuthTries 2") as strict:
        for name in ("one", "two", "three"):
            make_key(path / name)
            agent(path / name)
        problem = failure(strict.host(identity_file=None)).problems[0]
    assert "(one)" in problem.what and "(two)" in problem.what and "MaxAuthTries" in problem.what
    assert "IdentitiesOnly" in problem.remedy


def string(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def test_a_hardware_key_in_the_agent_is_named(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    key = string(b"sk-ssh-ed25519@openssh.com") + string(bytes(32)) + string(b"ssh:")
    # the answer of the agent protocol: SSH2_AGENT_IDENTITIES_ANSWER (12), one key with its comment
    answer = string(bytes([12]) + (1).to_bytes(4, "big") + string(key) + string(b"token"))

    def serve(listener: socket.socket) -> None:
        asking, _ = listener.accept()
        with asking:
            asking.recv(100)
            asking.sendall(answer)
            asking.recv(1)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(server.folder / "agent"))
        listener.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(server.folder / "agent"))
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        make_key(server.folder / "other")
        problem = failure(server.host(identity_file=str(server.folder / "other"))).problems[0]
        thread.join()
    assert "sk-ssh-ed25519@openssh.com of the agent: the SSH library does not know such keys" in problem.what
    assert "use a plain key" in problem.remedy


def test_a_missing_key_file_names_its_setting(server: Sshd) -> None:
    problem = failure(server.host(identity_file="/nowhere/nokey")).problems[0]
    assert "/nowhere/nokey does not exist" in problem.what and "`identity_file`" in problem.remedy


def test_a_name_that_does_not_resolve_a_closed_port_and_silence_are_told_apart(server: Sshd) -> None:
    assert "does not resolve" in failure(server.host(address="gpu-x.invalid")).problems[0].what
    port = free_port()
    closed = failure(server.host(port=port)).problems[0]
    assert closed.what == f"root@127.0.0.1:{port}: nothing listens on port {port} of 127.0.0.1"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = failure(server.host(port=silent.getsockname()[1]), connect_timeout=1)
        assert (error.exit, "within 1 s" in error.problems[0].what) == (UNREACHABLE, True)


@contextmanager
def hanging_up(times: int, port: int) -> Iterator[tuple[int, list[int]]]:
    """A port that hangs up on the first callers and leads the others to `port`; and the calls so far."""
    calls: list[int] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            calls.append(1)
            if len(calls) <= times:
                caller.close()
                continue
            beyond = socket.create_connection(("127.0.0.1", port))
            for source, sink in ((caller, beyond), (beyond, caller)):
                threading.Thread(target=copy, args=(source, sink)).start()

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while received := source.recv(1 << 16):
                sink.sendall(received)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1], calls
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_dropped_connection_is_tried_again(server: Sshd) -> None:
    with hanging_up(2, server.port) as (port, calls):
        server.known_hosts.write_text(f"[127.0.0.1]:{port} {server.public_key()}\n")
        open_session(server.host(port=port)).close()
    assert len(calls) == 3


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_refused_key_is_not_tried_again(server: Sshd) -> None:
    make_key(server.folder / "other")
    with hanging_up(0, server.port) as (port, calls):
        server.known_hosts.write_text(f"[127.0.0.1]:{port} {server.public_key()}\n")
        failure(server.host(port=port, identity_file=str(server.folder / "other")))
    assert len(calls) == 1


def test_a_host_that_always_hangs_up_is_given_up(server: Sshd) -> None:
    with hanging_up(99, server.port) as (port, calls):
        problem = failure(server.host(port=port)).problems[0]
    assert "hung up before it identified itself" in problem.what
    assert len(calls) == 4


def test_a_bastion_leads_on_and_its_key_is_checked(server: Sshd) -> None:
    with folder() as path, sshd(path) as bastion:
        with (path / "authorized_keys").open("a") as keys:
            keys.write((server.folder / "id_ed25519.pub").read_text())
        host = server.host(proxy_jump=f"root@127.0.0.1:{bastion.port}")
        refused = failure(host).problems[0]
        assert refused.where == f"gpu-a: connect: bastion root@127.0.0.1:{bastion.port}"
        assert "is not known" in refused.what
        with server.known_hosts.open("a") as known:
            known.write(bastion.known_hosts.read_text())
        with open_session(host) as session:
            assert session.run(("printenv", "SSH_CONNECTION"), timeout=5).ok
            assert len(bastion.children()) == 1
        chain = replace(host, proxy_jump=f"root@127.0.0.1:{bastion.port},root@127.0.0.1:{bastion.port}")
        with open_session(chain) as session:
            assert session.run(("true",), timeout=5).ok


def test_a_bastion_that_forbids_forwarding_or_is_down_is_named(server: Sshd) -> None:
    with folder() as path, sshd(path, "AllowTcpForwarding no") as bastion:
        with server.known_hosts.open("a") as known:
            known.write(bastion.known_hosts.read_text())
        (path / "authorized_keys").write_text((server.folder / "id_ed25519.pub").read_text())
        host = server.host(proxy_jump=f"root@127.0.0.1:{bastion.port}")
        problem = failure(host).problems[0]
        assert "the bastion forbids" in problem.what and "AllowTcpForwarding" in problem.remedy
    down = failure(host).problems[0]
    assert down.where == f"gpu-a: connect: bastion root@127.0.0.1:{bastion.port}"
    assert "nothing listens" in down.what


def test_an_alias_of_the_ssh_configuration_is_a_host(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    (server.folder / "config").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {server.port}\n  User root\n"
        f"  IdentityFile {server.folder}/id_ed25519\n  UserKnownHostsFile {server.known_hosts}\n"
        f"Host command\n  ProxyCommand busybox nc 127.0.0.1 {server.port}\n  HostKeyAlias [127.0.0.1]:{server.port}\n"
        f"  User root\n  IdentityFile {server.folder}/id_ed25519\n  UserKnownHostsFile {server.known_hosts}\n"
    )
    monkeypatch.setenv("BEAMDEPLOY_SSH_CONFIG", str(server.folder / "config"))
    for alias in ("lab", "command"):
        with open_session(Host(name=alias)) as session:
            assert session.run(("true",), timeout=5).ok


LOCAL = Host(name="here", connection="local")


def test_this_machine_is_a_host(web: int) -> None:
    words = ("sh", "-c", "echo out; echo err >&2; exit 3")
    seen: list[str] = []
    with open_session(LOCAL) as session:
        assert session.run(words, timeout=5) == Result(words, 3, "out\n", "err\n")
        assert session.script('printf %s "$1"', ("it's",), timeout=5).out == "it's"
        assert session.follow(words, seen.append, timeout=5) == Result(words, 3, "out\nerr", "")
        assert ask(session.channel(web)) == ANSWER
        with pytest.raises(ConnectionRefusedError):
            session.channel(free_port())
    assert seen == ["out", "err"]


def test_this_machine_keeps_time_limits_and_leaves_nothing() -> None:
    class Enough(Exception):
        pass

    def stop(line: str) -> None:
        raise Enough

    with open_session(LOCAL) as session:
        assert session.run(("sh", "-c", "sleep 4646; true"), timeout=1).exit == 124
        assert session.follow(("sleep", "4646"), lambda line: None, timeout=1).exit == 124
        with pytest.raises(Enough):
            session.follow(("sh", "-c", "echo begun; sleep 4646; true"), stop, timeout=60)
    assert gone("sleep 4646")
