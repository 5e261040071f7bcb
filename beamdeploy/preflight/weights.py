"""The staged folders: whole, and what the recipe means."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.engines.traits import traits
from beamdeploy.look.facts import Facts
from beamdeploy.preflight.check import Check, told
from beamdeploy.render import Spec
from beamdeploy.weights.comparison import verdict
from beamdeploy.weights.staging import Folder, count, human


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """What a look shows of each folder."""
    for folder in staged_folders(spec):
        if folder.path in facts.weights:  # where model_dir could not be seen, a blocker has said so
            disk = facts.disks.get(str(spec.host.model_dir))
            seen = facts.weights[folder.path]
            found = verdict(folder, seen, spec.weights.get(folder.path), disk)
            yield from (told(problem, folder.role) for problem in found)
            if seen is not None and not any(problem.level == "error" for problem in found):
                size = sum(file.size or 0 for file in seen.files)
                yield Check("weights", f"{folder.path}: {count(len(seen.files), 'file')}, {human(size)}, whole")


def staged_folders(spec: Spec) -> tuple[Folder, ...]:
    """The folders that must be staged, with what the recipe says about them."""
    recipe = spec.recipe
    speculative = recipe.speculative
    target = _folder(spec, recipe.model.weights.path, "model.weights.path", "target", recipe.quantization.weights)
    if speculative is None or speculative.drafter is None:
        return (target,)
    return (target, _folder(spec, speculative.drafter.path, "speculative.drafter.path", "drafter", None))


def _folder(spec: Spec, path: str, field: str, role: str, quantization: str | None) -> Folder:
    recipe = spec.recipe
    speculative = recipe.speculative
    return Folder(
        path=path,
        host_path=f"{str(spec.host.model_dir).rstrip('/')}/{path}",
        field=field,
        role=role,
        quantization=quantization,
        quantizes=quantization in (known.online if (known := traits(recipe.engine.name)) else ()),
        tensor_parallel=recipe.engine.tensor_parallel,
        num_speculative_tokens=speculative.num_speculative_tokens if speculative else None,
        method=speculative.method if speculative else None,
        engine=recipe.engine.name,
        max_model_len=recipe.engine.max_model_len,
        gpus=recipe.gpus,
        chat_template="chat-template" in recipe.engine.args,
    )
