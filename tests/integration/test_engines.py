"""The engines beside TokenSpeed on a real Docker engine: each effect twice, in one lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.command import Job, container_id
from tests.lab import Lab, LabHost

RECIPES = Path(__file__).parents[2] / "recipes"
LIBRARY = {"vllm": "beam-nvfp4-vllm-4xb200", "sglang": "beam-nvfp4-sglang-4xb300"}


def written(engine: str, lab: Lab) -> dict[str, Any]:
    """A shipped recipe of the engine; `openai`: a server of which the recipe alone knows anything."""
    name = LIBRARY.get(engine, LIBRARY["vllm"])
    recipe: dict[str, Any] = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))
    recipe["image"] = {"reference": lab.image("beam")}
    recipe["hardware"]["gpu"] = "B300"
    recipe["container"]["shm_size"] = "1g"
    recipe.pop("variants", None)
    if engine == "openai":
        words = [
            "serve",
            "/weights/nvfp4",
            "--served-model-name",
            recipe["model"]["served_name"],
            "--max-num-seqs",
            "8",
        ]
        recipe["engine"] = {"name": "openai", "entrypoint": "vllm", "command": words, "ready": "/v1/models"}
        recipe["quantization"] = {"weights": "nvfp4"}
        recipe["parsers"] = {}
    return recipe


def with_seqs(recipe: dict[str, Any], seqs: int) -> tuple[dict[str, Any], str]:
    """The recipe with so many requests at a time, and the setting that says it."""
    if "command" in recipe["engine"]:
        words = [*recipe["engine"]["command"][:-1], str(seqs)]
        return {**recipe, "engine": {**recipe["engine"], "command": words}}, "engine.command"
    return {**recipe, "engine": {**recipe["engine"], "max_num_seqs": seqs}}, "engine.max_num_seqs"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "openai"])
def test_an_engine_serves_is_changed_and_goes(engine: str, lab: Lab, clean_host: LabHost, tmp_path: Path) -> None:
    job, name = Job(lab, (clean_host,), tmp_path), clean_host.name
    job.write_inventory()
    recipe = written(engine, lab)
    file, made = Path(job.recipe), ""
    for seqs in (8, 4, 2):
        changed, setting = with_seqs(recipe, seqs)
        file.write_text(yaml.safe_dump(changed), encoding="utf-8")
        done = job.run("apply")
        assert (done.exit, done.host(name)["outcome"]) == (0, "changed"), done.out
        assert done.host(name)["completion"]["text"]
        assert [each["path"] for each in done.host(name)["plan"]["changes"]] == ([setting] if made else [])
        assert container_id(clean_host) not in ("", made)
        made = container_id(clean_host)
        assert job.run("apply").host(name)["outcome"] == "unchanged"
    gone = [job.run("destroy", "-y").host(name)["outcome"] for _ in range(2)]
    assert (gone, container_id(clean_host)) == (["changed", "unchanged"], "")
