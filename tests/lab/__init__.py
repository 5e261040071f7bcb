"""A lab of emulated GPU hosts: real OpenSSH servers, Docker engines and a registry, in namespaces of this machine.

    lab = start(folder, hosts=2)    # takes root; about three seconds a host once the image is cached
    lab.inventory()                 # YAML for beamdeploy -i
    stop(lab)

Each host has its own mount, network, PID and host-name namespace: its own 127.0.0.1, docker.sock, /run, /root and /srv.
`python -m tests.lab up` and `down` do the same by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from beamdeploy.sandbox import checkpoint
from tests.lab import image, network
from tests.lab.furnish import HOST_FILES, furnish, make_key, reset_gpus
from tests.lab.network import Network

TOOLS = ("dockerd", "docker", "docker-init", "sshd", "ssh-keygen", "docker-registry", "ip", "iptables", "busybox")
TOOLS_TOO = ("unshare", "nsenter", "ldd")
MODEL_DIR = "/srv/models/beam"
_DROP = "kill -9 $(pgrep -f '[s]shd: root@notty')"


@dataclass(frozen=True)
class LabHost:
    """One emulated host. `model_dir` is as the host sees it; `models` is the same folder as seen from here.

    `folder` holds what a test may change or read: gpus.csv, apps.csv, nvidia-smi.fails, root/, srv/, sshd.log,
    dockerd.log, docker.sock. `pid` is that of `unshare`; `init` of the host's PID 1 as seen from here.
    """

    name: str
    address: str
    port: int
    folder: Path
    pid: int
    init: int
    host_key: str
    model_dir: str = MODEL_DIR

    @property
    def docker_socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def models(self) -> Path:
        return self.folder / "srv" / "models" / "beam"

    def docker(self, *words: str) -> str:
        """What a docker command prints on this host. RuntimeError: it failed."""
        return image.docker(self.docker_socket, *words)

    def run(self, *words: str) -> str:
        """What a command prints in this host's namespaces, without ssh. CalledProcessError: it failed."""
        enter = ("nsenter", "--target", str(self.init), "--mount", "--net", "--pid", "--uts", "--")
        return subprocess.run((*enter, *words), capture_output=True, text=True, check=True, cwd="/").stdout

    def drop(self) -> None:
        """End every session at once, as a link that is cut."""
        self.run("sh", "-c", _DROP)

    def shut(self) -> None:
        """The same, and nobody gets in any more until `reopen`."""
        self.run("sh", "-c", f"kill -STOP $(cat /run/sshd.pid); {_DROP}")

    def reopen(self) -> None:
        """Let in again after `shut`."""
        self.run("sh", "-c", "kill -CONT $(cat /run/sshd.pid)")


@dataclass(frozen=True)
class Lab:
    """A running lab. `images`: tag → digest; `identity_file` logs in as any of `furnish.LOGINS` on every host."""

    folder: Path
    network: Network
    hosts: tuple[LabHost, ...]
    registry: str
    registry_pid: int
    images: Mapping[str, str]
    identity_file: Path
    known_hosts: Path

    def image(self, tag: str = "beam", *, pinned: bool = True) -> str:
        """The reference of an image: by digest, or by tag."""
        name = f"{self.registry}/{image.REPOSITORY}"
        return f"{name}@{self.images[tag]}" if pinned else f"{name}:{tag}"

    def inventory(self, *names: str, user: str = "root", group: str = "lab") -> str:
        """An inventory (YAML, which JSON is) of these hosts, or of all."""
        chosen = [host for host in self.hosts if not names or host.name in names]
        hosts = {host.name: self._variables(host, user) for host in chosen}
        return json.dumps({"all": {"children": {group: {"hosts": hosts}}}}, indent=2) + "\n"

    def _variables(self, host: LabHost, user: str) -> Mapping[str, object]:
        return {
            "address": host.address,
            "port": host.port,
            "user": user,
            "identity_file": str(self.identity_file),
            "known_hosts": str(self.known_hosts),
            "model_dir": host.model_dir,
        }


def missing() -> tuple[str, ...]:
    """What a lab needs and this machine lacks: names of programs, and "root"."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacks = [tool for tool in (*TOOLS, *TOOLS_TOO) if shutil.which(tool, path=path) is None]
    return (*lacks, *(() if os.geteuid() == 0 else ("root",)))


def start(folder: Path, hosts: int = 1) -> Lab:
    """Start a lab in an empty folder. RuntimeError: something does not start; what did start is stopped again."""
    if missing():
        raise RuntimeError(f"the lab needs {', '.join(missing())} (scripts/install-test-tools)")
    folder.mkdir(parents=True, exist_ok=True)
    # sshd reads the keys of a plain user as that user
    folder.chmod(0o755)
    net = network.create()
    pids: list[int] = []
    try:
        return _start(folder, net, hosts, pids)
    except BaseException:
        for pid in pids:
            _end(pid, signal.SIGKILL)
        network.remove(net)
        raise


def _start(folder: Path, net: Network, count: int, pids: list[int]) -> Lab:
    identity = make_key(folder / "identity")
    storage = folder / "registry"
    storage.mkdir()
    with ExitStack() as filling:
        filling.enter_context(image.alone())
        digests = image.restore(storage)
        if digests is not None:
            filling.close()
        registry = f"{net.registry}:5000"
        pids.append(start_registry(folder, storage, registry))
        hosts = []
        for number in range(count):
            hosts.append(start_host(folder, net, number, identity))
            pids.append(hosts[-1].pid)
        for host in hosts:
            wait_until_up(host)
        if digests is None:
            digests = fill_registry(folder, storage, registry, hosts[0])
    known = folder / "known_hosts"
    known.write_text("".join(f"{known_name(host)} {host.host_key}\n" for host in hosts), encoding="utf-8")
    lab = Lab(folder, net, tuple(hosts), registry, pids[0], digests, identity, known)
    (folder / "lab.json").write_text(json.dumps(asdict(lab), default=str, indent=2), encoding="utf-8")
    (folder / "inventory.yaml").write_text(lab.inventory(), encoding="utf-8")
    return lab


def load(folder: Path) -> Lab:
    """The lab that was started in this folder, by this process or another. FileNotFoundError: none was."""
    held = json.loads((folder / "lab.json").read_text(encoding="utf-8"))
    hosts = tuple(LabHost(**{**host, "folder": Path(host["folder"])}) for host in held["hosts"])
    paths = {name: Path(held[name]) for name in ("folder", "identity_file", "known_hosts")}
    return Lab(**{**held, **paths, "hosts": hosts, "network": Network(held["network"]["number"])})


def known_name(host: LabHost) -> str:
    """How known_hosts names a host."""
    return host.address if host.port == 22 else f"[{host.address}]:{host.port}"


def fill_registry(folder: Path, storage: Path, registry: str, host: LabHost) -> dict[str, str]:
    """Build the image and its variants, push them, and keep the registry for the next lab."""
    rootfs = folder / "rootfs.tar"
    image.write_rootfs(rootfs)
    digests = image.push_variants(host.docker_socket, registry, rootfs)
    rootfs.unlink()
    image.keep(storage, digests)
    return digests


def start_registry(folder: Path, storage: Path, address: str) -> int:
    """Start a registry without authentication; its pid."""
    config = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
        "http": {"addr": address},
    }
    path = folder / "registry.yml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return _spawn(("docker-registry", "serve", str(path)), folder / "registry.log")


def start_host(folder: Path, net: Network, number: int, identity: Path) -> LabHost:
    """Start the namespaces of one host; dockerd and sshd come up in them while this returns."""
    name, address = f"gpu-{chr(ord('a') + number)}", net.address(number)
    home = folder / name
    furnish(home, address, identity)
    unshare = ("unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child")
    words = ("sh", str(HOST_FILES / "init.sh"), str(home), f"{address}/24", net.network)
    pid = _spawn((*unshare, *words), home / "init.log")
    try:
        network.connect(net, number, pid)
    except BaseException:
        _end(pid, signal.SIGKILL)
        raise
    key = (home / "etc" / "host_key.pub").read_text(encoding="utf-8").rsplit(" ", 1)[0]
    return LabHost(name, address, 22, home, pid, _only_child(pid), key)


def wait_until_up(host: LabHost, seconds: float = 30) -> None:
    """Wait for sshd and dockerd. RuntimeError, with the last lines of their logs: one does not come."""
    deadline = time.monotonic() + seconds
    while not (answers(host.address, host.port) and docker_answers(host)):
        if time.monotonic() > deadline or not alive(host.pid):
            logs = [host.folder / name for name in ("init.log", "sshd.log", "dockerd.log")]
            tails = [f"{log.name}: {log.read_text(encoding='utf-8')[-800:]}" for log in logs if log.exists()]
            raise RuntimeError("\n".join([f"{host.name} does not come up", *tails]))
        time.sleep(0.05)


def answers(address: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


def docker_answers(host: LabHost) -> bool:
    """Whether dockerd answers its socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(host.docker_socket))
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in probe.recv(100)
        except OSError:
            return False


def clean(host: LabHost) -> None:
    """Remove every container and image of a host, what was left in its home, and put its GPUs and weights back."""
    if containers := host.docker("ps", "--all", "--quiet").split():
        host.docker("rm", "--force", *containers)
    # the newest first: an image with children cannot be removed
    if images := tuple(dict.fromkeys(host.docker("images", "--all", "--quiet").split())):
        host.docker("rmi", "--force", *images)
    for left in (host.folder / "root").iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    reset_gpus(host.folder)
    shutil.rmtree(host.models, ignore_errors=True)
    checkpoint.write(host.models)


def stop(lab: Lab) -> None:
    """Stop everything by pid: containers first, since their cgroups outlive a killed dockerd."""
    for host in lab.hosts:
        if docker_answers(host) and (containers := host.docker("ps", "--all", "--quiet").split()):
            host.docker("rm", "--force", *containers)
    for host in lab.hosts:
        # the kernel ends all that lives in the PID namespace with its first process
        _end(host.init, signal.SIGKILL)
        _end(host.pid, signal.SIGKILL)
    _end(lab.registry_pid, signal.SIGTERM)
    network.remove(lab.network)
    (lab.folder / "lab.json").unlink()


def _spawn(words: tuple[str, ...], log: Path) -> int:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    with log.open("wb") as out:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, "PATH": path},
        )
    # it is ended by pid, perhaps by another process; Popen would warn about it
    child.returncode = 0
    return child.pid


def _only_child(pid: int, seconds: float = 5) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if text := children.read_text(encoding="utf-8").split():
            return int(text[0])
        time.sleep(0.01)
    raise RuntimeError("unshare started no process")


def _end(pid: int, number: signal.Signals, seconds: float = 10) -> None:
    """Signal a process and wait until it is gone."""
    deadline = time.monotonic() + seconds
    if alive(pid):
        os.kill(pid, number)
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    with suppress(ChildProcessError):
        # a child of this process; another may have started this lab
        os.waitpid(pid, os.WNOHANG)


def alive(pid: int) -> bool:
    """Whether the process still runs; one that only waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
