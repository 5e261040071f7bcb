"""Rules on settings that exclude each other: `needs` of the engine's traits.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from beamdeploy.documents import Place
from beamdeploy.rules.rule import Finding, Rule, Subject, whole


def _needs(subject: Subject) -> Iterator[Finding]:
    for need in subject.traits.needs:
        if need.get("on_one_node") and subject.recipe.engine.nodes > 1:
            continue
        cause = _cause(subject, need)
        if cause is not None:
            yield from _lacking(subject, need, *cause)


def _cause(subject: Subject, need: Mapping[str, Any]) -> tuple[Place, str] | None:
    """Where, and in which words, the recipe says what has the need; None: it does not."""
    for path, value in need.get("when", {}).items():
        if subject.setting(path) == value and subject.setting(path) is not None:
            return tuple(path.split(".")), f"{path}: {_yaml(value)}"
    for path, value in need.get("when_above", {}).items():
        if (subject.setting(path) or 0) > value:
            return tuple(path.split(".")), f"{path}: {subject.setting(path)}"
    for name, above in need.get("when_flag_above", {}).items():
        if (whole(subject.argument(name)) or 0) > above:
            return _place(subject, name), f"{name} {subject.argument(name)}"
    name = need.get("when_flag")
    return (_place(subject, name), name) if name and subject.argument(name) is not None else None


def _lacking(subject: Subject, need: Mapping[str, Any], path: Place, cause: str) -> Iterator[Finding]:
    for setting, value in need.get("wants", {}).items():
        holds = subject.holds(setting)
        if holds != value:
            default = "" if subject.setting(setting) is not None else ", the default"
            what = f"{cause} needs {setting}: {_yaml(value)}, which is {_yaml(holds)}{default}: {need['why']}"
            yield Finding(path, what, f"Set {setting}: {_yaml(value)}, or leave the other out.")
    for name, value in need.get("wants_flag", {}).items():
        given = subject.argument(name)
        if given is None or (value is not None and str(given) != str(value)):
            wanted = name.removeprefix("--") + (f": {value}" if value is not None else "")
            what = f"{cause} needs {name}{f' {value}' if value is not None else ''} in engine.args: {need['why']}"
            yield Finding(path, what, f"Add {wanted} to engine.args, or leave the other out.")


def _place(subject: Subject, name: str) -> Place:
    """Where engine.args gives this flag."""
    for key in subject.recipe.engine.args:
        flag = subject.flag(f"--{key}")
        if f"--{key}" == name or (flag is not None and flag.name == name):
            return ("engine", "args", key)
    return ("engine", "args")


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _capture(subject: Subject) -> Iterator[Finding]:
    largest, seqs = subject.recipe.engine.max_cudagraph_capture_size, subject.recipe.engine.max_num_seqs
    unit = subject.traits.graph_unit
    if not unit or not largest or seqs is None:
        return
    width = width_of(subject) if unit == "tokens" else 1
    fitting = seqs * width
    if largest != fitting:
        rest = "batches above it run without graphs" if largest < fitting else "graphs above it take memory for nothing"
        said = f"engine.max_cudagraph_capture_size: {largest} and engine.max_num_seqs: {seqs}"
        each = f", each of {width} tokens," if width > 1 else ""
        what = f"{said}{each} differ: {rest}"
        remedy = f"{subject.recipe.engine.name} counts {unit}: write {fitting}, unless another number is meant."
        yield Finding("engine.max_cudagraph_capture_size", what, remedy)


def width_of(subject: Subject) -> int:
    """The tokens that a decoding request has in a step: one, and those that are drafted."""
    speculative = subject.recipe.speculative
    return 1 + (speculative.num_speculative_tokens or 0) if speculative else 1


RULES = (
    Rule(
        "BD375",
        "Settings that exclude each other",
        "error",
        "The engine refuses the combination at its start. What holds when a setting is left out counts as well: "
        "TokenSpeed's KV store is on unless it is turned off.",
        "engine:\n  prefix_caching: false  # <-\n  kvstore: true",
        "engine:\n  prefix_caching: false\n  kvstore: false",
        "TokenSpeed 0.1.1 runtime/utils/server_args.py:1604, 1591, 1579, 1469, 3540",
        _needs,
    ),
    Rule(
        "BD376",
        "CUDA graphs are captured for other batches than are served",
        "info",
        "TokenSpeed and SGLang count requests, vLLM counts tokens: a request has as many in a step as are drafted, and "
        "one. Larger batches than the largest graph run slower; graphs for larger ones are never used.",
        "engine:\n  max_num_seqs: 8\n  max_cudagraph_capture_size: 64  # <-",
        "engine:\n  max_num_seqs: 8\n  max_cudagraph_capture_size: 8",
        "TokenSpeed 0.1.1 runtime/utils/server_args.py:2911",
        _capture,
    ),
)
