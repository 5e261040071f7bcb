"""Rules on how the model is spread over GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from beamdeploy.rules.rule import Finding, Rule, Subject


def _gpus(subject: Subject) -> Iterator[Finding]:
    sizes = {path: subject.setting(path) or 1 for path in subject.traits.gpus}
    used, count, nodes = prod(sizes.values()), subject.recipe.gpus, subject.recipe.engine.nodes
    if not sizes or used == count:
        return
    said = " × ".join(f"{path}: {size}" for path, size in sizes.items() if size > 1 or path == subject.traits.gpus[0])
    there = f"hardware.count is {subject.recipe.hardware.count}" + (f" on each of {nodes} nodes" if nodes > 1 else "")
    what = f"{said} takes {used} GPU{'s' * (used != 1)}, {there}"
    remedy = f"Make both one number: hardware.count: {used}, or sizes whose product is {count}."
    if nodes > 1:
        remedy = f"Use sizes whose product is {count}, another hardware.count, or another engine.nodes."
    yield Finding("engine.tensor_parallel", what, remedy)


def sizes(heads: int, kv_heads: int, most: int) -> tuple[int, ...]:
    """The tensor-parallel sizes up to `most` that this many heads can be spread over.

    KV heads are split, or repeated where there are more GPUs than KV heads.
    """
    return tuple(
        size for size in range(1, most + 1) if heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)
    )


def heads_finding(whose: str, heads: int, kv_heads: int, size: int, gpus: int) -> Finding | None:
    """What is wrong with that tensor-parallel size; None: nothing."""
    if heads % size:
        what = f"{heads} attention heads of {whose} cannot be split over engine.tensor_parallel: {size}"
    elif kv_heads % size and size % kv_heads:
        what = (
            f"{kv_heads} KV heads of {whose} cannot be split over engine.tensor_parallel: {size}, "
            f"and {size} is no multiple of {kv_heads} either"
        )
    else:
        return None
    fitting = ", ".join(map(str, sizes(heads, kv_heads, gpus)))
    return Finding("engine.tensor_parallel", what, f"Within {gpus} GPU{'s' * (gpus != 1)} these would work: {fitting}.")


def _heads(subject: Subject) -> Iterator[Finding]:
    model, recipe = subject.model, subject.recipe
    if model is not None:
        found = heads_finding(model.name, model.heads, model.kv_heads, recipe.engine.tensor_parallel, recipe.gpus)
        yield from [found] if found else []


def _drafter_heads(subject: Subject) -> Iterator[Finding]:
    drafter, recipe = subject.drafter, subject.recipe
    size, whose = recipe.engine.tensor_parallel, "the drafter"
    if drafter is None:
        return
    found = heads_finding(f"{whose} {drafter.name}", drafter.heads, drafter.kv_heads, size, recipe.gpus)
    if found is None and drafter.kv_heads % size and recipe.engine.name == "vllm":
        what = f"{drafter.kv_heads} KV heads of {whose} are not repeated by vLLM for engine.tensor_parallel: {size}"
        found = Finding("engine.tensor_parallel", what, "Use at most as many as there are KV heads.")
    yield from [found] if found else []


def _experts(subject: Subject) -> Iterator[Finding]:
    size = subject.recipe.engine.expert_parallel
    gpus = subject.recipe.gpus
    if size is None:
        return
    if size > gpus:
        what = f"engine.expert_parallel: {size} is more than {_there(subject)}"
        yield Finding("engine.expert_parallel", what, f"Use at most {gpus}.")
    elif gpus % size:
        what = f"engine.expert_parallel: {size} does not divide {_there(subject)}"
        yield Finding("engine.expert_parallel", what, "Use a size that divides the number of GPUs.")
    elif subject.model is not None and subject.model.experts % size:
        what = f"{subject.model.experts} experts of {subject.model.name} cannot be split over {size} GPUs"
        yield Finding("engine.expert_parallel", what, "Use a size that divides the number of experts.")
    elif 1 < size < gpus and subject.recipe.engine.name == "tokenspeed":
        what = f"engine.expert_parallel: {size} of {gpus} GPUs would split experts both whole and in parts"
        yield Finding("engine.expert_parallel", what, f"TokenSpeed takes 1 or {gpus}.", "warning")


def _there(subject: Subject) -> str:
    nodes, count = subject.recipe.engine.nodes, subject.recipe.hardware.count
    return f"hardware.count: {count}" if nodes == 1 else f"the {subject.recipe.gpus} GPUs of {nodes} nodes"


def _sequences(subject: Subject) -> Iterator[Finding]:
    replicas = subject.recipe.engine.data_parallel or 1
    if subject.recipe.engine.name != "tokenspeed" or replicas == 1:
        return
    seqs = subject.recipe.engine.max_num_seqs
    if seqs is not None and seqs < replicas:
        what = f"engine.max_num_seqs: {seqs} is less than engine.data_parallel: {replicas}"
        yield Finding("engine.max_num_seqs", what, f"Allow at least {replicas}: one for each replica.")
    chunk, prefill = subject.recipe.engine.chunked_prefill_size, subject.argument("--max-prefill-tokens")
    limit = prefill if isinstance(prefill, int) and not isinstance(prefill, bool) else 8192
    if chunk is not None and chunk > limit:
        what = f"engine.chunked_prefill_size: {chunk} is more than --max-prefill-tokens ({limit})"
        yield Finding(
            "engine.chunked_prefill_size", what, f"With data parallel use at most {limit}, or raise max-prefill-tokens."
        )


RULES = (
    Rule(
        "BD340",
        "The parallel sizes do not make the number of GPUs",
        "error",
        "The container gets hardware.count GPUs; the engine starts one rank for each of tensor × data × pipeline "
        "parallel and ends when a rank finds no GPU, or leaves GPUs unused.",
        "engine:\n  tensor_parallel: 8  # <-\nhardware:\n  count: 4",
        "engine:\n  tensor_parallel: 4\nhardware:\n  count: 4",
        "TokenSpeed 0.1.1 runtime/utils/server_args.py:866; vLLM 0.33.0 config/parallel.py:1072",
        _gpus,
    ),
    Rule(
        "BD341",
        "The model's heads cannot be spread over that many GPUs",
        "error",
        "Attention heads must divide by tensor parallel; KV heads must divide, or be repeated a whole number of times. "
        "Engines assert it while layers are built.",
        "engine:\n  tensor_parallel: 5  # <-\nhardware:\n  count: 5",
        "engine:\n  tensor_parallel: 8\nhardware:\n  count: 8",
        "TokenSpeed 0.1.1 distributed/utils.py:45; vLLM 0.33.0 config/model.py:1562; SGLang 0.5.23 models/beam.py",
        _heads,
    ),
    Rule(
        "BD342",
        "The drafter's heads cannot be spread over that many GPUs",
        "error",
        "The drafter runs on the same ranks as the model and has its own number of heads: Beam's has 40 where Beam has "
        "48, so that 16 GPUs fit the one and not the other.",
        "engine:\n  tensor_parallel: 16  # <-\nhardware:\n  count: 16",
        "engine:\n  tensor_parallel: 8\nhardware:\n  count: 8",
        "the card of Beam-1.0-501B-A23B-DFlash2; vLLM 0.33.0 models/beam/nvidia/dflash2.py",
        _drafter_heads,
    ),
    Rule(
        "BD343",
        "The experts cannot be spread over that many GPUs",
        "error",
        "Expert parallel spreads whole experts over the GPUs that there are.",
        "engine:\n  expert_parallel: 8  # <-",
        "engine:\n  expert_parallel: 4",
        "TokenSpeed 0.1.1 runtime/layers/moe/expert.py:155, runtime/utils/server_args.py:987",
        _experts,
    ),
    Rule(
        "BD344",
        "Data parallel with too few sequences or too long a chunk",
        "error",
        "With attention data parallel each replica needs a sequence, and a chunk may not exceed --max-prefill-tokens.",
        "engine:\n  tensor_parallel: 2\n  data_parallel: 2\n  max_num_seqs: 1  # <-\n  args:\n    dist-init-addr: "
        "127.0.0.1:23456",
        "engine:\n  tensor_parallel: 2\n  data_parallel: 2\n  max_num_seqs: 8\n  args:\n    dist-init-addr: "
        "127.0.0.1:23456",
        "TokenSpeed 0.1.1 runtime/utils/server_args.py:1830, 1838",
        _sequences,
    ),
)
