"""Rules on which model is served, how long its context is, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.models import model_of, repo_of
from beamdeploy.rules.rule import Finding, Rule, Subject


def _context(subject: Subject) -> Iterator[Finding]:
    length, model, variable = subject.recipe.engine.max_model_len, subject.model, subject.traits.long_context
    if model is None or length is None or length <= model.context:
        return
    what = f"engine.max_model_len: {length} is more than the {model.context} tokens of {model.name}"
    if variable and _true(subject.recipe.container.env.get(variable)):
        yield Finding("engine.max_model_len", f"{what}; {variable} allows it", "Expect nonsense beyond it.", "warning")
    else:
        yield Finding(
            "engine.max_model_len", what, f"Use at most {model.context}: the engine refuses more at its start."
        )


def _override(subject: Subject) -> Iterator[Finding]:
    variable = subject.traits.long_context
    if variable and _true(subject.recipe.container.env.get(variable)):
        what = f"container.env.{variable} turns off the engine's check of max_model_len"
        remedy = "Remove it, and keep engine.max_model_len within the model's own length."
        yield Finding(("container", "env", variable), what, remedy, key=True)


def _true(value: str | None) -> bool:
    return value is not None and value.lower() in ("1", "true", "yes", "on")


def _served_name(subject: Subject) -> Iterator[Finding]:
    name, without = subject.recipe.model.served_name, subject.traits.served_name_without
    if without and without in name:
        what = f"model.served_name: {subject.recipe.engine.name} takes no {without!r} in it"
        yield Finding("model.served_name", what, "Leave it out, or write '-'.")
    elif name.startswith(("/", "./", "~")):
        what = f"model.served_name: {name} is a path: clients would have to send it as the model's name"
        yield Finding("model.served_name", what, "Give the model's own name.", "warning")
    elif any(char.isspace() for char in name):
        what = f"model.served_name: {name!r} holds a blank, and vLLM would read several names"
        yield Finding("model.served_name", what, "Write '-' for the blank.", "warning")


def _folders(subject: Subject) -> Iterator[Finding]:
    weights, speculative = subject.recipe.model.weights, subject.recipe.speculative
    drafter = speculative.drafter if speculative else None
    if drafter is not None and drafter.path == weights.path:
        what = f"speculative.drafter.path and model.weights.path are one folder: {weights.path}"
        yield Finding("speculative.drafter.path", what, "Give the drafter's own folder.")


def _roles(subject: Subject) -> Iterator[Finding]:
    model, weights = subject.model, subject.recipe.model.weights
    speculative = subject.recipe.speculative
    drafter = speculative.drafter if speculative else None
    if model is not None and model.drafter(weights.source) is not None:
        what = f"model.weights.source: {repo_of(weights.source)} is a drafter of {model.name}, not the model"
        yield Finding("model.weights.source", what, f"The model is one of: {_repos(subject)}.")
    if drafter is None or drafter.source is None:
        return
    theirs = model_of(drafter.source, "")
    if theirs is not None and theirs.variant(drafter.source) is not None:
        what = f"speculative.drafter.source: {repo_of(drafter.source)} is a model, not a drafter"
        known = ", ".join(each.repo for each in theirs.drafters)
        yield Finding("speculative.drafter.source", what, f"Drafters of {theirs.name}: {known}.")
    elif theirs is not None and subject.variant is not None and theirs != model:
        what = f"speculative.drafter.source: {repo_of(drafter.source)} drafts for {theirs.name}"
        yield Finding("speculative.drafter.source", what, "Give the drafter of the model that is served.")


def _repos(subject: Subject) -> str:
    assert subject.model is not None
    return ", ".join(variant.repo for variant in subject.model.variants)


def _revision(subject: Subject) -> Iterator[Finding]:
    speculative = subject.recipe.speculative
    drafter = speculative.drafter if speculative else None
    sources = {"model.weights.source": subject.recipe.model.weights.source}
    sources |= {"speculative.drafter.source": drafter.source if drafter else None}
    for path, source in sources.items():
        if source is not None and source.startswith("hf://") and "@" not in source:
            what = f"{path}: {source} names no revision: what is there today may be replaced tomorrow"
            yield Finding(path, what, f"Pin a commit: {source}@COMMIT.")


def _version(subject: Subject) -> Iterator[Finding]:
    if subject.model is None or subject.engine is None or subject.catalog is None:
        return
    known = subject.model.catalogs.get(subject.engine.name, ())
    if subject.catalog.version not in known:
        what = f"{subject.engine.name} {subject.catalog.version} does not know the architecture of {subject.model.name}"
        remedy = f"Use an image of these catalogs: {', '.join(known)}." if known else "Use another engine."
        path = "engine.catalog" if subject.recipe.engine.catalog else "engine.name"
        yield Finding(path, what, remedy)


def _memory(subject: Subject) -> Iterator[Finding]:
    variant, family, count = subject.variant, subject.family, subject.recipe.gpus
    if variant is None or family is None:
        return
    share = subject.recipe.engine.gpu_memory_utilization or 1.0
    weights = (variant.size + (subject.drafter.size if subject.drafter else 0)) / count / 1e9
    if weights > family.memory_gb * share:
        of = f"{share:g} of " if share < 1 else ""
        what = (
            f"the weights of {variant.name} take about {weights:.0f} GB on each of {count} GPUs, "
            f"more than {of}the {family.memory_gb} GB of {family.name}"
        )
        yield Finding("hardware.count", what, "Use more GPUs, larger ones, or a smaller number format.")


_COMMIT = "0123456789abcdef0123456789abcdef01234567"  # of the examples

RULES = (
    Rule(
        "BD350",
        "max_model_len is more than the model's own length",
        "error",
        "The engine compares it with config.json at its start and refuses more, unless its own override variable is "
        "set; then answers beyond the length are nonsense.",
        "engine:\n  max_model_len: 2097152  # <-",
        "engine:\n  max_model_len: 131072",
        "TokenSpeed 0.1.1 configs/model_config.py:700; vLLM 0.33.0 config/model.py:2664",
        _context,
    ),
    Rule(
        "BD351",
        "A check of the engine is turned off",
        "warning",
        "The override lets the engine start with a longer context than the model was trained for.",
        'container:\n  env:\n    TOKENSPEED_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN: "1"  # <-',
        'container:\n  env:\n    HF_HUB_OFFLINE: "1"',
        "TokenSpeed 0.1.1 configs/model_config.py:700",
        _override,
    ),
    Rule(
        "BD352",
        "The served name is none that clients can use",
        "error",
        "It is compared letter by letter with the `model` of each request. SGLang takes no ':' in it.",
        "model:\n  served_name: /weights/nvfp4  # <-",
        "model:\n  served_name: Beam-1.0-501B-A23B",
        "SGLang 0.5.23 arg_groups/validation_hook.py:216",
        _served_name,
    ),
    Rule(
        "BD353",
        "Model and drafter are one folder",
        "error",
        "The drafter is another, much smaller checkpoint.",
        "speculative:\n  drafter:\n    path: nvfp4  # <-",
        "speculative:\n  drafter:\n    path: dflash2",
        "",
        _folders,
    ),
    Rule(
        "BD354",
        "A source names a checkpoint of another role",
        "error",
        "The repository is known, and is a drafter where the model belongs, or the other way round.",
        "model:\n  weights:\n    source: hf://reflection/Beam-1.0-501B-A23B-DFlash2  # <-",
        "model:\n  weights:\n    source: hf://reflection/Beam-1.0-501B-A23B-NVFP4",
        "the publisher's repositories",
        _roles,
    ),
    Rule(
        "BD355",
        "The source names no revision",
        "info",
        "Files of a repository have been replaced under a running deployment; a commit never changes.",
        "model:\n  weights:\n    source: hf://reflection/Beam-1.0-501B-A23B-NVFP4  # <-",
        "model:\n  weights:\n    source: hf://reflection/Beam-1.0-501B-A23B-NVFP4@"
        + _COMMIT
        + "\nspeculative:\n  drafter:\n"
        "    source: hf://reflection/Beam-1.0-501B-A23B-DFlash2@" + _COMMIT,
        "huggingface_hub, guide of the command line",
        _revision,
    ),
    Rule(
        "BD356",
        "This version of the engine does not know the model",
        "error",
        "The architecture is looked up while layers are built. TokenSpeed 0.1.1 has no Beam; its Beam image has.",
        'engine:\n  catalog: "0.1.1"  # <-',
        "engine:\n  catalog: beam",
        "TokenSpeed 0.1.1 models/registry.py:58",
        _version,
    ),
    Rule(
        "BD357",
        "The weights do not fit into the GPUs",
        "error",
        "Sizes are estimates from the number of parameters; KV cache and graphs need room besides.",
        "hardware:\n  gpu: H100\n  count: 4  # <-\nmodel:\n  weights:\n    source: hf://reflection/Beam-1.0-501B-A23B-FP8"
        "\nquantization:\n  weights: fp8",
        "hardware:\n  gpu: B300\n  count: 4",
        "parameters × bytes; memory as sold",
        _memory,
    ),
)
