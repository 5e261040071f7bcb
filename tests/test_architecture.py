"""The house as data: which module may import what. A new module gets its place in ORDER."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "beamdeploy"

# From left to right. A module imports from its left, from its own package, and from those in its own place
# (a cycle is refused there too).
# `remote_NAME.py` stands where `remote` stands.
ORDER = (
    ("errors", "caches", "regular"),
    ("outcome",),
    ("documents",),
    ("schema",),
    ("image", "gpu_access", "plaintext", "hostvalues", "hardware", "models", "variants"),
    ("hostvars",),
    ("hosttree",),
    ("recipe", "inventory", "lock"),
    ("patterns",),
    ("engines",),
    ("rules",),
    ("check", "library", "dockerrun", "composefile", "vllmrecipe"),
    ("importing", "exporting"),
    ("label", "ranks"),
    ("render",),
    ("remote",),
    ("web",),
    ("registry",),
    ("endpoint", "exchange", "apikey"),
    ("served", "completion"),
    ("look",),
    ("weights",),
    ("fit",),
    ("preflight", "imprint", "probe"),
    ("plan",),
    ("joined",),
    ("secrets", "hooks"),
    ("smoke",),
    ("gpu_memory",),
    ("act", "beforehand", "daemon", "ready", "diagnose", "startup", "health", "watch", "lasting", "steps"),
    ("fleet", "run", "standstill", "hostlock", "regain", "kept"),
    ("record", "recap"),
    ("survey",),
    ("execute", "precheck", "sizing"),
    ("together", "reunion"),
    ("deploy",),
    ("takedown", "status", "logs", "pin", "verify", "stage", "history", "doctor", "failed", "prune", "top"),
    ("contract", "tunnel", "chat", "client", "bench"),
    ("report",),
    ("sandbox",),
    ("trial",),
    ("cli",),
    ("__main__",),
)
# Of what is on their left, these import this alone: a report is data, and the emulated host knows no way to a host.
ONLY: Mapping[str, frozenset[str]] = {
    "report": frozenset({"errors", "outcome"}),
    "sandbox": frozenset(
        {
            "errors",
            "caches",
            "regular",
            "documents",
            "schema",
            "image",
            "gpu_access",
            "recipe",
            "inventory",
            "lock",
            "rules",
            "engines",
            "render",
        }
    ),
}
IMPORTERS: Mapping[str, frozenset[str]] = {
    "jinja2": frozenset({"render"}),
    "fabric": frozenset({"remote", "sandbox"}),
    "paramiko": frozenset({"remote", "sandbox"}),
    "invoke": frozenset({"remote", "sandbox"}),
    "subprocess": frozenset({"remote", "hooks", "sandbox"}),
    "rich": frozenset({"report"}),
    "click": frozenset({"cli"}),
}
# The programs of the sandbox (its engine, its nvidia-smi) are programs of their own and print as those do.
PRINTERS = frozenset({"report", "cli", "sandbox"})
NO_SUBJECT = frozenset({"utils", "util", "core", "common", "base", "manager", "helpers", "helper", "misc"})
LONGEST_MODULE = 320
LONGEST_FUNCTION = 45
# "beamdeploy.module" or "beamdeploy.module:function" → how long it may be, with the reason beside it.
LONGER: Mapping[str, int] = {}


def name_of(path: Path) -> str:
    """beamdeploy/look/facts.py → beamdeploy.look.facts; beamdeploy/look/__init__.py → beamdeploy.look"""
    words = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


@cache
def trees() -> Mapping[str, ast.Module]:
    """Every module of the package; not at import, since each worker of the tests imports this."""
    return {name_of(path): ast.parse(path.read_bytes(), path) for path in sorted(PACKAGE.rglob("*.py"))}


def top_of(module: str) -> str:
    """beamdeploy.look.facts → look; beamdeploy → "" """
    return [*module.split("."), ""][1]


def family_of(module: str) -> str:
    """beamdeploy.remote_local → remote"""
    return top_of(module).partition("_")[0]


def place_of(module: str) -> int | None:
    """The index in ORDER; -1 for the package itself; None: it has no place."""
    top = top_of(module)
    if top == "":
        return -1
    places = {name: index for index, names in enumerate(ORDER) for name in names}
    return places.get(top, places.get(family_of(module)))


def nodes_of(tree: ast.AST, *, inside_functions: bool) -> Iterator[ast.AST]:
    """Every node of the tree; without those inside functions, what runs (or is typed) at the module's import."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from nodes_of(node, inside_functions=inside_functions)


def imports_of(tree: ast.Module, *, inside_functions: bool = True) -> Iterator[str]:
    """All modules that are imported anywhere in the text, or outside functions only."""
    for node in nodes_of(tree, inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (part if part in trees() else str(node.module) for part in parts)


def ours(*, inside_functions: bool = True) -> Iterator[tuple[str, str]]:
    """(importer, imported) of our own modules."""
    for module, tree in trees().items():
        targets = imports_of(tree, inside_functions=inside_functions)
        yield from ((module, target) for target in targets if target.split(".")[0] == "beamdeploy")


def functions() -> Iterator[tuple[str, int]]:
    """(module:function, number of lines)"""
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{module}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def prints(tree: ast.Module) -> bool:
    """Whether a module calls print or names sys.stdout or sys.stderr."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    streams = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return "print" in names or bool(streams & {"stdout", "stderr"} and "sys" in names)


def test_every_module_has_a_place_in_the_order() -> None:
    assert [module for module in trees() if place_of(module) is None] == []


def test_a_module_imports_only_from_its_left() -> None:
    places = [(module, target, place_of(module), place_of(target)) for module, target in ours()]
    wrong = [(m, t) for m, t, own, other in places if own is not None and other is not None and own < other]
    assert wrong == []


def test_the_package_itself_imports_nothing() -> None:
    assert list(imports_of(trees()["beamdeploy"])) == []


def test_report_and_sandbox_import_only_what_they_may() -> None:
    wrong = [
        (module, target)
        for module, target in ours()
        if top_of(module) in ONLY and top_of(target) not in {*ONLY[top_of(module)], top_of(module), ""}
    ]
    assert wrong == []


def test_no_two_modules_import_each_other() -> None:
    # A package may open a heavy part of its own inside a function; between packages that hides no cycle.
    lazy_within = {pair for pair in ours() if top_of(pair[0]) == top_of(pair[1])} - set(ours(inside_functions=False))
    graph: dict[str, set[str]] = {module: set() for module in trees()}
    for module, target in set(ours()) - lazy_within:
        graph[module] |= {target} - {module}
    try:
        TopologicalSorter(graph).prepare()
        cycle = []
    except CycleError as error:
        cycle = error.args[1]
    assert cycle == []


def test_a_library_is_imported_only_where_it_belongs() -> None:
    wrong = [
        (module, target)
        for module, tree in trees().items()
        for target in imports_of(tree)
        if family_of(module) not in IMPORTERS.get(target.split(".")[0], {family_of(module)})
    ]
    assert wrong == []


def test_only_report_and_cli_print() -> None:
    assert [module for module, tree in trees().items() if top_of(module) not in PRINTERS and prints(tree)] == []


def test_every_module_is_named_after_its_subject() -> None:
    assert [module for module in trees() if NO_SUBJECT & set(module.split("."))] == []


def test_a_module_is_about_one_thing() -> None:
    lengths = {
        name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(PACKAGE.rglob("*.py"))
    }
    assert {module: n for module, n in lengths.items() if n > LONGER.get(module, LONGEST_MODULE)} == {}


def test_a_function_is_about_one_thing() -> None:
    assert {name: n for name, n in functions() if n > LONGER.get(name, LONGEST_FUNCTION)} == {}


def test_every_exception_to_the_lengths_is_needed() -> None:
    assert set(LONGER) <= {*trees(), *(name for name, _ in functions())}
