"""Damage on a checkpoint of 64 shards: every kind is found, and nothing healthy raises an alarm. Real files and sh."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from beamdeploy.inventory import Host
from beamdeploy.lock import Lock, LockedFile, LockedFolder
from beamdeploy.outcome import HostReport
from beamdeploy.recipe import Recipe, load_recipe
from beamdeploy.remote import Session, open_session
from beamdeploy.render import Spec, render
from beamdeploy.sandbox import checkpoint
from beamdeploy.verify import Depth, Reference, reference_of, verify_host
from beamdeploy.weights.hashing import hash_folders, script
from beamdeploy.weights.listing import is_read
from beamdeploy.weights.parts import part
from beamdeploy.weights.staging import human
from tests.checkpoint import lfs_pointer

BEAM = Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml"
SHARDS = 64
ASKED = "the recipe asks for `quantization.weights: nvfp4`"
SEVEN, EIGHT = (f"model-{number:05}-of-{SHARDS:05}.safetensors" for number in (7, 8))
INDEX = "model.safetensors.index.json"


def write(model_dir: Path, shards: int = SHARDS) -> None:
    checkpoint.write_target(model_dir / "nvfp4", shards=shards)
    checkpoint.write_drafter(model_dir / "dflash2")


def recipe() -> Recipe:
    return load_recipe(str(BEAM))


def locked(model_dir: Path) -> dict[str, LockedFolder]:
    """What `lock --from` would write of these folders."""
    sources = {"nvfp4": recipe().model.weights.source, "dflash2": "hf://reflection/Beam-1.0-501B-A23B-DFlash2"}
    return {path: LockedFolder(source, None, files_of(model_dir / path)) for path, source in sources.items()}


def files_of(folder: Path) -> dict[str, LockedFile]:
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {
        name: LockedFile(len(content), hashlib.sha256(content).hexdigest())
        for name, content in sorted(contents.items())
        if is_read(name)
    }


def spec(model_dir: Path, weights: dict[str, LockedFolder] | None) -> Spec:
    host = Host("gpu-a", connection="local", model_dir=str(model_dir), state_dir=str(model_dir.parent / "state"))
    return render(recipe(), host, Lock("x.lock.yaml", weights=weights) if weights is not None else None)


def verify(session: Session, wanted: Spec, depth: Depth) -> HostReport:
    reference = reference_of(wanted.recipe, wanted.weights, ask_hub=False)
    return verify_host(session, wanted, reference, depth, lambda phase, detail: None)


def errors(report: HostReport) -> list[str]:
    return [problem.what for problem in report.problems if problem.level == "error"]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with open_session(Host("gpu-a", connection="local")) as opened:
        yield opened


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write(tmp_path / "models")
    return tmp_path / "models"


def truncate(folder: Path) -> None:
    (folder / SEVEN).write_bytes((folder / SEVEN).read_bytes()[:-5])


def swap(folder: Path) -> None:
    seven, eight = (folder / SEVEN).read_bytes(), (folder / EIGHT).read_bytes()
    (folder / SEVEN).write_bytes(eight)
    (folder / EIGHT).write_bytes(seven)


def flip(folder: Path) -> None:
    content = bytearray((folder / SEVEN).read_bytes())
    content[-3] ^= 1
    (folder / SEVEN).write_bytes(content)


def pointer(folder: Path) -> None:
    (folder / SEVEN).write_text(lfs_pointer(5_000_000_000), encoding="utf-8")


def missing(folder: Path) -> None:
    (folder / SEVEN).unlink()


def extra(folder: Path) -> None:
    shutil.copy(folder / SEVEN, folder / "consolidated.safetensors")


def code(folder: Path) -> None:
    (folder / "modeling_beam.py").write_text("import os", encoding="utf-8")


def dangling(folder: Path) -> None:
    (folder / SEVEN).unlink()
    (folder / SEVEN).symlink_to("nowhere.safetensors")


def outward(folder: Path) -> None:
    (folder.parent.parent / "blobs").mkdir()
    (folder / SEVEN).rename(folder.parent.parent / "blobs" / "a")
    (folder / SEVEN).symlink_to("../../blobs/a")


def other_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 1.0}), encoding="utf-8")


def other_tokenizer(folder: Path) -> None:
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(text.replace("BPE", "BPF"), encoding="utf-8")


def cut_index(folder: Path) -> None:
    (folder / INDEX).write_text((folder / INDEX).read_text(encoding="utf-8")[:-40], encoding="utf-8")


def garbage(folder: Path) -> None:
    (folder / SEVEN).write_bytes(b"\xff" * (folder / SEVEN).stat().st_size)


def empty(folder: Path) -> None:
    (folder / SEVEN).write_bytes(b"")


def wrong_drafter(folder: Path) -> None:
    other = folder.parent / "dflash2" / "config.json"
    config = json.loads(other.read_text(encoding="utf-8"))
    other.write_text(json.dumps(config | {"block_size": 8}), encoding="utf-8")


def other_drafter(folder: Path) -> None:
    path = next((folder.parent / "dflash2").glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def unfinished(folder: Path) -> None:
    missing(folder)
    leftover(folder)


def config_of(**values: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | values), encoding="utf-8")

    damage.__name__ = "_".join(values)
    return damage


def no_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


DAMAGE: dict[Callable[[Path], None], tuple[str, str]] = {
    # what is done → (where the quick check says so, where the deep one does); "" where it cannot be seen
    truncate: (SEVEN, SEVEN),
    swap: (SEVEN, SEVEN),
    flip: ("", SEVEN),
    pointer: (SEVEN, SEVEN),
    missing: (SEVEN, SEVEN),
    extra: ("consolidated.safetensors", "consolidated.safetensors"),
    code: ("modeling_beam.py", "modeling_beam.py"),
    dangling: (SEVEN, SEVEN),
    outward: (SEVEN, SEVEN),
    other_config: ("config.json", "config.json"),
    other_tokenizer: ("", "tokenizer.json"),
    cut_index: (INDEX, INDEX),
    garbage: (SEVEN, SEVEN),
    empty: (SEVEN, SEVEN),
    wrong_drafter: ("block_size 8", "block_size 8"),
    other_drafter: ("", "dflash2"),
    unfinished: ("Its download was not finished", "Its download was not finished"),
    config_of(quantization_config={"quant_method": "fp8"}): (ASKED, ASKED),
    config_of(num_attention_heads=30): ("30 attention heads", "30 attention heads"),
    config_of(max_position_embeddings=65536): ("is longer than", "is longer than"),
    no_template: ("chat_template.jinja", "chat_template.jinja"),
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_every_damage_is_found(session: Session, models: Path, damage: Callable[[Path], None]) -> None:
    weights = locked(models)
    damage(models / "nvfp4")
    for depth, told in zip((Depth(), Depth(deep=True)), DAMAGE[damage], strict=True):
        report = verify(session, spec(models, weights), depth)
        found = errors(report)
        assert report.exit == (3 if told else 0), found
        assert any(told in what for what in found) or not told


def test_a_swap_of_two_shards_is_named_as_one(session: Session, models: Path) -> None:
    weights = locked(models)
    swap(models / "nvfp4")
    found = errors(verify(session, spec(models, weights), Depth(deep=True)))
    assert any(
        f"{SEVEN} has the right size and other content than the lock says: it holds what {EIGHT} should" in each
        for each in found
    )


def healthy(folder: Path) -> None:
    pass


def with_card(folder: Path) -> None:
    (folder / "README.md").write_text("x", encoding="utf-8")
    (folder / ".gitattributes").write_text("x", encoding="utf-8")
    (folder / "LICENSE").write_text("x", encoding="utf-8")


def downloaded(folder: Path) -> None:
    held = folder / ".cache" / "huggingface" / "download"
    held.mkdir(parents=True)
    (held / f"{SEVEN}.lock").write_bytes(b"")
    (held / f"{SEVEN}.metadata").write_text("commit\netag\n1.0\n", encoding="utf-8")


def leftover(folder: Path) -> None:
    downloaded(folder)
    (folder / ".cache/huggingface/download" / f"{SEVEN}.8f3c.incomplete").write_bytes(b"x" * 77)


def linked_inside(folder: Path) -> None:
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    for path in list(folder.iterdir()):
        path.rename(blobs / path.name)
        path.symlink_to(f"../blobs/{path.name}")


def own_template(folder: Path) -> None:
    (folder / "my_template.jinja").write_text("x", encoding="utf-8")


@pytest.mark.parametrize(
    "variant", [healthy, with_card, downloaded, leftover, linked_inside, own_template], ids=lambda each: each.__name__
)
def test_no_healthy_variant_raises_an_alarm(session: Session, models: Path, variant: Callable[[Path], None]) -> None:
    weights = locked(models)
    variant(models / "nvfp4")
    for depth in (Depth(), Depth(deep=True)):
        for wanted in (weights, None):
            report = verify(session, spec(models, wanted), depth)
            assert (report.exit, errors(report)) == (0, [])


def test_each_finding_is_told_once(session: Session, models: Path) -> None:
    weights = locked(models)
    missing(models / "nvfp4")
    for depth in (Depth(), Depth(deep=True)):
        assert len([what for what in errors(verify(session, spec(models, weights), depth)) if SEVEN in what]) == 1


def test_what_has_not_changed_is_not_read_again(session: Session, models: Path) -> None:
    wanted = spec(models, locked(models))
    time.sleep(3)

    def remembered(depth: Depth = Depth(deep=True)) -> list[object]:  # noqa: B008  # frozen
        report = verify(session, wanted, depth)
        assert report.exit == 0, errors(report)
        folders = report.details["folders"]
        assert isinstance(folders, dict)
        return [folder["bytes"] - folder["remembered_bytes"] for folder in folders.values()]

    total = [sum(one.size for one in folder.files.values()) for folder in wanted.weights.values()]
    assert remembered() == total
    assert remembered() == [0, 0]
    assert remembered(Depth(deep=True, always=True)) == total
    size = (models / "nvfp4" / SEVEN).stat().st_size
    os.utime(models / "nvfp4" / SEVEN)
    assert remembered() == [size, 0]


def test_what_was_hashed_while_it_arrived_is_not_read_again(session: Session, models: Path) -> None:
    large = models / "nvfp4" / "large.bin"
    large.write_bytes(os.urandom(1 << 24))
    state = models.parent / "state"
    for size in (1 << 24, 5):
        part(session, "summing", f"{state}/stage/x", str(large.parent), stdin=f"9 {size} large.bin\n".encode())
    host = Host("gpu-a", connection="local", model_dir=str(models), state_dir=str(state))
    hashes = hash_folders(session, host, ("nvfp4",), lambda phase, detail: None).folders["nvfp4"]
    assert hashes is not None
    assert (hashes.remembered, hashes.files["large.bin"]) == (1 << 24, files_of(large.parent)["large.bin"])
    with large.open("r+b") as file:
        file.write(b"other")
    again = hash_folders(session, host, ("nvfp4",), lambda phase, detail: None).folders["nvfp4"]
    assert again is not None
    assert again.files["large.bin"] == files_of(large.parent)["large.bin"] != hashes.files["large.bin"]


def progress_of(session: Session, host: Host) -> list[str]:
    said: list[str] = []
    hash_folders(session, host, ("nvfp4",), lambda phase, detail: said.append(detail))
    return said


def test_the_total_of_the_progress_stays_the_same(session: Session, models: Path) -> None:
    for number in range(4):
        (models / "nvfp4" / f"more-{number}.bin").write_bytes(os.urandom(1 << 20))
        os.utime(models / "nvfp4" / f"more-{number}.bin", (1, 1))
    size = sum(file.stat().st_size for file in (models / "nvfp4").iterdir())
    host = Host("gpu-a", connection="local", model_dir=str(models), state_dir=str(models.parent / "state"))
    time.sleep(2.1)  # what has changed within two seconds is not remembered
    for _ in ("hashed", "remembered"):
        said = progress_of(session, host)
        totals = {text.split(" of ")[1].split(",")[0] for text in said}
        assert totals == {human(size)} and said[-1].startswith(f"{human(size)} of"), said


def test_a_change_that_keeps_size_and_time_is_still_read(session: Session, models: Path) -> None:
    wanted = spec(models, locked(models))
    time.sleep(3)
    assert verify(session, wanted, Depth(deep=True)).exit == 0
    before = (models / "nvfp4" / SEVEN).stat()
    flip(models / "nvfp4")
    os.utime(models / "nvfp4" / SEVEN, ns=(before.st_atime_ns, before.st_mtime_ns))
    report = verify(session, wanted, Depth(deep=True))
    assert (report.exit, any(SEVEN in what for what in errors(report))) == (3, True)


def test_hashes_are_reported_without_a_verdict_when_there_is_nothing_to_compare(session: Session, models: Path) -> None:
    report = verify(session, spec(models, None), Depth(deep=True))
    folders = report.details["folders"]
    assert isinstance(folders, dict)
    assert folders["dflash2"]["sha256"] == {n: one.sha256 for n, one in files_of(models / "dflash2").items()}
    assert [problem.rule for problem in report.problems] == ["BD227", "BD227"]
    assert (report.exit, "compared with nothing" in report.summary) == (0, True)


def test_what_the_hub_says_is_compared_when_there_is_no_lock(session: Session, models: Path) -> None:
    flip(models / "nvfp4")
    wanted = spec(models, None)
    write(models.parent / "good")
    folders = locked(models.parent / "good")
    reference = Reference(folders, dict.fromkeys(folders, "the hub"))
    report = verify_host(session, wanted, reference, Depth(deep=True), lambda phase, detail: None)
    assert (report.exit, any("other content than the hub says" in what for what in errors(report))) == (3, True)


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox", "busybox-tools"])
def test_every_shell_and_busybox_alone_hash_the_same(models: Path, tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell.partition("-")[0])
    if program is None:
        pytest.skip(f"there is no {shell}")
    words, env = [program, *(["sh"] if shell == "busybox" else [])], dict(os.environ)
    if shell == "busybox-tools":
        (tmp_path / "bin").mkdir()
        for name in subprocess.run((program, "--list"), capture_output=True, text=True, check=True).stdout.split():
            (tmp_path / "bin" / name).symlink_to(program)
        words, env = [str(tmp_path / "bin" / "sh")], {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    args = ("deep", "n", str(tmp_path / "state"), "always", "2", "1", str(models / "nvfp4"))
    done = subprocess.run((*words, "-c", script(), *args), capture_output=True, text=True, env=env, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("@@n H")]
    expected = {str(models / "nvfp4" / name): one.sha256 for name, one in files_of(models / "nvfp4").items()}
    assert ({path: sum for _, sum, path in lines}, done.stderr) == (expected, "")


def test_progress_says_bytes(session: Session, models: Path) -> None:
    said: list[str] = []
    wanted = spec(models, None)
    verify_host(session, wanted, Reference(), Depth(deep=True), lambda phase, detail: said.append(f"{phase} {detail}"))
    total = sum(one.size for path in ("nvfp4", "dflash2") for one in files_of(models / path).values())
    assert len(said) > SHARDS
    assert said[-1].startswith("hash ") and f"of {total / 1024:.1f} KiB" in said[-1]


def test_a_state_folder_that_cannot_be_written_costs_only_the_memory(session: Session, models: Path) -> None:
    wanted = spec(models, locked(models))
    wanted = replace(wanted, host=replace(wanted.host, state_dir="/proc/nowhere"))
    report = verify(session, wanted, Depth(deep=True))
    assert (report.exit, [problem.rule for problem in report.problems]) == (0, ["BD228"])


def test_what_is_kept_on_the_host_is_for_its_user_only(session: Session, models: Path) -> None:
    verify(session, spec(models, None), Depth(deep=True))
    state = models.parent / "state"
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in (state, *state.iterdir())} == {
        "state": "0o700",
        "hashes": "0o600",
    }
