"""Locks: what they hold, when they are stale, and how they read in a review."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

import pytest

from beamdeploy.errors import InputError
from beamdeploy.lock import Lock, LockedFile, LockedFolder, load_lock, locked, stale, text_of, write_lock
from beamdeploy.pin import Wish, kept_of
from beamdeploy.recipe import Recipe, load_recipe

BEAM = Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml"
DIGEST, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
TARGET = LockedFolder(
    "hf://reflection/Beam-1.0-501B-A23B-NVFP4",
    "1" * 40,
    {f"model-{n:05}-of-00003.safetensors": LockedFile(n * 1000, f"{n}" * 64) for n in (1, 2, 3)}
    | {"config.json": LockedFile(7, "a" * 64), "sub/ä b.json": LockedFile(0, "0" * 64), "1e5": LockedFile(1, "1" * 64)},
)
DRAFTER = LockedFolder("hf://reflection/Beam-1.0-501B-A23B-DFlash2", None, {"config.json": LockedFile(1, "b" * 64)})
PLATFORMS = {"linux/amd64": (OTHER, DIGEST), "linux/arm64/v8": (None, OTHER)}


def recipe() -> Recipe:
    return load_recipe(str(BEAM))


def lock(file: str = "beam.lock.yaml") -> Lock:
    weights = {"nvfp4": TARGET, "dflash2": DRAFTER}
    return Lock(file, "lightseekorg/tokenspeed:beam", DIGEST, PLATFORMS, weights)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    file = str(tmp_path / "beam.lock.yaml")
    for held in (lock(file), replace(lock(file), weights={}), replace(lock(file), reference=None, digest=None)):
        held = replace(held, platforms=PLATFORMS if held.reference else {})
        write_lock(held)
        assert load_lock(str(tmp_path / "beam.yaml")) == held
    assert [path.name for path in tmp_path.iterdir()] == ["beam.lock.yaml"]


def test_a_large_lock_is_written_and_read(tmp_path: Path) -> None:
    files = {f"model-{n:05}-of-02000.safetensors": LockedFile(n, f"{n:064x}") for n in range(2000)}
    held = replace(lock(str(tmp_path / "a.lock.yaml")), weights={"nvfp4": replace(TARGET, files=files)})
    write_lock(held)
    assert load_lock(str(tmp_path / "a.yaml")) == held


def test_one_changed_file_is_one_changed_line_in_a_review() -> None:
    changed = dict(TARGET.files) | {"model-00002-of-00003.safetensors": LockedFile(2000, "c" * 64)}
    after = replace(lock(), weights={"nvfp4": replace(TARGET, files=changed), "dflash2": DRAFTER})
    lines = difflib.unified_diff(text_of(lock()).splitlines(), text_of(after).splitlines(), lineterm="", n=0)
    assert [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")] == [
        f'-      model-00002-of-00003.safetensors: {{size: 2000, sha256: "{"2" * 64}"}}',
        f'+      model-00002-of-00003.safetensors: {{size: 2000, sha256: "{"c" * 64}"}}',
    ]


def test_the_first_form_of_locks_is_still_read(tmp_path: Path) -> None:
    text = f"apiVersion: beamdeploy/v1\nkind: Lock\nimage:\n  reference: a/b:c\n  digest: {DIGEST}\n"
    (tmp_path / "r.lock.yaml").write_text(text, encoding="utf-8")
    assert load_lock(str(tmp_path / "r.yaml")) == Lock(str(tmp_path / "r.lock.yaml"), "a/b:c", DIGEST)


@pytest.mark.parametrize(
    "name", ["../up.json", "/etc/passwd", "a/../../b", "..", "a/..", "./a", "with\\nbreak"], ids=repr
)
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    head = "apiVersion: beamdeploy/v1\nkind: Lock\nweights:\n  w:\n    files:\n"
    text = f'{head}      "{name}": {{size: 1, sha256: "{"a" * 64}"}}\n'
    (tmp_path / "r.lock.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load_lock(str(tmp_path / "r.yaml"))
    assert refused.value.problems[0].line == 6


def test_a_lock_that_fits_is_not_stale() -> None:
    assert stale(recipe(), lock()) == ()


def test_every_way_in_which_a_lock_does_not_fit_is_told() -> None:
    weights = {"nvfp4": replace(TARGET, source="hf://other/x"), "old": DRAFTER}
    held = replace(lock(), reference="lightseekorg/tokenspeed:beta", weights=weights)
    assert [problem.what for problem in stale(recipe(), held)] == [
        "the lock is stale: it was written for lightseekorg/tokenspeed:beta, the recipe names "
        "lightseekorg/tokenspeed:beam",
        "the lock is stale: nvfp4 was locked from hf://other/x, the recipe says "
        "hf://reflection/Beam-1.0-501B-A23B-NVFP4",
        "the lock is stale: it lacks dflash2",
        "the lock is stale: it holds old, which the recipe does not name",
    ]


def test_a_lock_of_weights_alone_leaves_the_image_as_it_is() -> None:
    held = replace(lock(), reference=None, digest=None)
    assert locked(recipe().image, held) == recipe().image
    assert locked(recipe().image, lock()).digest == DIGEST


def test_only_what_is_wished_or_no_longer_fits_is_asked_again() -> None:
    held = replace(lock(), file=kept_of(recipe(), None, Wish()).file)
    assert kept_of(recipe(), held, Wish()) == held
    assert kept_of(recipe(), held, Wish(image=True)) == replace(held, reference=None, digest=None, platforms={})
    assert kept_of(recipe(), held, Wish(weights=True)) == replace(held, weights={})
    moved = replace(held, weights={"nvfp4": replace(TARGET, source="hf://other/x"), "dflash2": DRAFTER, "old": DRAFTER})
    assert kept_of(recipe(), moved, Wish()) == replace(held, weights={"dflash2": DRAFTER})
