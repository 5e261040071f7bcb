"""The demo as its reader sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NO_GPU = "no gpu is used", "no gpu was used"


def demo(cache: Path, *words: str) -> tuple[int, str]:
    """Exit code, and the story."""
    ended = subprocess.run(
        (sys.executable, str(ROOT / "scripts" / "demo.py"), *words),
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "BEAMDEPLOY_INVENTORY": "/not/there"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    return ended.returncode, ended.stdout + ended.stderr


def commands(said: str) -> list[str]:
    """What was run, by its first word."""
    return [line.split()[2] for line in said.splitlines() if line.startswith("$ beamdeploy ")]


def test_the_demo_deploys_asks_and_takes_down_and_says_that_no_gpu_was_used(tmp_path: Path) -> None:
    code, said = demo(tmp_path)
    assert code == 0, said
    assert commands(said) == ["sandbox", "apply", "apply", "status", "chat", "destroy", "sandbox"]
    assert "    > " in said or "The user wrote" in said
    assert "nothing to do" in said and ", ready, as the recipe" in said
    begin, end = said[:600].lower(), said[-400:].lower()
    assert (NO_GPU[0] in begin, NO_GPU[1] in end) == (True, True)
    assert list(tmp_path.rglob("sandbox/*")) == []


def test_the_demo_of_a_fault_shows_its_explanation_and_says_how_apply_ended(tmp_path: Path) -> None:
    code, said = demo(tmp_path, "cuda-oom")
    assert code == 0, said
    assert commands(said) == ["sandbox", "apply", "status", "destroy", "sandbox"]
    assert "CUDA out of memory" in said
    assert "It ended with exit code 1, as it has to: failed on the host." in said
    assert list(tmp_path.rglob("sandbox/*")) == []


def test_a_fault_that_there_is_not_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    code, said = demo(tmp_path, "gremlins")
    assert (code, "There is no fault 'gremlins'." in said, "cuda-oom" in said) == (2, True, True)


def test_make_gives_the_fault_to_the_demo() -> None:
    words = ("make", "--dry-run", "--directory", str(ROOT), "demo", "FAULT=stall")
    assert "scripts/demo.py 'stall'" in subprocess.run(words, capture_output=True, text=True, check=True).stdout
