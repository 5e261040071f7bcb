"""`--forks`: every command that works on several hosts has it, and has no more of them at a time than it says."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from beamdeploy.cli import main
from beamdeploy.cli.table import names
from tests.integration.command import BEAM, beamdeploy

HOSTS = 5
ONE_HOST = {"render", "lock", "tunnel", "chat", "client", "bench"}
"""They ask one host, or none."""
RECIPE = str(BEAM)
WORDS: Mapping[str, tuple[str, ...]] = {
    "apply": (RECIPE, "--unpinned"),
    "destroy": ("beam", "-y"),
    "doctor": ("beam",),
    "drift": (RECIPE,),
    "fit": (RECIPE,),
    "history": ("beam",),
    "logs": ("beam",),
    "plan": (RECIPE, "--unpinned"),
    "preflight": (RECIPE,),
    "prune": ("-y",),
    "rollback": ("beam", "-y"),
    "smoke": ("beam",),
    "stage": (RECIPE, "--image"),
    "status": (),
    "top": (),
    "verify": (RECIPE,),
}


class Door:
    """A port that lets nobody in: it keeps callers until `hoped` are there at once, and counts them."""

    def __init__(self, hoped: int) -> None:
        self.hoped = hoped
        self.most = self.calls = self._now = 0
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            threading.Thread(target=self._keep, args=(caller,), daemon=True).start()

    def _keep(self, caller: socket.socket) -> None:
        with self._changed:
            self.calls += 1
            self._now += 1
            self.most = max(self.most, self._now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self.hoped, timeout=10)
        time.sleep(0.15)  # for one too many to show itself
        with self._changed:
            self._now -= 1
        # a version that no client takes, so that none tries again
        with caller, suppress(OSError):
            caller.sendall(b"SSH-1.5-door\r\n")


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door(2)
    yield made
    made.close()


def inventory(folder: Path, door: Door) -> str:
    hosts = {
        f"gpu-{number}": {"address": "127.0.0.1", "port": door.port, "user": "root", "model_dir": "/srv"}
        for number in range(HOSTS)
    }
    path = folder / "hosts.yaml"
    path.write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    return str(path)


def options_of(name: str) -> set[str]:
    command = main.get_command(main.make_context("beamdeploy", [name]), name)
    assert command is not None
    return {word for parameter in command.params for word in parameter.opts}


def test_each_command_that_takes_hosts_has_it_or_asks_one_host_alone() -> None:
    takes = {name for name in names() if "--inventory" in options_of(name)}
    assert takes == {*WORDS, *ONE_HOST}
    assert {name for name in takes if "--forks" in options_of(name)} == set(WORDS)


@pytest.mark.parametrize(
    ("command", "more"), [*((name, ()) for name in WORDS), ("logs", ("-f",)), ("status", ("--deep",))]
)
def test_no_more_hosts_at_a_time_than_it_says(command: str, more: tuple[str, ...], door: Door, tmp_path: Path) -> None:
    done = beamdeploy(command, *WORDS[command], *more, "-i", inventory(tmp_path, door), "--forks", "2")
    assert (done.exit, door.calls, door.most) == (4, HOSTS, 2), done.err


def test_weights_are_staged_on_no_more_hosts_at_a_time_than_it_says(door: Door, tmp_path: Path) -> None:
    for folder in ("nvfp4", "dflash2"):
        (tmp_path / "weights" / folder).mkdir(parents=True)
        (tmp_path / "weights" / folder / "config.json").write_text("{}", encoding="utf-8")
    words = ("stage", RECIPE, "--from", str(tmp_path / "weights"), "-i", inventory(tmp_path, door), "--forks", "2")
    done = beamdeploy(*words)
    assert (done.exit, door.calls, door.most) == (4, HOSTS, 2), done.err


def test_without_it_all_of_a_few_hosts_are_asked_at_once(door: Door, tmp_path: Path) -> None:
    door.hoped = HOSTS
    done = beamdeploy("status", "-i", inventory(tmp_path, door))
    assert (done.exit, door.calls, door.most) == (4, HOSTS, HOSTS), done.err


@pytest.mark.parametrize("given", ["0", "x", "4/", "4/0", "-1"])
def test_what_is_no_number_of_hosts_is_refused(given: str) -> None:
    done = beamdeploy("smoke", "beam", "--forks", given)
    assert (done.exit, "is not a number of hosts" in done.err) == (2, True), done.err
