"""Inventories: which hosts there are, how to reach them, and where the weights lie on each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from beamdeploy import documents
from beamdeploy.documents import Document, Place
from beamdeploy.errors import InputError, Problem
from beamdeploy.gpu_access import GPUS
from beamdeploy.hosttree import Fact, Tree, grow, walk, walk_host
from beamdeploy.hostvars import SPELLINGS, Origin, Setting, read_variable

VARIABLE = "BEAMDEPLOY_INVENTORY"
DEFAULT = "inventories/default.yaml"


@dataclass(frozen=True)
class Host:
    """One server. None: not said (ssh's own configuration or a default of the recipe decides).

    `docker`: the words that start the docker client. `become`: run docker through `sudo -n`. `gpu_access`: how
    containers get the GPUs; `docker_args`: extra words for `docker run`. `hooks`: (when, words) of commands here.
    """

    name: str
    address: str | None = None
    user: str | None = None
    port: int | None = None
    connection: str = "ssh"
    model_dir: str | None = None
    gpus: tuple[int, ...] | None = None
    docker: tuple[str, ...] = ("docker",)
    known_hosts: str | None = None
    identity_file: str | None = None
    proxy_jump: str | None = None
    become: bool = False
    state_dir: str | None = None
    gpu_access: str = GPUS
    docker_args: tuple[str, ...] = ()
    hooks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rank_interface: str | None = None
    rank_address: str | None = None

    @property
    def state_folder(self) -> str:
        """Where the host keeps our state: absolute, or below the user's home, in which every command starts."""
        return (self.state_dir or ".local/state/beamdeploy").removeprefix("~/")

    @property
    def docker_words(self) -> tuple[str, ...]:
        """The words that every docker command on this host begins with."""
        return ("sudo", "-n", *self.docker) if self.become else self.docker


@dataclass(frozen=True)
class Inventory:
    """All hosts in the order in which they are written. `groups` holds `all`, `ungrouped` and every named group.

    `places`: (file, line, col) of each host's name; a host of the command line has none. `problems`: warnings.
    """

    hosts: tuple[Host, ...]
    groups: Mapping[str, tuple[str, ...]]
    places: Mapping[str, tuple[str, int, int]]
    problems: tuple[Problem, ...] = ()


def load_inventory(
    source: str | None,
    *,
    model_dir: str | None = None,
    gpus: tuple[int, ...] | None = None,
    environ: Mapping[str, str],
    text: str | None = None,
) -> Inventory:
    """The inventory that `-i` names: a file, a folder or `user@host,`; None: $BEAMDEPLOY_INVENTORY, else the default.

    `model_dir` and `gpus` complete the hosts that do not say them; `text` is the file's, where it was read already.
    InputError: all problems of all files.
    """
    source = source or environ.get(VARIABLE) or _default()
    facts = tuple(_facts(source) if text is None else _file(source, text))
    tree, problems = grow(facts)
    given, more = _given(model_dir, gpus)
    hosts, clashes = _hosts(tree, given)
    problems = (*problems, *more, *clashes)
    if not any(problem.level == "error" for problem in problems) and not hosts:
        problems = (*problems, _nobody(source))
    if any(problem.level == "error" for problem in problems):
        raise InputError(problems)
    return Inventory(hosts, tree.groups, _places(tree), problems)


def inventory_problems(file: str, text: str | None = None) -> tuple[Problem, ...]:
    """Everything that is wrong with one inventory file (or its text), warnings included."""
    try:
        return load_inventory(file, environ={}, text=text).problems
    except InputError as error:
        return error.problems


def _default() -> str:
    if Path(DEFAULT).is_file():
        return DEFAULT
    remedy = f"name one with -i (a file, a folder, or user@host,), set {VARIABLE}, or write {DEFAULT}"
    raise InputError((Problem("there is no inventory", remedy, where="inventory", rule="BD101"),))


def _nobody(source: str) -> Problem:
    return Problem(
        "the inventory names no host", "write one below all: hosts:, or name it: -i NAME,", where=source, rule="BD115"
    )


def _facts(source: str) -> Iterator[Fact]:
    if source == "sandbox":
        raise InputError((_sandbox(),))
    if "," in source:
        yield from _words(source)
        return
    for file in _files(source):
        yield from _file(file)


def _sandbox() -> Problem:
    # the one place where the sandbox joins: it is an ordinary ssh host, so its Member and Variables facts are all
    remedy = "start one with beamdeploy sandbox, or name another inventory"
    return Problem("no sandbox is running", remedy, where="-i sandbox", rule="BD121")


def _words(source: str) -> Iterator[Fact]:
    """The facts of the comma form: no variables but user and port in the names."""
    words = [word.strip() for word in source.split(",")]
    origin = Origin(words=f"-i {source}")
    for word in dict.fromkeys(words):
        if word:
            yield from walk_host(word, "ungrouped", None, origin)


def _files(source: str) -> tuple[str, ...]:
    path = Path(source)
    try:
        if not path.is_dir():
            return (source,)
        found = sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml") and each.name[0] != ".")
    except (OSError, ValueError) as error:
        raise InputError(
            (Problem(f"cannot be read: {error}", "make it readable", file=source, rule="BD101"),)
        ) from None
    if not found:
        remedy = "write a file of hosts into it, like hosts.yaml"
        raise InputError((Problem("the folder holds no .yaml or .yml file", remedy, file=source, rule="BD101"),))
    return tuple(map(str, found))


def _file(file: str, text: str | None = None) -> Iterator[Fact]:
    """The facts of one file and all that is wrong with it: as YAML, in shape, in our variables."""
    # here, since every module imports Host, and jsonschema is slow to import
    from beamdeploy import schema

    if text is None and file != "-" and not Path(file).exists() and re.fullmatch(r"[\w.@:\[\]%-]+", file):
        remedy = f"give the path of a file or folder; for a host write it with a comma: {file},"
        yield Problem("there is no such inventory", remedy, file=file, rule="BD101")
        return
    document, problems = documents.load(file, text)
    if document is None:
        yield from (_not_ini(problem) for problem in problems)
        return
    yield from _of_ours(document, problems)
    # our variables are explained by hostvars, in better words than a pattern has
    ours = {(mark.line, mark.col) for path, mark in document.values.items() if _variable(path) in SPELLINGS}
    yield from (each for each in schema.check(document, "inventory") if (each.line, each.col) not in ours)
    yield from walk(document)
    for folder in ("group_vars", "host_vars"):
        if (Path(file).parent / folder).is_dir():
            what, remedy = f"the folder {folder} beside it is not read", "write the variables into the inventory itself"
            yield Problem(what, remedy, file=file, rule="BD120", level="warning")


def _not_ini(problem: Problem) -> Problem:
    if problem.rule not in ("BD005", "BD010"):
        return problem
    remedy = f"{problem.remedy}; an INI inventory is turned into YAML by: ansible-inventory -i FILE --list --yaml"
    return Problem(problem.what, remedy, problem.where, problem.file, problem.line, problem.col, problem.rule)


# doubts about how YAML 1.1 reads a value, a tag or a vault: they matter only where we read the value
_OF_VALUES = frozenset({"BD008", "BD009", "BD015", "BD016", "BD019", "BD020", "BD021", "BD022", "BD023", "BD024"})


def _of_ours(document: Document, problems: Iterable[Problem]) -> Iterable[Problem]:
    """Problems without those about values of variables that are not ours: these pass untouched."""
    faulty = {path: _variable(path) for path in document.faults if path in document.values}
    marks = (document.values[path] for path, name in faulty.items() if name is not None and name not in SPELLINGS)
    untouched = {(mark.line, mark.col) for mark in marks}
    return (each for each in problems if each.rule not in _OF_VALUES or (each.line, each.col) not in untouched)


def _variable(path: Place) -> str | None:
    """The name of the variable that this path is (in) the value of; None: it is part of the tree itself."""
    rest = path[1:]
    while rest[:1] == ("children",):
        rest = rest[2:]
    names = rest[1:2] if rest[:1] == ("vars",) else rest[2:3] if rest[:1] == ("hosts",) else ()
    return names[0] if names and isinstance(names[0], str) else None


def _given(model_dir: str | None, gpus: tuple[int, ...] | None) -> tuple[tuple[Setting, ...], tuple[Problem, ...]]:
    options = (("--model-dir", "model_dir", model_dir), ("--gpus", "gpus", gpus))
    read = [read_variable(field, value, Origin(words=word)) for word, field, value in options if value is not None]
    settings = tuple(each for each in read if isinstance(each, Setting))
    return settings, tuple(each for each in read if isinstance(each, Problem))


def _hosts(tree: Tree, given: tuple[Setting, ...]) -> tuple[tuple[Host, ...], tuple[Problem, ...]]:
    problems = []
    for host, settings in tree.hosts.items():
        for option in given:
            said = settings.get(option.field, option)
            if said.value != option.value:
                problems.append(_other(host, option, said))
    return tuple(_host(name, settings, given) for name, settings in tree.hosts.items()), tuple(problems)


def _other(host: str, option: Setting, said: Setting) -> Problem:
    what = f"{said.spelling} of {host} is another one than {option.origin.words} says"
    return said.origin.fault(what, f"leave out {option.origin.words}, or change the inventory", rule="BD116")


_FIELDS = frozenset(field.name for field in fields(Host))


def _host(name: str, settings: Mapping[str, Setting], given: tuple[Setting, ...]) -> Host:
    # each value has the type of its field: hostvars read it
    values: dict[str, Any] = {option.field: option.value for option in given}
    values |= {field: setting.value for field, setting in settings.items() if field in _FIELDS}
    return Host(name, **values)


def _places(tree: Tree) -> dict[str, tuple[str, int, int]]:
    places = {}
    for host, origin in tree.origins.items():
        if origin.document is not None:
            places[host] = (origin.document.file, *origin.document.place(origin.path, key=True))
    return places
