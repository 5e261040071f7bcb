"""Write docs/recipes.md from the recipes: `python scripts/recipes.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from beamdeploy.library import Entry, entries

PAGE = Path(__file__).resolve().parent.parent / "docs" / "recipes.md"
HEAD = """# Recipes

Recipes that come with beamdeploy: `beamdeploy recipes list`, `show NAME`, and `copy NAME` to make one your own. A
variant is chosen with `--variant NAME`; `beamdeploy render RECIPE --variant NAME --resolved` prints the whole. Where
the settings come from, and what was changed, stands at the top of each file.

What was seen: `published` by somebody else and not run here · `sandbox`: applied, applied again, asked and taken down
on an emulated server, whose engine takes the real flags and loads nothing · `real-gpu`: on the GPUs that it names.

This file is generated: change a recipe, then run `python scripts/recipes.py`.

| recipe | variant | model | engine | GPUs | weights | drafting | seen |
|---|---|---|---|---|---|---|---|
"""


def text() -> str:
    """The whole page."""
    return HEAD + "".join(map(row, entries()))


def row(entry: Entry) -> str:
    """One line of the table."""
    link = f"[{entry.name}](../recipes/{entry.name}.yaml)" if not entry.variant else ""
    gpus = f"{entry.count} × {entry.gpu}"
    cells = (link, entry.variant, entry.model, entry.engine, gpus, entry.numbers, entry.drafting, entry.verified)
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
