"""The main job as a story on an emulated GPU host: `make demo`; with a failure: `make demo FAULT=cuda-oom`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from beamdeploy.sandbox.profiles import Fault, faults

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(sys.executable).parent / "beamdeploy"
RECIPE = "recipes/beam-nvfp4-tokenspeed-4xb300.yaml"
ASK = "In one sentence: what did I just deploy?"
NAME = "demo"
LAYERS = re.compile(r": pull: [0-9a-f]{12}: ")
BEGIN = f"""
Beam 1.0 on four B300 GPUs, from one YAML file: {RECIPE}

NO GPU IS USED. The server is emulated on this machine: SSH, the shell and beamdeploy are the real ones;
docker, nvidia-smi and the model are stand-ins, and so are its answers."""


class Unexpected(Exception):
    """The story did not go as it is told."""


def main(words: list[str]) -> int:
    """Tell it; 0: all went as expected, also when that is a failure."""
    wrong = words[0] if words and words[0] else None
    if wrong is not None and wrong not in faults():
        print(f"There is no fault {wrong!r}. There are: {', '.join(faults())}.", file=sys.stderr)
        return 2
    began = time.monotonic()
    tell(BEGIN)
    try:
        with sandbox(wrong):
            good() if wrong is None else bad(faults()[wrong])
    except Unexpected as unexpected:
        tell(f"\n{unexpected} This is not how the story goes: it is a bug, please report it.")
        return 1
    tell(f"\nDone in {time.monotonic() - began:.0f} s, and nothing is left. No GPU was used: the server was emulated.")
    tell("On your own servers it is the same, with `-i hosts.yaml` for `-i sandbox`: see README.md.")
    return 0


def good() -> None:
    """What is deployed answers, and is taken down again."""
    step("Look at the server, say what will change and why, do it, and wait until it answers a real request.")
    expect(0, "apply", RECIPE, "-i", "sandbox")
    step("The same again: what is as it should be is left alone.")
    expect(0, "apply", RECIPE, "-i", "sandbox")
    step("What runs there, since when, and is it ready?")
    expect(0, "status", RECIPE, "-i", "sandbox")
    step("Ask it something; the request goes through the SSH connection, with the recipe's sampling values.")
    expect(0, "chat", RECIPE, "-i", "sandbox", "-m", ASK)
    step("Stop it with grace, remove it, and see that it is gone and its GPUs are free.")
    expect(0, "destroy", RECIPE, "-i", "sandbox", "--yes")


def bad(fault: Fault) -> None:
    """The apply fails, says why, and leaves a server whose state is told as it is."""
    step(f"Apply the recipe, though {fault.what}. It has to fail, and to say why.")
    given = [word for path, value in fault.set.items() for word in ("-e", f"{path}={value}")]
    said = expect(fault.exit, "apply", RECIPE, "-i", "sandbox", *given)
    if not re.search(fault.says, said, re.DOTALL):
        raise Unexpected(f"It does not say the cause ({fault.says}).")
    tell(f"It ended with exit code {fault.exit}, as it has to: {MEANINGS[fault.exit]}.")
    step("And what is there now?")
    _, said = run("status", RECIPE, "-i", "sandbox")
    if not re.search(fault.status, said):
        raise Unexpected(f"That is not what is there ({fault.status}).")
    step("Take down what may be left.")
    expect(0, "destroy", RECIPE, "-i", "sandbox", "--yes")


MEANINGS = {
    1: "failed on the host",
    3: "blocked, nothing was changed",
    4: "the host was lost",
    6: "started, but not ready or not right",
}


@contextmanager
def sandbox(wrong: str | None) -> Iterator[None]:
    """A server for the time of the story, whatever happens in it."""
    step("Start the emulated server" + (f", in which {faults()[wrong].what}." if wrong else "."))
    try:
        expect(0, "sandbox", "up", "--profile", "4xb300", *(("--fault", wrong) if wrong else ()))
        yield
    finally:
        step("End the emulated server.")
        run("sandbox", "down")


def expect(code: int, *words: str) -> str:
    """Run a command that has to end with this code; what it said."""
    ended, said = run(*words)
    if ended != code:
        raise Unexpected(f"It ended with exit code {ended} and not with {code}.")
    return said


def run(*words: str) -> tuple[int, str]:
    """Show a command and what it says, without the lines of each image layer; its exit code and its words."""
    tell(f"$ beamdeploy {shlex.join(words)}")
    process = subprocess.Popen(
        (PROGRAM, *words), cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if not LAYERS.search(line):
            tell(f"    {line.rstrip()}")
    return process.wait(), "".join(said)


def environment() -> Mapping[str, str]:
    """Its own sandbox beside yours, and nothing that would change what is said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BEAMDEPLOY_")}
    return {**kept, "BEAMDEPLOY_SANDBOX": NAME, "PYTHONUNBUFFERED": "1"}


def step(text: str) -> None:
    """What comes next, and what it means."""
    tell(f"\n# {text}")


def tell(text: str) -> None:
    """A line of the story, at once."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
