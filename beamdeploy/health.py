"""What a running deployment can do now: the GPUs that its container sees, and one completion within a deadline."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beamdeploy.apikey import key
from beamdeploy.diagnose import explain
from beamdeploy.endpoint import Answer, ask
from beamdeploy.errors import Problem
from beamdeploy.look.facts import Gpus
from beamdeploy.remote import Session

DEADLINE = 60.0
_EXEC_SECONDS = 30
_TOKENS = 16


@dataclass(frozen=True)
class Inside:
    """`gpus`: how many the container sees; None: its image has no nvidia-smi to ask. `problem`: it lost them."""

    gpus: int | None
    problem: Problem | None = None


@dataclass(frozen=True)
class Answered:
    """`seconds` that a small completion took; None: there was none, and `problem` says why."""

    seconds: float | None
    problem: Problem | None = None


def gpus_inside(session: Session, docker: Sequence[str], container: str, host: Gpus | None) -> Inside:
    """Ask nvidia-smi in the container. Not read-only as the look is: it starts a process there.

    A reload of systemd on the host takes the GPUs from running containers, which go on answering what needs no GPU:
    https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    """
    result = session.run((*docker, "exec", container, "nvidia-smi", "-L"), timeout=_EXEC_SECONDS)
    if result.ok:
        return Inside(sum(1 for line in result.out.splitlines() if line.startswith("GPU ")))
    said = f"{result.out}\n{result.err}".strip()
    if result.exit == 124:
        what = f"nvidia-smi in the container gave no answer within {_EXEC_SECONDS} s"
        return Inside(0, Problem(what, "A GPU or its driver hangs: see `dmesg` on the host (Xid)."))
    if "Failed to initialize NVML" in said and host is not None and host.gpus:
        return Inside(0, _lost(said, len(host.gpus)))
    if "NVML" in said or "No devices were found" in said:
        return Inside(0, Problem(f"the container sees no GPU: {said[:200]}", "See `nvidia-smi` on the host."))
    return Inside(None)


def completion(session: Session, recipe: Mapping[str, Any], deadline: float = DEADLINE) -> Answered:
    """One small completion with the recipe's values, as the server's labels or a file have them."""
    address, _, port = str(recipe["container"]["publish"]).rpartition(":")
    question = {"role": "user", "content": "Say hello in one short sentence."}
    values = {**recipe.get("request", {}), "max_tokens": _TOKENS}
    body = {"model": recipe["model"]["served_name"], "messages": [question], **values}
    needed = key(session, recipe)
    started = time.monotonic()
    answer = ask(session, address, int(port), "/v1/chat/completions", body=body, timeout=deadline, key=needed)
    if answer.status == 200 and '"choices"' in answer.body:
        return Answered(round(time.monotonic() - started, 3))
    return Answered(None, _silent(answer, deadline))


def _lost(said: str, count: int) -> Problem:
    found = explain(said)
    assert found is not None  # the text is that of a signature
    return Problem(f'{found.cause}; the host still has {count} (container: "{found.evidence}")', found.remedy)


def _silent(answer: Answer, deadline: float) -> Problem:
    if answer.status is None:
        what = f"a small completion got no answer within {deadline:g} s: {answer.reason}"
        return Problem(what, "The front lives and the engine does not: see beamdeploy logs, then start it again.")
    what = f"a small completion was refused: HTTP {answer.status}: {answer.body[:200]}"
    return Problem(what, "See beamdeploy logs.")
