"""`beamdeploy init` writes files that validate, and never over others."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from beamdeploy.check import check_all
from beamdeploy.inventory import Host, load_inventory
from beamdeploy.recipe import load_recipe
from tests.forked import beamdeploy

FILES = [
    "inventories/default.yaml",
    "recipes/beam-4xb300.yaml",
    "schemas/inventory.schema.json",
    "schemas/recipe.schema.json",
]


def init(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return beamdeploy("init", str(folder), *words)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_is_written_validates_under_strict(tmp_path: Path) -> None:
    done = init(tmp_path)
    assert (done.returncode, done.stderr, names(tmp_path)) == (0, "", FILES)
    assert check_all([str(tmp_path)], strict=True).exit == 0


def test_modelines_lead_to_the_schemas(tmp_path: Path) -> None:
    init(tmp_path)
    for name in FILES[:2]:
        first = (tmp_path / name).read_text(encoding="utf-8").splitlines()[0]
        assert (tmp_path / name).parent.joinpath(first.partition("$schema=")[2]).is_file()


def test_options_say_the_server(tmp_path: Path) -> None:
    hosts = ("--host", "op@gpu-1.example.org:2222", "--host", "192.0.2.7", "--host", "[2001:db8::1]:22", "--host", "no")
    done = init(tmp_path, "--gpu", "B200", "--count", "8", "--model-dir", "/data/my models", *hosts)
    assert (done.returncode, done.stderr) == (0, "")
    recipe = load_recipe(str(tmp_path / "recipes" / "beam-8xb200.yaml"))
    assert (recipe.hardware.gpu, recipe.hardware.count, recipe.engine.tensor_parallel) == ("B200", 8, 8)
    assert load_inventory(str(tmp_path / "inventories" / "default.yaml"), environ={}).hosts == (
        Host("gpu-1", "gpu-1.example.org", "op", 2222, model_dir="/data/my models"),
        Host("192.0.2.7", "192.0.2.7", model_dir="/data/my models"),
        Host("2001:db8::1", "2001:db8::1", port=22, model_dir="/data/my models"),
        Host("no", "no", model_dir="/data/my models"),
    )


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "beam-4xb300.yaml").write_text("mine", encoding="utf-8")
    done = init(tmp_path)
    assert (done.returncode, (tmp_path / "recipes" / "beam-4xb300.yaml").read_text(encoding="utf-8")) == (0, "mine")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["kept", "wrote", "wrote", "wrote"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "baem"), "did you mean beam?"),
        (("--host", "a b"), "'a b' is not a server"),
        (("--gpu", "H100"), "H100"),
        (("--gpu", "x: {y"), "what init would write"),
        (("--count", "3"), "tensor_parallel"),
        (("--count", "0"), "--count"),
    ],
)
def test_what_would_not_be_valid_is_refused_and_nothing_is_written(
    tmp_path: Path, words: tuple[str, str], said: str
) -> None:
    done = init(tmp_path, *words)
    assert (done.returncode, said in done.stderr, names(tmp_path)) == (2, True, [])


def test_on_a_terminal_it_asks(tmp_path: Path) -> None:
    main, other = pty.openpty()
    command = (sys.executable, "-m", "beamdeploy", "init", str(tmp_path), "--model", "beam")
    process = subprocess.Popen(command, stdin=other, stdout=subprocess.PIPE, stderr=other, text=True)
    os.write(main, b"B200\n8\nop@gpu-1 gpu-2\n/data\n")
    out, _ = process.communicate(timeout=60)
    os.close(other)
    asked = os.read(main, 65536).decode()
    os.close(main)
    assert (process.returncode, len(out.splitlines())) == (0, 4)
    assert [word in asked for word in ("GPU family", "[B300]", "[4]", "Servers", "[/srv/models/beam]")] == [True] * 5
    hosts = load_inventory(str(tmp_path / "inventories" / "default.yaml"), environ={}).hosts
    assert hosts == (Host("gpu-1", "gpu-1", "op", model_dir="/data"), Host("gpu-2", "gpu-2", model_dir="/data"))
