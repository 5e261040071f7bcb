"""Shell completion: bash itself runs the function that it was given; zsh and fish are asked in their own protocol."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPE = "recipes/beam-nvfp4-tokenspeed-4xb300.yaml"
PROGRAM = Path(sys.executable).parent
BASH = """
source <(beamdeploy completion bash)
complete -p beamdeploy >/dev/null || exit 3
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
compopt() {{ printf 'compopt %s %s\\n' "$@"; }}
_beamdeploy_completion beamdeploy
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def environment(**more: str) -> dict[str, str]:
    path = f"{PROGRAM}:{os.environ['PATH']}"
    return {**{k: v for k, v in os.environ.items() if k != "BEAMDEPLOY_INVENTORY"}, "PATH": path, **more}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one recipe and one inventory."""
    for name in (RECIPE, "inventories/example.yaml"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def completed(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = BASH.format(words=shlex.join(("beamdeploy", *words)))
    done = subprocess.run(
        ("bash", "--norc", "-c", script), capture_output=True, text=True, cwd=folder, env=environment(), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("val",), ["validate"]),
        (("validate", "--str"), ["--strict"]),
        (("validate", "-o", "s"), ["sarif"]),
        (("render", "recipes/beam-nvfp4-t"), [RECIPE]),
        (("plan", "inv"), ["compopt -o default", ""]),
        (("plan", "-i", ""), ["sandbox", "inventories/example.yaml"]),
        (("plan", "-i", "inventories/example.yaml", "-l", "gp"), ["gpu-a", "gpu-b"]),
        (("plan", "-i", "inventories/example.yaml", "-l", "gpu-a,lab-"), ["gpu-a,lab-01", "gpu-a,lab-02"]),
        (("plan", "-i", "gone.yaml", "-l", ""), [""]),
        (("validate", "--ignore", "BD01"), [f"BD01{n}" for n in range(10)]),
        (("explain", "BD00"), [f"BD00{n}" for n in range(1, 10)]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("schema", "re"), ["recipe", "report"]),
    ],
)
def test_bash_completes(project: Path, words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(project, *words) == expected


@pytest.mark.parametrize(("shell", "function"), [("bash", "complete "), ("zsh", "compdef "), ("fish", "complete ")])
def test_each_shell_has_its_script(shell: str, function: str) -> None:
    command = (sys.executable, "-m", "beamdeploy", "completion", shell)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [word in done.stdout for word in (function, f"_BEAMDEPLOY_COMPLETE={shell}_complete")] == [True, True]


def test_zsh_and_fish_get_the_words_with_what_they_mean() -> None:
    zsh = environment(_BEAMDEPLOY_COMPLETE="zsh_complete", COMP_WORDS="beamdeploy explain BD012", COMP_CWORD="2")
    fish = environment(_BEAMDEPLOY_COMPLETE="fish_complete", COMP_WORDS="beamdeploy explain", COMP_CWORD="BD012")
    command = (str(PROGRAM / "beamdeploy"),)
    told = [subprocess.run(command, capture_output=True, text=True, env=env, check=False).stdout for env in (zsh, fish)]
    assert [text.replace("\t", "\n").splitlines()[:2] for text in told] == [
        ["plain", "BD012"],
        ["plain,BD012", told[1].strip().partition("\t")[2]],
    ]
