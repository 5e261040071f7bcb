"""What was recorded of a real server on a real GPU: parsers and the doctor read it as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from beamdeploy.diagnose import explain
from beamdeploy.gpu_access import CONTROL_NODES
from beamdeploy.look.parse import parse
from beamdeploy.preflight.memory import foreign_mib, strangers

SNAPSHOT = f"hub/models--beamdeploy--random-qwen3/snapshots/{'0' * 39}1"
OURS = "c0ffee" + "0" * 58
REAL = Path(__file__).parent / "data" / "real"


def log(name: str) -> str:
    return (REAL / f"{name}.log").read_text("utf-8")


@pytest.mark.parametrize("engine", ["openai", None])
def test_a_flag_that_the_server_does_not_know_is_named(engine: str | None) -> None:
    found = explain(log("wrong-flag"), engine, 2)
    assert found is not None
    assert (found.id, found.confidence, found.line) == ("option-unknown", "high", 4)
    assert "--no-such-flag" in found.cause and found.evidence == "Error: No such option '--no-such-flag'."
    assert "engine.command" in found.remedy or engine is None


@pytest.mark.parametrize("engine", ["openai", None])
def test_a_gpu_without_memory_is_the_cause_below_a_long_traceback(engine: str | None) -> None:
    found = explain(log("out-of-memory"), engine, 1)
    assert found is not None
    assert (found.id, found.confidence) == ("cuda-oom", "high")
    assert found.evidence.startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.88 GiB.")


@pytest.mark.parametrize("engine", ["openai", None])
def test_a_server_that_served_has_no_cause(engine: str | None) -> None:
    assert explain(log("healthy"), engine) is None


@pytest.mark.parametrize(
    "line",
    [
        "Error: No such option: --no-such-flag",
        "error: unexpected argument '--no-such-flag' found",
        "flag provided but not defined: --no-such-flag",
        "error: invalid argument: --no-such-flag",
    ],
)
def test_other_programs_say_the_same_in_their_own_words(line: str) -> None:
    found = explain(f"usage: server\n{line}\n", "openai", 2)
    assert found is not None and (found.id, "--no-such-flag" in found.cause) == ("option-unknown", True)


def test_the_answers_of_a_real_host_beside_a_stranger_are_read_as_they_came() -> None:
    found = parse((REAL / "look.txt").read_text("utf-8"), "real", folder_names=(SNAPSHOT,))
    assert found.gpus is not None and found.gpus.driver == "580.159.04" and found.gpus.cuda == "13.0"
    (gpu,) = found.gpus.gpus
    assert (gpu.name, gpu.memory_total_mib, gpu.memory_used_mib, gpu.compute_capability, gpu.mig, gpu.fabric) == (
        "NVIDIA H200", 143771, 142091, "9.0", False, "",
    )  # fmt: skip
    assert [(each.pid, each.memory_mib, each.container) for each in found.gpus.processes] == [
        (6949, 139418, ""),
        (8413, 2658, OURS),
    ]
    assert foreign_mib(gpu, found.gpus, frozenset({OURS})) == 139418
    assert strangers(found, frozenset({OURS})) == {0: 139418}
    assert {"/dev/nvidia0", *CONTROL_NODES} <= found.system.there


def test_the_staged_files_of_the_real_run_are_whole_and_as_large_as_they_were_on_the_gpu() -> None:
    weights = parse((REAL / "look.txt").read_text("utf-8"), "real", folder_names=(SNAPSHOT,)).weights[SNAPSHOT]
    assert weights is not None
    taken = sum(shard.tensor_bytes or 0 for shard in weights.shards)
    # torch held 2,017,649,664 bytes for them on the GPU
    assert (len(weights.shards), taken, weights.total) == (5, 2_016_860_160, 2_016_860_160)
    assert abs(taken / 2_017_649_664 - 1) < 0.05
