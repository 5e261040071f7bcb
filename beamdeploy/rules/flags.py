"""Rules on engine.args: which flags there are, and whose they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from beamdeploy.engines.catalog import Flag, catalog, catalogs
from beamdeploy.engines.traits import described, traits
from beamdeploy.rules.rule import Finding, Rule, Subject


def arguments(subject: Subject) -> Iterator[tuple[str, Any, Flag | None]]:
    """(name as written, value, its flag) of engine.args. Without a catalog there is nothing to compare with."""
    if subject.catalog is None:
        return
    for name, value in subject.recipe.engine.args.items():
        yield name, value, subject.catalog.names.get(f"--{name}") or _dotted(subject, name)


def _dotted(subject: Subject, name: str) -> Flag | None:
    """vLLM takes `--flag.key value` for its JSON flags."""
    head = subject.flag(f"--{name.partition('.')[0]}") if "." in name else None
    return head if head is not None and head.type == "json" and subject.recipe.engine.name == "vllm" else None


def _unknown(subject: Subject) -> Iterator[Finding]:
    for name, _, flag in arguments(subject):
        meant = subject.unverified(("engine", "args", name))
        if flag is None and (meant or _elsewhere(subject, f"--{name}") is None):
            yield _unknown_flag(subject, name)


def _elsewhere(subject: Subject, spelled: str) -> tuple[str, str] | None:
    """(whose flag it is, what says the same here or "") for a flag that this engine lacks; None: nobody's."""
    own = subject.traits.counterparts.get(spelled)
    for engine in described():
        theirs = catalog(engine, catalogs(engine)[0]) if engine != subject.recipe.engine.name else None
        flag = theirs.names.get(spelled) if theirs else None
        if flag is not None and theirs is not None:
            found = traits(engine)
            return f"of {engine} {theirs.version}", own or (found.setting_of(flag.name) if found else None) or ""
    return None if own is None else ("of another engine or version", own)


def _unknown_flag(subject: Subject, name: str) -> Finding:
    assert subject.catalog is not None
    path = ("engine", "args", name)
    what = f"engine.args.{name}: the catalog {subject.catalog.version} of {subject.catalog.engine} has no --{name}"
    if subject.unverified(path):
        return Finding(path, f"{what}; it is checked only when the server has loaded", _MEANT, "info", key=True)
    near = subject.catalog.near(f"--{name}")
    remedy = f"Did you mean {near.removeprefix('--')}?" if near else "Remove it."
    if subject.catalog.open:
        remedy += f" If this image takes it, say so: engine.unverified: [engine.args.{name}]."
    return Finding(path, what, remedy, "error" if near or not subject.catalog.open else "warning", key=True)


_MEANT = "engine.unverified names it: nothing is to be done."


def _foreign(subject: Subject) -> Iterator[Finding]:
    for name, _, flag in arguments(subject):
        found = _elsewhere(subject, f"--{name}") if flag is None else None
        if found is None or subject.unverified(("engine", "args", name)):
            continue
        assert subject.catalog is not None
        whose, ours = found
        what = f"engine.args.{name} is a flag {whose}, not of {subject.catalog.engine} {subject.catalog.version}"
        remedy = "Remove it: nothing known here says the same."
        if ours:
            remedy = f"Write {ours[2:]}." if ours[0] == "-" else f"Say it in {ours}{_as_flag(subject, ours)}."
        yield Finding(("engine", "args", name), what, remedy, "warning" if subject.catalog.open else None, key=True)


def _as_flag(subject: Subject, setting: str) -> str:
    flags = subject.traits.settings.get(setting, ())
    return f" ({flags[0]} of {subject.recipe.engine.name})" if flags else ""


def _settings(subject: Subject) -> Iterator[Finding]:
    for name, value, flag in arguments(subject):
        setting = subject.traits.setting_of(flag.name) if flag else None
        if setting is None:
            continue
        mine = subject.setting(setting)
        there = f"{setting}: {mine}" if isinstance(mine, (str, int, float)) else setting
        what = f"engine.args.{name}{'' if value is True else f': {value}'} sets what {there} sets"
        yield Finding(("engine", "args", name), what, f"Remove it, and say it in {setting} alone.", key=True)


def _twice(subject: Subject) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for name, _, flag in arguments(subject):
        if flag is None or "." in name:
            continue
        first = seen.setdefault(flag.name, name)
        if first != name:
            what = f"engine.args.{name} and engine.args.{first} are one flag, {flag.name}"
            yield Finding(("engine", "args", name), what, "Keep one of them.", key=True)


def _deprecated(subject: Subject) -> Iterator[Finding]:
    for name, _, flag in arguments(subject):
        if flag is not None and flag.deprecated:
            assert subject.catalog is not None
            what = f"engine.args.{name} is deprecated in {subject.catalog.engine} {subject.catalog.version}"
            yield Finding(("engine", "args", name), what, "Remove it; the next version may refuse it.", key=True)


RULES = (
    Rule(
        "BD310",
        "The flag is not in the engine's catalog",
        "error",
        "TokenSpeed hands every flag that its engine does not know to the gateway, which refuses it when the weights "
        "are loaded, after twenty minutes; vLLM and SGLang end at once. In an open catalog, a flag that resembles none "
        "is a warning.",
        "engine:\n  args:\n    max-prefil-tokens: 8192  # <-",
        "engine:\n  args:\n    max-prefill-tokens: 8192",
        "TokenSpeed 0.1.1 cli/_argsplit.py",
        _unknown,
    ),
    Rule(
        "BD311",
        "The flag belongs to another engine",
        "error",
        "The same setting has another name in each engine. A flag of vLLM given to TokenSpeed is refused after the "
        "load. It is a warning where the catalog is open, since the image may take it.",
        "engine:\n  args:\n    max-num-batched-tokens: 8192  # <-",
        "engine:\n  chunked_prefill_size: 8192",
        "TokenSpeed 0.1.1, vLLM 0.33.0 and SGLang 0.5.23 argument parsers",
        _foreign,
    ),
    Rule(
        "BD312",
        "The flag sets what a section of the recipe sets",
        "error",
        "Every value has one place, so that no flag overrides in silence what the recipe says. Some pairs the engine "
        "refuses as well: --tensor-parallel-size with --attn-tp-size, the model given twice.",
        "engine:\n  args:\n    attn-tp-size: 4  # <-",
        "engine:\n  tensor_parallel: 4",
        "TokenSpeed 0.1.1 runtime/utils/server_args.py:3456",
        _settings,
    ),
    Rule(
        "BD313",
        "One flag is given twice",
        "error",
        "Two spellings of a flag, or a switch and its opposite: which one would hold depends on their order.",
        "engine:\n  args:\n    prefix-granularity: 64\n    block-size: 128  # <-",
        "engine:\n  args:\n    prefix-granularity: 64",
        "",
        _twice,
    ),
    Rule(
        "BD314",
        "The flag is deprecated",
        "warning",
        "It still works in this version, and may be gone in the next.",
        "engine:\n  args:\n    enable-replay-ssm: true  # <-",
        "engine:\n  args:\n    enable-mixed-batch: true",
        "the help of the engine's argument parser",
        _deprecated,
    ),
)
