"""Whatever a file holds: no crash, no hang, no other file, no socket, no program, nothing that a terminal obeys.

What Python does is seen by an audit hook, which cannot be got around from within.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beamdeploy import __version__, caches
from beamdeploy.check import check_all
from beamdeploy.errors import InputError
from beamdeploy.lock import load_lock
from beamdeploy.outcome import Report
from beamdeploy.recipe import load_recipe
from beamdeploy.render import nowhere, render
from tests.forked import beamdeploy

ROOT = Path(__file__).parents[1]
BEAM = ROOT / "recipes" / "beam-nvfp4-tokenspeed-4xb300.yaml"
RECIPE = BEAM.read_text(encoding="utf-8")
INVENTORY = (ROOT / "inventories" / "example.yaml").read_text(encoding="utf-8")
BANNED = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.spawn",
    "os.posix_spawn",
    "os.fork",
    "ctypes.",
    "shutil.",
)
SECONDS = 20  # of processor time, for the slowest that is within the limits of size
seen: list[tuple[str, str]] = []
watching: list[bool] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if watching and (event == "open" or event.startswith(BANNED) or event in ("os.remove", "os.rename", "os.mkdir")):
        seen.append((event, str(args[0]) if args else ""))


sys.addaudithook(_audit)


@contextmanager
def watched() -> Iterator[list[tuple[str, str]]]:
    """What is opened and done meanwhile."""
    seen.clear()
    watching.append(True)
    try:
        yield seen
    finally:
        watching.clear()


def ours(path: str) -> bool:
    """What the package and Python read of themselves: schemas, templates, catalogs, modules."""
    return any(
        path.startswith(str(folder)) for folder in (ROOT / "beamdeploy", ROOT / "schemas", sys.prefix, sys.base_prefix)
    )


def kept() -> tuple[str, ...]:
    """The folders of what a check keeps, made if need be: the package's templates compiled, and what was found good."""
    return tuple(str(caches.made(os.environ, name)) for name in (f"templates-{__version__}", "good"))


def strayed(file: Path) -> list[tuple[str, str]]:
    allowed = {str(file), str(file.with_suffix(".lock.yaml"))}
    told = [(event, path) for event, path in seen if not path.startswith(kept())]
    return [(event, path) for event, path in told if event != "open" or not (path in allowed or ours(path))]


def rendered(file: Path) -> None:
    try:
        recipe = load_recipe(str(file))
        render(recipe, nowhere(None, None), load_lock(str(file)))
    except InputError as error:
        assert error.problems


def tried(text: bytes) -> Report:
    """The report on a file with this text, after it was also rendered; nothing else was touched."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "recipe.yaml")
        file.write_bytes(text)
        kept()
        begin = time.process_time()
        with watched():
            report = check_all([str(file)])
            rendered(file)
        found = strayed(file)
        assert (found, time.process_time() - begin < SECONDS) == ([], True)
        json.dumps([problem.what for problem in report.problems])
        return report


words = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    [
        "{{ 7*7 }}",
        "{% include '/etc/passwd' %}",
        "!!python/object/apply:os.system [id]",
        "!include /etc/passwd",
        "$(id)",
        "*a",
        "&a",
        "<<",
        "~",
        "null",
        "yes",
        "1e999",
        "0x41",
        "-.inf",
        "file:///etc/passwd",
        "http://192.0.2.1/",
        "../../x",
    ]
)
scalars = words | st.integers() | st.floats() | st.booleans() | st.none()
trees = st.recursive(
    scalars, lambda below: st.lists(below, max_size=4) | st.dictionaries(words, below, max_size=4), max_leaves=12
)
LINES = RECIPE.splitlines()


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
def test_no_bytes_do_harm(text: bytes) -> None:
    tried(text)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(LINES), words, st.integers(0, len(LINES)))
def test_no_text_put_into_a_recipe_does_harm(line: str, word: str, at: int) -> None:
    key = line.partition(":")[0]
    lines = [*LINES[:at], f"{key}: {word}", *LINES[at:]]
    tried("\n".join(lines).encode("utf-8", "surrogatepass"))
    tried(RECIPE.replace(line, f"{key}: {word}").encode("utf-8", "surrogatepass"))


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["engine", "container", "image", "model", "request", "hardware", "speculative", "all"]), trees)
def test_no_value_of_a_section_does_harm(section: str, value: object) -> None:
    # JSON is YAML, so that every tree can be written
    tried(
        f"{RECIPE}\n{section}2:\n  x: 1\n".replace(f"\n{section}:", f"\n{section}: {json.dumps(value)}\nwas:").encode()
    )
    tried(json.dumps({"apiVersion": "beamdeploy/v1", section: value}).encode())
    tried(json.dumps({"all": {"hosts": {"a": value}, "vars": value}}).encode())


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(
            [
                "&a ",
                "*a",
                "[",
                "]",
                "{",
                "}",
                "- ",
                "? ",
                ": ",
                "\n",
                "  ",
                "<<",
                "!x ",
                "|\n",
                "'",
                '"',
                "#",
                "%",
                "---\n",
                "a",
            ]
        ),
        max_size=60,
    )
)
def test_no_syntax_does_harm(parts: list[str]) -> None:
    tried(("name: x\n" + "".join(parts)).encode())


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


LARGE: Mapping[str, Callable[[], str]] = {
    "flow": lambda: "x: " + "[" * 100_000,
    "mappings": lambda: "x: " + "{a: " * 100_000,
    "blocks": lambda: "".join(f"{' ' * depth}a:\n" for depth in range(3000)),
    "lists": lambda: "- " * 100_000,
    "bomb": lambda: BOMB,
    "digits": lambda: f"port: {'9' * 1_000_000}\n",
    "base60": lambda: f"port: 1{':59' * 300_000}\n",
    "long": lambda: f"x: {'a' * 10_000_000}\n",
    "keys": lambda: "".join(f"key{n}: value\n" for n in range(600_000)),
    "comments": lambda: RECIPE + "# x\n" * 2_500_000,
    "ignores": lambda: RECIPE + "# beamdeploy: ignore BD301\n" * 300_000,
    "ids": lambda: "name: beam # beamdeploy: ignore " + "BD301, " * 100_000 + "\n",
    "hosts": lambda: "all:\n  hosts:\n" + "".join(f"    h{n}:\n" for n in range(20_000)),
    "range": lambda: "all: {hosts: {'a[0:99999999]': }}\n",
    "blank": lambda: "\n" * 10_000_000,
    "blanks": lambda: "a:\n" + " \n" * 3_000_000 + "x",
    "block": lambda: "x: |\n" + "  # beamdeploy: ignore BD301\n" * 300_000,
}


@pytest.mark.parametrize("kind", LARGE)
def test_size_and_depth_end_in_an_answer_soon(kind: str) -> None:
    tried(LARGE[kind]().encode())


def test_a_template_in_a_value_is_a_word() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "recipe.yaml")
        file.write_text(RECIPE.replace("served_name: Beam-1.0-501B-A23B", 'served_name: "{{7*7}}"'), encoding="utf-8")
        words = render(load_recipe(str(file)), nowhere(None, None), None).words
    assert words[words.index("--served-model-name") + 1] == "{{7*7}}"


def validate(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return beamdeploy("validate", *words, str(file))


@pytest.mark.parametrize("form", ["text", "json", "sarif", "junit", "github", "line"])
@pytest.mark.parametrize("raw", ["\x1b]0;owned\x07", "\x9b2J", "\r::add-mask::x", "\u202e", "\x00", "\x7f\x08"])
def test_no_control_character_reaches_the_output(tmp_path: Path, form: str, raw: str) -> None:
    file = tmp_path / f"r{raw.replace(chr(0), '')}.yaml"
    escaped = json.dumps(f"x{raw}")
    file.write_text(f"{RECIPE}\nname{escaped[2:-1]}: 1\n{escaped}: {escaped}\n# {raw}\n", encoding="utf-8")
    done = validate(file, "-o", form)
    out = done.stdout + done.stderr
    assert (
        done.returncode,
        {c for c in out if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"},
    ) == (2, set())


def test_a_device_without_end_and_a_pipe_without_a_writer_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for file in (Path("/dev/zero"), tmp_path / "pipe.yaml"):
        done = validate(file, "-o", "line")
        assert (done.returncode, "BD001" in done.stdout, "no regular file" in done.stdout) == (2, True, True)


@pytest.mark.parametrize(
    "words",
    [
        ("import", "docker-run", "{pipe}"),
        ("import", "compose", "{pipe}"),
        ("doctor", "--log", "{pipe}"),
        ("render", str(BEAM), "-i", "{pipe}"),
        ("plan", "{recipe}", "-i", "localhost,", "--model-dir", "/m"),
    ],
)
def test_a_pipe_without_a_writer_is_waited_for_nowhere(tmp_path: Path, words: tuple[str, ...]) -> None:
    pipe, recipe = tmp_path / "pipe", tmp_path / "beam.yaml"
    os.mkfifo(pipe)
    read = yaml.safe_load(BEAM.read_text(encoding="utf-8"))
    read["image"], read["container"]["secrets"] = {"reference": "a@sha256:" + "1" * 64}, {"A": {"file": "pipe"}}
    recipe.write_text(yaml.safe_dump(read), encoding="utf-8")
    done = subprocess.run(
        (sys.executable, "-m", "beamdeploy", *(word.format(pipe=pipe, recipe=recipe) for word in words)),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.returncode, "regular file" in done.stderr or "no readable file" in done.stderr) == (2, True), (
        done.stderr
    )


def test_a_pipe_in_the_cache_keeps_no_command_waiting(tmp_path: Path) -> None:
    words = (sys.executable, "-m", "beamdeploy", "render", str(BEAM))
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    first = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=20, check=False)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert first.returncode == 0 and kept
    for path in kept:
        path.unlink()
        os.mkfifo(path)
    again = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=20, check=False)
    assert (again.returncode, again.stdout) == (0, first.stdout)


@pytest.mark.parametrize("place", ["/dev/stdin", "-", "/proc/self/fd/0"])
def test_what_the_shell_has_opened_is_read(place: str) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "beamdeploy", "import", "docker-run", place),
        input="docker run vllm/vllm-openai:v0.33.0 --model a", capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["apiVersion:", "beamdeploy/v1"]), done.stderr


def test_a_template_of_loops_in_loops_is_ended_and_told(tmp_path: Path) -> None:
    loops = "".join(f"{{% for {name} in range(99999) %}}" for name in "abc") + "{% endfor %}" * 3
    (tmp_path / "docker-run.j2").write_text(f"docker\nrun\n{loops}", encoding="utf-8")
    words = ("render", str(BEAM), "-i", "a,", "--model-dir", "/m", "--templates", str(tmp_path))
    done = beamdeploy(*words)
    assert (done.returncode, "BD060" in done.stderr, "goes on and on" in done.stderr) == (2, True, True), done.stderr
