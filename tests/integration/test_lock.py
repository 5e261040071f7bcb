"""`beamdeploy lock` against a real registry, a local hub, and hosts with real Docker engines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from beamdeploy.lock import load_lock
from beamdeploy.sandbox import checkpoint
from tests.hub import Hub, serve
from tests.integration.command import Job, beamdeploy
from tests.lab import Lab, LabHost

TARGET, DRAFTER = "reflection/Beam-1.0-501B-A23B-NVFP4", "reflection/Beam-1.0-501B-A23B-DFlash2"


@pytest.fixture
def job(lab: Lab, clean_host: LabHost, tmp_path: Path) -> Job:
    """The Beam recipe with a tag, on the first host of the lab."""
    made = Job(lab, (clean_host,), tmp_path)
    made.write({"image": {"reference": lab.image("beam", pinned=False)}})
    made.write_inventory()
    return made


@pytest.fixture
def hub(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with both repositories of the recipe, as HF_ENDPOINT says."""
    checkpoint.write_target(tmp_path / "hub" / TARGET)
    checkpoint.write_drafter(tmp_path / "hub" / DRAFTER)
    with serve(tmp_path / "hub", lab.network.registry) as held:
        monkeypatch.setenv("HF_ENDPOINT", held.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield held


def lock(job: Job, *words: str) -> tuple[int, str]:
    done = beamdeploy("lock", job.recipe, "--insecure-registry", job.lab.network.network, "-o", "json", *words)
    return done.exit, "\n".join(f"{each['what']} {each['remedy']}" for each in done.report["problems"])


def test_registry_and_hub_give_image_and_weights_and_a_second_lock_changes_nothing(job: Job, hub: Hub) -> None:
    assert lock(job) == (0, "")
    held = load_lock(job.recipe)
    assert held is not None
    assert (held.reference, held.digest) == (job.lab.image("beam", pinned=False), job.lab.images["beam"])
    assert {path: one.revision for path, one in held.weights.items()} == {
        "nvfp4": hub.commit(TARGET),
        "dflash2": hub.commit(DRAFTER),
    }
    files = hub.files(TARGET)
    assert {name: one.sha256 for name, one in held.weights["nvfp4"].files.items()} == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
    }
    before, asked = Path(job.folder, "beam.lock.yaml").read_text(encoding="utf-8"), len(hub.seen)
    assert lock(job) == (0, "")
    assert (Path(job.folder, "beam.lock.yaml").read_text(encoding="utf-8"), len(hub.seen)) == (before, asked)


def test_the_config_digest_is_the_image_id_on_a_host(job: Job, hub: Hub, clean_host: LabHost) -> None:
    assert lock(job)[0] == 0
    held = load_lock(job.recipe)
    assert held is not None
    clean_host.docker("pull", job.lab.image("beam"))
    ids = clean_host.docker("images", "--quiet", "--no-trunc").split()
    assert [config for _, config in held.platforms.values()] == ids


def test_check_is_10_while_the_lock_is_stale(job: Job, hub: Hub) -> None:
    assert lock(job, "--check")[0] == 10
    assert not Path(job.folder, "beam.lock.yaml").exists()
    assert lock(job)[0] == 0
    assert lock(job, "--check") == (0, "")
    job.write({"image": {"reference": job.lab.image("beam-next", pinned=False)}})
    assert lock(job, "--check")[0] == 10
    assert "it was written for" in lock(job, "--check")[1]
    assert lock(job) == (0, "")
    assert lock(job, "--check") == (0, "")


def test_upgrade_asks_again_for_what_it_names_only(job: Job, hub: Hub) -> None:
    assert lock(job)[0] == 0
    before = load_lock(job.recipe)
    (hub.folder / TARGET / "chat_template.jinja").write_text("another", encoding="utf-8")
    assert lock(job)[0] == 0 and load_lock(job.recipe) == before
    assert lock(job, "--upgrade=image")[0] == 0 and load_lock(job.recipe) == before
    assert lock(job, "--upgrade=weights", "--check")[0] == 10 and load_lock(job.recipe) == before
    assert lock(job, "--upgrade=weights")[0] == 0
    after = load_lock(job.recipe)
    assert before is not None and after is not None
    changed = {n for n, one in after.weights["nvfp4"].files.items() if one != before.weights["nvfp4"].files[n]}
    assert (changed, after.digest) == ({"chat_template.jinja"}, before.digest)


def test_nothing_is_written_when_one_of_the_two_refuses_and_both_are_told(job: Job, hub: Hub) -> None:
    hub.refusal = (403, "GatedRepo")
    job.write({"image": {"reference": f"{job.lab.registry}/no/such:tag"}})
    exit, said = lock(job)
    assert exit == 1
    assert f"the registry has no {job.lab.registry}/no/such:tag" in said and said.count("is gated") == 2
    assert not Path(job.folder, "beam.lock.yaml").exists()


def test_a_host_that_is_known_to_be_good_gives_the_same_lock(job: Job, hub: Hub, clean_host: LabHost) -> None:
    assert lock(job)[0] == 0
    theirs = load_lock(job.recipe)
    Path(job.folder, "beam.lock.yaml").unlink()
    assert job.run("lock", "--from", clean_host.name).exit == 0
    held = load_lock(job.recipe)
    assert theirs is not None and held is not None
    assert held.digest == theirs.digest
    assert {p: f.files for p, f in held.weights.items()} == {p: f.files for p, f in theirs.weights.items()}
    assert lock(job, "--check") == (0, "")


def test_a_host_that_is_not_in_the_inventory_is_said(job: Job) -> None:
    done = job.run("lock", "--from", "nosuch")
    assert (done.exit, "no host is called 'nosuch'" in done.problems) == (2, True)


def test_hosts_that_are_named_and_not_asked_are_bad_input(job: Job) -> None:
    for words in (("-i", job.inventory), ("-l", "gpu-a"), ("--check", "-i", job.inventory)):
        done = beamdeploy("lock", job.recipe, "-o", "json", *words)
        assert (done.exit, "--from HOST" in done.problems) == (2, True), done.problems
    assert not (job.folder / "beam.lock.yaml").exists()


def test_the_token_is_in_no_output_and_no_file(job: Job, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_" + "s3cret" * 5
    monkeypatch.setenv("HF_TOKEN", hub.token)
    done = beamdeploy("lock", job.recipe, "--insecure-registry", job.lab.network.network)
    assert done.exit == 0, done.err
    held = Path(job.folder, "beam.lock.yaml").read_text(encoding="utf-8")
    assert hub.token not in done.out + done.err + held
    assert yaml.safe_load(held)["weights"]["nvfp4"]["revision"] == hub.commit(TARGET)
