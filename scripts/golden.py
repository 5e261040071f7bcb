"""Write tests/data/golden: the words of every shipped recipe and variant. `python scripts/golden.py`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from beamdeploy.inventory import Host
from beamdeploy.label import without_labels
from beamdeploy.library import entries, file_of
from beamdeploy.recipe import load_recipe
from beamdeploy.render import render

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "golden"
HOST = Host("gpu-a", model_dir="/srv/models")


def golden() -> Iterator[tuple[str, str]]:
    """(name, text) of each file."""
    for entry in entries():
        chosen = [("--variant", entry.variant)] if entry.variant else []
        words = without_labels(render(load_recipe(str(file_of(entry.name)), chosen), HOST, None).words)
        name = f"{entry.name}+{entry.variant}.json" if entry.variant else f"{entry.name}.json"
        yield name, json.dumps(list(words), indent=0, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in golden():
        (FOLDER / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{FOLDER}\n")
