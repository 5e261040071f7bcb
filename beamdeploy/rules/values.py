"""Rules on the recipe's own settings whose values the engine must know: parsers, backends, number formats."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.documents import Place
from beamdeploy.engines.catalog import Flag
from beamdeploy.rules.rule import Finding, Rule, Subject, closest, listed

PARSERS = ("parsers.tool_call", "parsers.reasoning")
BACKENDS = ("engine.attention_backend", "engine.moe_backend", "speculative.attention_backend")
FORMATS = ("quantization.weights", "quantization.dtype", "quantization.kv_cache")
CHECKED = (*PARSERS, *BACKENDS, *FORMATS, "speculative.method", "hardware.gpu")


def verdict(subject: Subject, flag: Flag, value: str, path: Place) -> Finding | None:
    """What is wrong with a value that the catalog of this flag lacks; None: it is known, or anything is taken.

    Where the engine's own parser refuses all else it is an error. Where other builds may know more, it is an error
    when it looks misspelt, else a warning: both become notes when the recipe calls it unverified.
    """
    known = (*flag.choices, *flag.known_values)
    if not known or value in known or (flag.nullable and value.lower() == "none"):
        return None
    assert subject.catalog is not None
    said = ".".join(map(str, path))
    what = f"{said}: {value} is not among the values of {flag.name} in the catalog {subject.catalog.version}"
    if subject.unverified(path):
        return Finding(path, f"{what}; it is checked only when the server has loaded", _MEANT, "info")
    near = closest(value, _fitting(subject, known))
    firm = bool(flag.choices) and not flag.varies
    remedy = f"Did you mean {near}? " if near else f"Known: {listed(known)}. "
    if not firm:
        remedy += f"If this image takes {value}, say so: engine.unverified: [{said}]."
    return Finding(path, what, remedy.rstrip(), "error" if firm or near else "warning")


def _fitting(subject: Subject, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names without the attention backends that are for another kind of attention than the model's."""
    if subject.model is None:
        return known
    families = subject.traits.families
    others = {name for family, names in families.items() if family != subject.model.attention for name in names}
    return tuple(name for name in known if name not in others)


_MEANT = "engine.unverified names it: nothing is to be done."


def unknown(subject: Subject, setting: str) -> Finding | None:
    """What is wrong with a setting's value; None: nothing, or it is not set."""
    value = subject.setting(setting)
    flags = subject.traits.settings.get(setting, ())
    flag = subject.flag(flags[0]) if flags else None
    if value is None or flag is None or not isinstance(value, str):
        return None
    if setting == "quantization.weights" and subject.engine and value in subject.engine.checkpoint_says:
        return None
    return verdict(subject, flag, value, tuple(setting.split(".")))


def _of(subject: Subject, settings: tuple[str, ...]) -> Iterator[Finding]:
    found = (unknown(subject, setting) for setting in settings)
    yield from (finding for finding in found if finding is not None)


def _parsers(subject: Subject) -> Iterator[Finding]:
    return _of(subject, PARSERS)


def _backends(subject: Subject) -> Iterator[Finding]:
    return _of(subject, BACKENDS)


def _formats(subject: Subject) -> Iterator[Finding]:
    return _of(subject, FORMATS)


RULES = (
    Rule(
        "BD330",
        "The parser's name is not in the catalog",
        "error",
        "TokenSpeed gives parser names to its gateway, which starts when the weights are loaded: a misspelt name fails "
        "after twenty minutes. The list is compiled into the image, so that a name which resembles none may be right.",
        "parsers:\n  tool_call: beem  # <-",
        "parsers:\n  tool_call: beam",
        "tokenspeed-smg 1.10.1 router_args.py; TokenSpeed 0.1.1 cli/_argsplit.py",
        _parsers,
    ),
    Rule(
        "BD331",
        "The backend's name is not in the catalog",
        "error",
        "Attention backends are looked up when the weights have been read; mixture-of-experts backends while layers "
        "are built. Names differ between builds of one engine: 0.1.1 has trtllm where the Beam image takes trtllm_mha.",
        "engine:\n  attention_backend: trtlm_mha  # <-",
        "engine:\n  attention_backend: trtllm_mha",
        "TokenSpeed 0.1.1 runtime/layers/attention/registry.py",
        _backends,
    ),
    Rule(
        "BD332",
        "The number format is none that the engine takes",
        "error",
        "Quantization, computation and KV cache types are fixed choices of the engine's argument parser.",
        "quantization:\n  kv_cache: fp8_e5m2  # <-",
        "quantization:\n  kv_cache: fp8_e4m3",
        "TokenSpeed 0.1.1 runtime/utils/server_args.py",
        _formats,
    ),
)
