"""The two engines that every story is told to."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from beamdeploy.sandbox import lifetime
from tests.lab import Lab, LabHost


@dataclass(frozen=True)
class Answer:
    """What a call printed and how it ended."""

    exit: int
    out: str
    err: str


@dataclass(frozen=True)
class Engine:
    """A docker to ask. `repository` holds the stand-in's image; `weights` are complete, as docker sees them."""

    docker: tuple[str, ...]
    repository: str
    weights: str

    def ask(self, words: Sequence[str]) -> Answer:
        done = subprocess.run(
            (*self.docker, *words), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False
        )
        return Answer(done.returncode, done.stdout, done.stderr)


Emulation = Callable[[str], Engine]


@pytest.fixture
def emulated(tmp_path: Path) -> Iterator[Emulation]:
    """The sandbox's docker, with an image of that repository to pull."""
    folder = tmp_path / "sandbox"
    lifetime.up("4xb300", folder)
    yield lambda repository: Engine((str(folder / "bin" / "docker"),), repository, str(folder / "models"))
    lifetime.down(folder)


@pytest.fixture
def real(lab: Lab, clean_host: LabHost) -> Engine:
    """The real Docker engine of a lab host."""
    docker = ("docker", "--host", f"unix://{clean_host.docker_socket}")
    return Engine(docker, lab.image(pinned=False).rpartition(":")[0], clean_host.model_dir)
