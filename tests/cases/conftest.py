"""What the cases share: a recipe on the lab's first host, and recipes as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases.intent import Wanted
from tests.integration.command import Ran, beamdeploy

Render = Callable[..., Ran]


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """`beamdeploy render` of what a case wants, for its own host."""

    def run(wanted: Wanted, output: str = "json") -> Ran:
        recipe = write(tmp_path / "recipe.yaml", wanted.recipe)
        hosts = write(tmp_path / "hosts.yaml", {"all": {"hosts": {wanted.name: wanted.variables}}})
        return beamdeploy("render", recipe, "-i", hosts, "-o", output)

    return run


def write(file: Path, data: Mapping[str, Any]) -> str:
    """Write data as YAML (which JSON is); the file's name."""
    file.write_text(
        json.dumps(data) if file.name == "hosts.yaml" else yaml.safe_dump(dict(data), sort_keys=False), encoding="utf-8"
    )
    return str(file)
