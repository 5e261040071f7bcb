"""Group B: weights that are not what they should be, found on a real host before anything is stopped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoint
from tests.cases.intent import table
from tests.integration.command import Job, Ran, container_id
from tests.lab import LabHost

FIRST, SECOND = checkpoint.SHARDS


@pytest.fixture
def models(clean_host: LabHost) -> Path:
    """The host's folder with a complete target of two shards and a drafter."""
    shutil.rmtree(clean_host.models)
    checkpoint.target(clean_host.models / "nvfp4")
    checkpoint.drafter(clean_host.models / "dflash2")
    return clean_host.models


def blocked(ran: Ran, name: str) -> list[str]:
    """What stands in the way, remedies included; nothing was changed."""
    assert (ran.exit, ran.host(name)["outcome"]) == (3, "blocked"), ran.out
    assert ran.host(name)["plan"]["steps"] == []
    errors = [each for each in ran.report["problems"] if each["level"] == "error"]
    assert all(each["where"].startswith(name) for each in errors)
    return [f"{each['what']} | {each['remedy']}" for each in errors]


def test_a_complete_checkpoint_is_accepted(job: Job, models: Path, name: str) -> None:
    plan = job.run("plan")
    assert (plan.exit, plan.host(name)["plan"]["outcome"], plan.problems) == (0, "create", "")


def test_b01_every_lfs_pointer_is_told_in_one_run(job: Job, models: Path, clean_host: LabHost, name: str) -> None:
    files = {SECOND: checkpoint.lfs_pointer(42949672960), "tokenizer.json": checkpoint.lfs_pointer(17209920)}
    checkpoint.write(models / "nvfp4", files)
    for _ in range(2):
        said = blocked(job.run("apply"), name)
        assert [part.partition(" is a Git-LFS pointer text")[0] for part in said] == [
            f"/srv/models/beam/nvfp4/{file}" for file in files
        ]
        assert "42949672960 bytes" in said[0] and "17209920 bytes" in said[1]
        assert all("git lfs pull" in part and "header" not in part for part in said)
        assert container_id(clean_host) == ""


def test_b02_a_shard_that_only_the_index_knows_blocks_before_the_old_server_is_stopped(
    job: Job, models: Path, clean_host: LabHost, name: str
) -> None:
    assert job.run("apply").exit == 0
    before = container_id(clean_host)
    (models / "nvfp4" / SECOND).unlink()
    job.write({"engine.max_num_seqs": 4})
    for _ in range(2):
        [said] = blocked(job.run("apply"), name)
        assert f"{SECOND} is not there, but model.safetensors.index.json needs it for 2 tensors" in said
        assert container_id(clean_host) == before
        assert clean_host.docker("inspect", "--format", "{{.State.Running}}", "beam").strip() == "true"


def test_b05_a_shard_that_was_cut_is_told_with_both_sizes(job: Job, models: Path, name: str) -> None:
    whole = checkpoint.safetensors(checkpoint.SHARDS[FIRST])
    checkpoint.write(models / "nvfp4", {FIRST: whole[:-5]})
    [said] = blocked(job.run("apply"), name)
    assert f"{FIRST} has {len(whole) - 5} bytes where its header says {len(whole)}: 5 bytes short" in said


def test_b05_the_data_of_a_shard_is_not_read(job: Job, models: Path, name: str) -> None:
    """A terabyte that takes no room on disk: reading it would take minutes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}}).encode()
    for file in (FIRST, SECOND, "model.safetensors.index.json"):
        (models / "nvfp4" / file).unlink()
    with (models / "nvfp4" / "model.safetensors").open("wb") as shard:
        shard.write(len(header).to_bytes(8, "little") + header)
        shard.truncate(8 + len(header) + 2**40 - 5)
    said, *_ = blocked(job.run("plan", timeout=30), name)
    assert f"has {8 + len(header) + 2**40 - 5} bytes" in said and "5 bytes short" in said


def test_b08_links_that_leave_the_mounted_snapshot_are_refused_and_the_repository_is_offered(
    job: Job, models: Path, clean_host: LabHost, name: str
) -> None:
    repository = models / "models--org--beam"
    snapshot = repository / "snapshots" / "abc123"
    for folder in ("nvfp4", "dflash2"):
        (snapshot / folder).mkdir(parents=True)
        for file in (models / folder).iterdir():
            blob = repository / "blobs" / f"{folder}-{file.name}"
            blob.parent.mkdir(exist_ok=True)
            file.rename(blob)
            (snapshot / folder / file.name).symlink_to(f"../../../blobs/{blob.name}")
    on_host = "/srv/models/beam/models--org--beam"
    job.write_inventory(model_dir=f"{on_host}/snapshots/abc123")
    said = blocked(job.run("apply"), name)
    assert len(said) == 2  # target and drafter
    for part in said:
        assert "They open on the host, but in the container they would dangle" in part
        assert f" → {on_host}/blobs/" in part
        assert "set `model_dir` to the folder that holds both" in part and "stage real files" in part
    assert container_id(clean_host) == ""
    job.write_inventory(model_dir=on_host)
    paths = {
        "model.weights": {"path": "snapshots/abc123/nvfp4"},
        "speculative.drafter": {"path": "snapshots/abc123/dflash2"},
    }
    job.write(paths)
    assert job.run("plan").host(name)["plan"]["outcome"] == "create"


ASKED = "the recipe asks for `quantization.weights: nvfp4`, but"
FOLDER = "/srv/models/beam/nvfp4"
QUOTED = {
    "fp8-in-config": f"{ASKED} in {FOLDER} config.json says quantization_config.quant_method: fp8",
    "none-at-all": f"{ASKED} the checkpoint in {FOLDER} looks unquantised",
    "fp8-in-hf-quant": f"{ASKED} in {FOLDER} hf_quant_config.json says quantization.quant_algo: FP8",
    "contradiction": f"{ASKED} in {FOLDER} config.json says quantization_config.quant_method: fp8 "
    "and hf_quant_config.json says quantization.quant_algo: NVFP4",
    "awq": f"{ASKED} in {FOLDER} config.json says quantization_config.quant_method: awq",
}


@pytest.mark.parametrize("row", QUOTED)
def test_b11_another_quantization_is_told_with_the_file_that_says_it(
    job: Job, models: Path, name: str, row: str
) -> None:
    given: Mapping[str, Any] = table("B11")[row]
    config = {**checkpoint.CONFIG, **given["config"]}
    checkpoint.write(models / "nvfp4", {"config.json": config, "hf_quant_config.json": given["hf_quant_config"]})
    [said] = blocked(job.run("apply"), name)
    assert said.startswith(QUOTED[row])
    if row == "none-at-all":
        total = sum((models / "nvfp4" / shard).stat().st_size for shard in checkpoint.SHARDS)
        assert f"its weights take {total} bytes" in said


def test_b11_every_row_has_its_verdict() -> None:
    assert set(table("B11")) == set(QUOTED)


FIELD = "speculative.num_speculative_tokens"
WIDTHS = {"n16": None, "n17": 16, "n15": 16, "n8": 16, "n1": 16, "nested-wins": None}


def drafted(job: Job, models: Path, row: str) -> Ran:
    given = table("B14")[row]
    checkpoint.write(models / "dflash2", {"config.json": {**checkpoint.DRAFTER_CONFIG, **given.get("drafter", {})}})
    # a drafter without a source is not known by name: its width is read where it lies
    job.write({FIELD: given["tokens"], "speculative.drafter": {"path": "dflash2"}})
    return job.run("apply", "--check")


@pytest.mark.parametrize("row", WIDTHS)
def test_b14_the_number_of_draft_tokens_is_held_against_the_drafters_block(
    job: Job, models: Path, name: str, row: str
) -> None:
    ran, block = drafted(job, models, row), WIDTHS[row]
    if block is None:
        assert (ran.exit, ran.host(name)["plan"]["outcome"], ran.problems) == (0, "create", "")
        return
    [said] = blocked(ran, name)
    tokens = table("B14")[row]["tokens"]
    assert f"`{FIELD}: {tokens}` does not fit the drafter's block_size {block}: tokenspeed takes {block}" in said


def test_b14_no_draft_token_at_all_is_refused_without_a_host(job: Job, models: Path) -> None:
    """Offline there is no block size to name; the least value that fits any drafter is said."""
    ran = drafted(job, models, "n0")
    assert ran.exit == 2
    assert f"{FIELD}: at least 1 is needed, it is 0" in ran.problems


def test_b14_without_a_block_size_it_is_said_that_there_is_nothing_to_compare_with(
    job: Job, models: Path, name: str
) -> None:
    ran = drafted(job, models, "no-block-size")
    assert (ran.exit, ran.host(name)["plan"]["outcome"]) == (0, "create")
    [note] = ran.report["problems"]
    assert note["level"] == "info" and f"`{FIELD}: 12` has nothing to be compared with" in note["what"]
