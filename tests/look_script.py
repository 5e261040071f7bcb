"""Runs the look's script by a shell on this machine, for tests that want facts of real files."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from beamdeploy.look import Question, script, words
from beamdeploy.look.facts import Facts, Weights
from beamdeploy.look.parse import parse

NONCE = "feed"


def run(
    question: Question,
    *,
    shell: Sequence[str] = ("/bin/sh",),
    env: Mapping[str, str] | None = None,
    text: str | None = None,
) -> Facts:
    done = subprocess.run(
        [*shell, "-c", text or script(), "script", *words(question, NONCE)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=env,
        check=True,
    )
    assert done.stderr == b""
    return parse(done.stdout.decode(errors="replace"), NONCE, question.docker, question.folders, question.ports)


def weights(model_dir: Path, folder: str, *, shell: Sequence[str] = ("/bin/sh",)) -> Weights | None:
    question = Question(model_dir=str(model_dir), folders=(folder,), docker=(), need_gpus=False)
    return run(question, shell=shell).weights[folder]
