"""Rules on which engine, which catalog, and what the recipe says is not in it."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy import engines
from beamdeploy.engines.catalog import catalogs
from beamdeploy.rules.rule import Finding, Rule, Subject, closest, listed
from beamdeploy.rules.values import CHECKED, unknown, verdict


def _engine(subject: Subject) -> Iterator[Finding]:
    name = subject.recipe.engine.name
    if subject.engine is None:
        near = closest(name, engines.names())
        remedy = f"Did you mean {near}?" if near else f"Known: {listed(engines.names())}."
        yield Finding("engine.name", f"engine.name: there is no engine {name}", remedy)


def _catalog(subject: Subject) -> Iterator[Finding]:
    if subject.engine is None or subject.catalog is not None or not _wants_catalog(subject):
        return
    name, wanted = subject.engine.name, subject.recipe.engine.catalog or subject.engine.catalog
    known = catalogs(name)
    near = closest(wanted, known, 0.5)
    remedy = f"Did you mean {near}?" if near else f"{name} has: {listed(known)}."
    yield Finding("engine.catalog", f"engine.catalog: {name} has no flag catalog {wanted}", remedy)


def _wants_catalog(subject: Subject) -> bool:
    """An engine without a catalog has none to be missed, unless one is named."""
    return bool(subject.engine and (subject.engine.catalog or subject.recipe.engine.catalog))


def _section(subject: Subject) -> Iterator[Finding]:
    if subject.engine is None:
        return
    section, reaches = subject.recipe.source["engine"], subject.engine.reaches
    own = "engine.command" in reaches
    if own and "command" not in section:
        what = f"engine.command is not set: {subject.engine.name} knows no command of its own"
        yield Finding("engine", what, "Give the words after the entrypoint, as a list.", key=True)
    if not own and "tensor_parallel" not in section:
        yield Finding("engine", "engine.tensor_parallel is not set", "Give the number of GPUs.", key=True)
    if own:
        yield from _lost(subject, reaches)
        return
    for key in ("command", "entrypoint", "port", "ready"):
        if key in section:
            what = f"engine.{key} is for servers that beamdeploy does not know; it knows {subject.engine.name}"
            yield Finding(f"engine.{key}", what, "Remove it, or write name: openai.", key=True)


def _lost(subject: Subject, reaches: tuple[str, ...]) -> Iterator[Finding]:
    """What the recipe says and this engine's words would not."""
    for head in ("engine", "quantization", "parsers", "speculative"):
        said = subject.recipe.source.get(head) or {}
        for key in (key for key, value in said.items() if value not in ({}, [])):
            path = f"{head}.{key}"
            if path not in reaches:
                what = f"{path} reaches no word of the command"
                yield Finding(path, what, "Say it in engine.command, and remove it here.", key=True)


def _nothing_there(subject: Subject) -> Iterator[Finding]:
    for index, path in enumerate(subject.recipe.engine.unverified):
        argument = path.removeprefix("engine.args.")
        there = argument in subject.recipe.engine.args if argument != path else path in CHECKED
        if there and (argument != path or subject.setting(path) is not None):
            continue
        near = closest(path, CHECKED)
        what = (
            f"engine.unverified: the recipe sets no {path}"
            if path in CHECKED
            else (f"engine.unverified: {path} is no setting whose value is compared with a list")
        )
        remedy = f"Did you mean {near}?" if near and near != path else "Remove it from engine.unverified."
        yield Finding(("engine", "unverified", index), what, remedy)


def _verified(subject: Subject) -> Iterator[Finding]:
    for index, path in enumerate(subject.recipe.engine.unverified):
        if subject.catalog is not None and _is_known(subject, path):
            what = f"engine.unverified: {path} is as the catalog {subject.catalog.version} has it"
            yield Finding(("engine", "unverified", index), what, "Remove it: it is checked like any other setting.")


def _is_known(subject: Subject, path: str) -> bool:
    """Whether the setting, or the flag with its value, needs no exception."""
    name = path.removeprefix("engine.args.")
    if name == path:
        return path in CHECKED and subject.setting(path) is not None and unknown(subject, path) is None
    flag, value = subject.flag(f"--{name}"), subject.recipe.engine.args.get(name)
    if flag is None or value is None:
        return False
    return not isinstance(value, str) or verdict(subject, flag, value, ("engine", "args", name)) is None


RULES = (
    Rule(
        "BD301",
        "The engine is not known",
        "error",
        "Words, start-up rules and log lines belong to one engine; without them nothing can be rendered or checked.",
        "engine:\n  name: tokenspeeed  # <-",
        "engine:\n  name: tokenspeed",
        "the folders of beamdeploy/engines",
        _engine,
    ),
    Rule(
        "BD302",
        "The flag catalog is not known",
        "error",
        "A catalog is the list of flags that one version or image of an engine takes. Without it no flag is checked "
        "before the server has loaded.",
        "engine:\n  catalog: bean  # <-",
        "engine:\n  catalog: beam",
        "the files flags-CATALOG.json of the engine's folder",
        _catalog,
    ),
    Rule(
        "BD303",
        "engine.unverified names a setting that is not there",
        "warning",
        "The list says which values are meant although no catalog knows them. A name in it that the recipe does not "
        "set, or that no catalog checks, hides nothing and is probably misspelt.",
        "engine:\n  unverified:\n    - parsers.tool_calls  # <-",
        "engine:\n  unverified:\n    - parsers.tool_call\nparsers:\n  tool_call: beam2",
        "",
        _nothing_there,
    ),
    Rule(
        "BD304",
        "engine.unverified names a setting whose value is known",
        "warning",
        "The value is in the catalog, so that the exception is not needed any more; left there, it would hide a later "
        "misspelling.",
        "engine:\n  unverified:\n    - parsers.tool_call  # <-",
        "engine:\n  unverified:\n    - parsers.tool_call\nparsers:\n  tool_call: beam2",
        "",
        _verified,
    ),
    Rule(
        "BD305",
        "The section does not fit the engine",
        "error",
        "A server that beamdeploy does not know (name: openai) is given by its command, port and readiness path alone; "
        "other settings would reach nothing. An engine that it knows has these, and needs tensor_parallel.",
        "engine:\n  port: 8080  # <-",
        "engine:\n  name: tokenspeed",
        "",
        _section,
    ),
)
