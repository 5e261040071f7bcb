"""The lab's own network: a bridge with one address for the registry, and a cable to the namespace of each host."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

LABS = 50


@dataclass(frozen=True)
class Network:
    """10.213.`number`.0/24 on the bridge bdlab`number`."""

    number: int

    @property
    def bridge(self) -> str:
        return f"bdlab{self.number}"

    @property
    def network(self) -> str:
        return f"10.213.{self.number}.0/24"

    @property
    def registry(self) -> str:
        return f"10.213.{self.number}.1"

    def address(self, host: int) -> str:
        """The address of the host with this number, counted from 0."""
        return f"10.213.{self.number}.{10 + host}"


def ip(*words: str) -> bool:
    """Whether an `ip` command succeeded."""
    return subprocess.run(("ip", *words), capture_output=True, check=False).returncode == 0


def must_ip(*words: str) -> None:
    """Run an `ip` command. RuntimeError: it failed."""
    done = subprocess.run(("ip", *words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def create() -> Network:
    """A bridge that no other lab of this machine has: adding a link is what decides. RuntimeError: no bridge can be."""
    for number in range(LABS):
        network = Network(number)
        if ip("link", "add", network.bridge, "type", "bridge"):
            must_ip("address", "add", f"{network.registry}/24", "dev", network.bridge)
            must_ip("link", "set", network.bridge, "up")
            return network
    raise RuntimeError("no network bridge can be made here: it takes root (CAP_NET_ADMIN) and a free name bdlab0…49")


def connect(network: Network, host: int, pid: int) -> None:
    """Lay a cable from the bridge to `eth0` in the network namespace of `pid`."""
    _wait_for_namespace(pid)
    end = f"{network.bridge}h{host}"
    # the kernel takes the cables of a lab that has ended away when it comes to it
    ip("link", "delete", end)
    must_ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    must_ip("link", "set", end, "master", network.bridge, "up")


def _wait_for_namespace(pid: int) -> None:
    own = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + 5
    while os.readlink(f"/proc/{pid}/ns/net") == own:
        if time.monotonic() > deadline:
            raise RuntimeError("unshare made no network namespace")
        time.sleep(0.01)


def remove(network: Network) -> None:
    """Take the bridge away; the cables went with the namespaces of the hosts."""
    if Path(f"/sys/class/net/{network.bridge}").exists():
        must_ip("link", "delete", network.bridge)
