"""A real OpenSSH server on loopback, with keys and accounts that are thrown away."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from beamdeploy.inventory import Host

SSHD = "/usr/sbin/sshd"


@dataclass(frozen=True)
class Sshd:
    """`pid` is the listening server's; each connection has a child of it."""

    folder: Path
    port: int
    pid: int
    user: str = "root"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def host(self, **changes: object) -> Host:
        settings: dict[str, object] = {
            "name": "gpu-a",
            "address": "127.0.0.1",
            "port": self.port,
            "user": self.user,
            "known_hosts": str(self.known_hosts),
            "identity_file": str(self.folder / "id_ed25519"),
        }
        return Host(**{**settings, **changes})  # type: ignore[arg-type]  # the tests say which

    def public_key(self, kind: str = "ed25519") -> str:
        return " ".join((self.folder / f"host_{kind}.pub").read_text().split()[:2])

    def trust(self) -> None:
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {self.public_key()}\n")

    def children(self) -> list[int]:
        listed = subprocess.run(["pgrep", "-P", str(self.pid)], capture_output=True, text=True, check=False)
        return [int(pid) for pid in listed.stdout.split()]


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path)], check=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def sshd(folder: Path, *options: str, user: str = "root", trusted: bool = True) -> Iterator[Sshd]:
    """A server whose only authorized key is folder/id_ed25519; `options` are sshd_config lines."""
    for name, kind in (("host_ed25519", "ed25519"), ("host_ecdsa", "ecdsa"), ("id_ed25519", "ed25519")):
        make_key(folder / name, kind)
    port = free_port()
    lines = [
        *options,
        f"ListenAddress 127.0.0.1:{port}",
        f"HostKey {folder}/host_ed25519",
        f"HostKey {folder}/host_ecdsa",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM no",
        "StrictModes no",
        "PidFile none",
    ]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    (folder / "authorized_keys").write_text((folder / "id_ed25519.pub").read_text())
    _readable_by_all(folder)
    os.makedirs("/run/sshd", exist_ok=True)
    log = (folder / "sshd.log").open("w")
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log, stdout=log)
    try:
        _wait_for(port)
        started = Sshd(folder, port, server.pid, user)
        if trusted:
            started.trust()
        yield started
    finally:
        children = Sshd(folder, port, server.pid).children()
        server.terminate()
        server.wait(10)
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, 15)
        log.close()


def _readable_by_all(folder: Path) -> None:
    """sshd reads authorized_keys as the user that logs in."""
    for part in (folder, *folder.parents):
        if part not in (Path("/"), Path("/tmp")):
            part.chmod(part.stat().st_mode | 0o055)


def _wait_for(port: int) -> None:
    until = time.monotonic() + 10
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < until, "sshd does not start"
        time.sleep(0.02)
