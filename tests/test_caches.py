"""What is kept on this machine is kept where nobody else can write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from beamdeploy import caches
from tests.forked import beamdeploy


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path)}


def test_a_folder_is_made_for_this_user_alone_and_found_again(cache: dict[str, str]) -> None:
    made = caches.made(cache, "kept")
    assert made is not None and made == caches.made(cache, "kept")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (made, made.parent)] == [0o700, 0o700]


def test_a_relative_cache_is_ignored() -> None:
    home = caches.folder({})
    assert home is not None and home.is_absolute()
    assert caches.folder({"XDG_CACHE_HOME": "cache"}) == caches.folder({"XDG_CACHE_HOME": ""}) == home


@pytest.mark.parametrize("home", ["", "home", "./"])
def test_without_a_home_nothing_is_kept(tmp_path: Path, home: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"} | {"HOME": home}
    assert (caches.folder(environ), caches.made(environ, "kept")) == (None, None)
    recipe = Path(__file__).parents[1] / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml"
    told = [beamdeploy(*words, env=environ, cwd=tmp_path).returncode for words in (
        ("render", str(recipe)), ("plan", str(recipe), "-i", "a,", "-l", "@failed"), ("sandbox", "status"),
    )]  # fmt: skip
    assert (told, list(tmp_path.iterdir())) == ([0, 2, 2], [])


@pytest.mark.parametrize("which", ["beamdeploy", "beamdeploy/kept"])
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_nothing_is_kept_where_others_may_write(cache: dict[str, str], tmp_path: Path, which: str, mode: int) -> None:
    assert caches.made(cache, "kept") is not None
    (tmp_path / which).chmod(mode)
    assert caches.made(cache, "kept") is None


@pytest.mark.parametrize("which", ["beamdeploy", "beamdeploy/kept"])
def test_nothing_is_kept_behind_a_link(cache: dict[str, str], tmp_path: Path, which: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / which).parent.mkdir(exist_ok=True, mode=0o700)
    (tmp_path / which).symlink_to(elsewhere)
    assert (caches.made(cache, "kept"), list(elsewhere.glob("*/*"))) == (None, [])


def test_nothing_is_kept_beside_a_pipe(cache: dict[str, str]) -> None:
    made = caches.made(cache, "kept")
    assert made is not None
    os.mkfifo(made / "pipe")
    assert caches.made(cache, "kept") is None
