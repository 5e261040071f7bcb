"""How long `beamdeploy validate` takes and how much memory, beside check-jsonschema on the same files and schema.

    python benchmarks/validate.py [--check-jsonschema PROGRAM] [--files 1000]

Without the option, check-jsonschema is installed into an environment that is thrown away afterwards. The programs take
turns, so that noise meets all alike; times are medians. Bars: one recipe below 2.5 times the bare imports, at least
300 recipes a second a core, and no memory that grows with the number of files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "schemas" / "recipe.schema.json"
BARE = (sys.executable, "-c", "import yaml, jsonschema, click")
OURS = (sys.executable, "-m", "beamdeploy", "validate")
ROUNDS = 11


@dataclass(frozen=True)
class Cost:
    """Of one run: seconds on all cores together, and the peak of resident memory in MiB."""

    seconds: float
    peak: float


def run(words: Sequence[str]) -> Cost:
    """What a program costs; its exit code must be 0."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words[0]} … ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def compare(programs: Mapping[str, Sequence[str]], rounds: int) -> dict[str, Cost]:
    """The median cost of each program; they take turns."""
    costs = [{name: run(words) for name, words in programs.items()} for _ in range(rounds)]
    return {
        name: Cost(median(each[name].seconds for each in costs), median(each[name].peak for each in costs))
        for name in programs
    }


def recipes(folder: Path, number: int) -> list[str]:
    """So many recipes that are valid and not the same."""
    text = next((ROOT / "recipes").glob("beam-nvfp4*.yaml")).read_text(encoding="utf-8")
    files = [folder / f"beam-{at:05}.yaml" for at in range(number)]
    for at, file in enumerate(files):
        file.write_text(text.replace("name: beam\n", f"name: beam-{at}\n"), encoding="utf-8")
    return [str(file) for file in files]


def installed(folder: Path) -> str:
    """check-jsonschema in an environment of its own."""
    venv.create(folder, with_pip=True)
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run((str(folder / "bin" / "pip"), "install", *quiet, "check-jsonschema"), check=True)
    return str(folder / "bin" / "check-jsonschema")


def measure(theirs: Sequence[str], files: Sequence[str]) -> None:
    """Print both tables."""
    one = compare({"imports": BARE, "beamdeploy": (*OURS, files[0]), "check-jsonschema": (*theirs, files[0])}, ROUNDS)
    print(f"{'one recipe':24}{'seconds':>9}{'ratio':>8}{'peak MiB':>10}")
    for name, cost in one.items():
        print(f"  {name:22}{cost.seconds:9.3f}{cost.seconds / one['imports'].seconds:8.2f}{cost.peak:10.1f}")
    few, many = files[: len(files) // 10], files
    print(f"{'many recipes':24}{'seconds':>9}{'a second':>10}{'peak MiB':>10}")
    for number in (few, many):
        costs = compare({"beamdeploy": (*OURS, *number), "check-jsonschema": (*theirs, *number)}, 3)
        for name, cost in costs.items():
            rate = len(number) / cost.seconds
            print(f"  {name:16}{len(number):6}{cost.seconds:9.2f}{rate:10.0f}{cost.peak:10.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="How long validate takes, beside check-jsonschema.")
    parser.add_argument("--check-jsonschema", metavar="PROGRAM", help="instead of installing it")
    parser.add_argument("--files", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = asked.check_jsonschema or installed(Path(folder, "venv"))
        Path(folder, "recipes").mkdir()
        files = recipes(Path(folder, "recipes"), asked.files)
        measure((program, "--schemafile", str(SCHEMA)), files)


if __name__ == "__main__":
    main()
