"""Which docker subcommands, flags and formats the package's sources hold, and which the suite tries."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from beamdeploy.sandbox.docker.words import COMMANDS
from tests.contract.calls import STORIES

PACKAGE = Path(__file__).parents[2] / "beamdeploy"
SUBCOMMANDS = frozenset({word.split()[-1] if " " not in word else word for word in COMMANDS} | {"image", "container"})
FLAG = re.compile(r"--?[a-z][a-z-]*")
IN_SHELL = re.compile(r'(?:\bdk|"\$@") ((?:image |container )?[a-z]+)\b([^\n]*)')
SAME = {"-t": "--time", "-f": "--force", "--timeout": "--time"}


@dataclass(frozen=True)
class Used:
    """(subcommand, flag) pairs, a flag of "" for the subcommand alone, and the texts of --format."""

    flags: frozenset[tuple[str, str]]
    formats: frozenset[str]

    def __sub__(self, other: Used) -> Used:
        return Used(self.flags - other.flags, self.formats - other.formats)


def suite_calls() -> Used:
    """What the stories try."""
    flags: set[tuple[str, str]] = set()
    formats: set[str] = set()
    for story in STORIES.values():
        for entry in story:
            words = entry.words
            command = " ".join(words[:2]) if " ".join(words[:2]) in SUBCOMMANDS else words[0]
            flags |= {(command, ""), *((command, word.partition("=")[0]) for word in words if FLAG.match(word))}
            formats |= {word for word in words if "{{" in word}
    return Used(frozenset(flags), frozenset(formats))


def package_calls() -> Used:
    """What the package's sources hold."""
    found = [
        *(used for path in _sources("*.py") for used in _in_python(ast.parse(path.read_bytes()))),
        *(_in_shell(path.read_text(encoding="utf-8")) for path in _sources("*.sh")),
        _in_template((PACKAGE / "templates" / "docker-run.j2").read_text(encoding="utf-8")),
    ]
    return Used(
        frozenset().union(*(each.flags for each in found)), frozenset().union(*(each.formats for each in found))
    )


def _sources(pattern: str) -> Iterator[Path]:
    own = PACKAGE / "sandbox"
    yield from (path for path in PACKAGE.rglob(pattern) if own not in path.parents)


def _in_python(tree: ast.Module) -> Iterator[Used]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield _of_function(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and '"$@"' in node.value:
            yield _in_shell(node.value)


def _of_function(function: ast.FunctionDef) -> Used:
    """The subcommands of a function's tuples of words, with every flag and format that it holds."""
    tuples = [node for node in ast.walk(function) if isinstance(node, ast.Tuple)]
    commands = {command for node in tuples for command in _commands(node)}
    words = {word for node in tuples for word in _constants(node.elts)}
    texts = {n.value for n in ast.walk(function) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    flags = {word for word in words if FLAG.fullmatch(word)} if commands else set()
    if commands == {"run"}:
        # the words of docker run are the template's
        flags = set()
    pairs = {(command, "") for command in commands} | {(_owner(commands, flag), flag) for flag in flags}
    formats = {text for text in texts if text.startswith(("{{", '{"')) and "}}" in text} if commands else set()
    return Used(frozenset(pairs), frozenset(formats))


def _owner(commands: Iterable[str], flag: str) -> str:
    """Of several subcommands in one function, the one that takes the flag."""
    names = {word.lstrip("-") for word in (flag,)}
    for command in sorted(commands):
        known = {name for text in COMMANDS[command].flags.split() for name in text.rstrip("=").split("|")}
        if names & known:
            return command
    return "?"


def _commands(node: ast.Tuple) -> Iterator[str]:
    """`(*host.docker_words, "image", "inspect", …)`, or a tuple that begins with a subcommand and a flag."""
    for before, element, after in zip((None, *node.elts), node.elts, (*node.elts[1:], None), strict=False):
        if not isinstance(element, ast.Constant) or element.value not in {word.split()[0] for word in SUBCOMMANDS}:
            continue
        starred = isinstance(before, ast.Starred) and ast.unparse(before.value).endswith(("docker", "docker_words"))
        next_word = after.value if isinstance(after, ast.Constant) else None
        if starred or (before is None and isinstance(next_word, str) and next_word.startswith("--")):
            pair = f"{element.value!s} {next_word!s}"
            yield pair if pair in SUBCOMMANDS else str(element.value)


def _constants(elements: Iterable[ast.expr]) -> Iterator[str]:
    yield from (each.value for each in elements if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _in_shell(text: str) -> Used:
    flags: set[tuple[str, str]] = set()
    formats: set[str] = set()
    for command, rest in IN_SHELL.findall(text):
        if command in SUBCOMMANDS:
            bare = re.sub(r"'[^']*'", "", rest)
            flags |= {(command, ""), *((command, word) for word in bare.split() if FLAG.fullmatch(word))}
            formats |= set(re.findall(r"--format '([^']*)'", rest))
    return Used(frozenset(flags), frozenset(formats))


def _in_template(text: str) -> Used:
    words = [line.partition("=")[0] for line in text.splitlines() if line.startswith("-")]
    return Used(frozenset(("run", word) for word in (*words, "--label")), frozenset())
