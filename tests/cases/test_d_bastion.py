"""D13: thirty hosts behind one bastion, whose sshd takes few connections at once."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from beamdeploy.sandbox import lifetime
from tests.integration.command import Ran, beamdeploy
from tests.integration.sshd import Sshd, sshd

HOSTS = tuple(f"gpu-{number}" for number in range(1, 31))


@pytest.fixture(scope="module")
def bastion() -> Iterator[Sshd]:
    """It drops what comes while ten connections are not authenticated yet, and says so in its log."""
    if not shutil.which("sshd", path="/usr/sbin:/sbin") or os.geteuid() != 0:
        pytest.skip("this needs sshd and root")
    folder = Path(tempfile.mkdtemp(prefix="bdbastion-", dir="/tmp"))
    with sshd(folder, "MaxStartups 10:100:10", "LogLevel VERBOSE") as started:
        yield started
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def target() -> Iterator[lifetime.Running]:
    """The one emulated server that stands for all thirty."""
    folder = Path(tempfile.mkdtemp(prefix="bdsand-", dir="/tmp"))
    yield lifetime.up(None, folder / "d13")
    lifetime.down(folder / "d13")
    shutil.rmtree(folder, ignore_errors=True)


def thirty(bastion: Sshd, target: lifetime.Running, where: Path, change: Mapping[str, Mapping[str, Any]]) -> str:
    """An inventory of thirty names for the target behind the bastion; `change`: what differs on some hosts."""
    [variables] = json.loads(target.inventory.read_text(encoding="utf-8").partition("\n")[2])["all"]["hosts"].values()
    known = where / "known_hosts"
    known.write_text(Path(variables["known_hosts"]).read_text() + bastion.known_hosts.read_text(), encoding="utf-8")
    # one key opens both: the inventory's key is the bastion's, too
    key = Path(variables["identity_file"])
    mine = where / "key"
    shutil.copy(key, mine)
    with (bastion.folder / "authorized_keys").open("a", encoding="utf-8") as keys:
        keys.write(key.with_suffix(".pub").read_text() if key.with_suffix(".pub").exists() else public(mine))
    common = {
        **variables, "known_hosts": str(known), "identity_file": str(mine),
        "proxy_jump": f"root@127.0.0.1:{bastion.port}",
    }  # fmt: skip
    hosts = {name: {**common, **change.get(name, {})} for name in HOSTS}
    (where / "hosts.yaml").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    return str(where / "hosts.yaml")


def public(key: Path) -> str:
    import subprocess

    return subprocess.run(("ssh-keygen", "-y", "-f", str(key)), capture_output=True, text=True, check=True).stdout


def status(inventory: str, *words: str) -> Ran:
    return beamdeploy("status", "-i", inventory, "-o", "json", *words, timeout=300)


def dropped(bastion: Sshd) -> int:
    return (bastion.folder / "sshd.log").read_text(encoding="utf-8").count("past MaxStartups")


def test_d13_thirty_hosts_do_not_crowd_their_bastion(bastion: Sshd, target: lifetime.Running, tmp_path: Path) -> None:
    before = dropped(bastion)
    done = status(thirty(bastion, target, tmp_path, {}))
    assert (done.exit, set(done.report["hosts"])) == (0, set(HOSTS)), done.out
    assert dropped(bastion) == before


def test_d13_dropped_connections_are_tried_again(bastion: Sshd, target: lifetime.Running, tmp_path: Path) -> None:
    before = dropped(bastion)
    done = status(thirty(bastion, target, tmp_path, {}), "--forks", "30/30")
    assert (done.exit, set(done.report["hosts"])) == (0, set(HOSTS)), done.out
    assert dropped(bastion) > before


def test_d13_variant_one_host_down(bastion: Sshd, target: lifetime.Running, tmp_path: Path) -> None:
    done = status(thirty(bastion, target, tmp_path, {"gpu-17": {"port": 9}}))
    assert done.exit == 4
    outcomes = {name: host["outcome"] for name, host in done.report["hosts"].items()}
    assert outcomes == {name: "unreachable" if name == "gpu-17" else "nothing" for name in HOSTS}
    [problem] = done.report["problems"]
    assert problem["where"] == "gpu-17: connect" and "the bastion cannot reach port 9" in problem["what"]


def test_d13_variant_bastion_down(bastion: Sshd, target: lifetime.Running, tmp_path: Path) -> None:
    where = thirty(bastion, target, tmp_path, {name: {"proxy_jump": "root@127.0.0.1:9"} for name in HOSTS})
    done = status(where)
    assert (done.exit, {host["outcome"] for host in done.report["hosts"].values()}) == (4, {"unreachable"})
    assert len(done.report["hosts"]) == 30
    [problem] = done.report["problems"]
    assert problem["where"] == "bastion root@127.0.0.1:9"
    assert "nothing listens on port 9" in problem["what"] and "30 hosts are behind it" in problem["what"]
