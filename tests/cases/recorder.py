"""The text that is sent over SSH, run by a shell in which `docker` is a program that records its arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from beamdeploy.remote.words import after_mark, command_line

SHELLS = ("dash", "bash", "tcsh", "fish")
PWNED = Path("/tmp/beamdeploy-pwned")


def sent(shell: str, words: Sequence[str], folder: Path) -> tuple[str, ...]:
    """What docker gets when the login shell runs what is sent for these words; the words' own name comes first."""
    return recorded(shell, command_line(words), folder)


def recorded(shell: str, text: str, folder: Path) -> tuple[str, ...]:
    """What docker gets when the shell runs this text. Nothing that the text names may have run but docker."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    folder.mkdir(exist_ok=True)
    recorder = folder / "docker"
    recorder.write_text("#!/bin/sh\nprintf '%s\\0' docker \"$@\"\n", encoding="utf-8")
    recorder.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    ran = subprocess.run([shell, "-c", text], cwd=folder, env=env, capture_output=True, check=True)
    assert not PWNED.exists()
    out = after_mark(ran.stdout)
    return tuple((ran.stdout if out is None else out).decode().split("\0")[:-1])
