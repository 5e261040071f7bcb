"""The staged folders: whole, and what the recipe means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from beamdeploy.engines.traits import traits
from beamdeploy.look.facts import Facts
from beamdeploy.preflight.check import Check, told
from beamdeploy.preflight.image import image_there
from beamdeploy.render import Spec
from beamdeploy.weights.comparison import verdict
from beamdeploy.weights.staging import Folder, count, human


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """What a look shows of each folder."""
    for folder in staged_folders(spec, container_user(spec, facts)):
        if folder.path in facts.weights:  # where model_dir could not be seen, a blocker has said so
            disk = facts.disks.get(str(spec.host.model_dir))
            seen = facts.weights[folder.path]
            found = verdict(folder, seen, spec.weights.get(folder.path), disk)
            yield from (told(problem, folder.role) for problem in found)
            if seen is not None and not any(problem.level == "error" for problem in found):
                size = sum(file.size or 0 for file in seen.files)
                yield Check("weights", f"{folder.path}: {count(len(seen.files), 'file')}, {human(size)}, whole")


def container_user(spec: Spec, facts: Facts) -> str:
    """The user that the container runs as, with the groups that it is given: "1000:1000,44"; "": root, or not known."""
    user = given_user(spec)
    image = image_there(spec, facts)
    if user is None:
        user = image.user if image is not None else ""
    groups = tuple(_values(spec.words, ("--group-add",)))
    return ",".join((user if ":" in user or not groups else f"{user}:", *groups)) if user else ""


def given_user(spec: Spec) -> str | None:
    """The user that the words of docker run name; None: the image says it."""
    return next(_values(spec.words, ("--user", "-u")), None)


def _values(words: tuple[str, ...], flags: tuple[str, ...]) -> Iterator[str]:
    options = words[: words.index("--entrypoint")] if "--entrypoint" in words else words
    for at, word in enumerate(options):
        flag, equals, value = word.partition("=")
        if flag in flags and (equals or at + 1 < len(options)):
            yield value if equals else options[at + 1]


def staged_folders(spec: Spec, user: str = "") -> tuple[Folder, ...]:
    """The folders that must be staged, with what the recipe says about them, for a container of this user."""
    return tuple(replace(folder, user=user) for folder in _folders(spec))


def _folders(spec: Spec) -> tuple[Folder, ...]:
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
