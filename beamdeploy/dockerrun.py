"""The words of `docker run` as values: what a command that somebody wrote says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from beamdeploy.errors import InputError, Problem

_SHORT = {"-p": "--publish", "-v": "--volume", "-e": "--env", "-d": "--detach", "-l": "--label", "-m": "--memory"}
_SHORT |= {"-u": "--user", "-w": "--workdir", "-h": "--hostname", "-i": "--interactive", "-t": "--tty"}
_SWITCHES = frozenset({"--rm", "--detach", "--init", "--interactive", "--tty", "--privileged", "--read-only"})
_SWITCHES |= {"--no-healthcheck", "--publish-all", "--oom-kill-disable", "--sig-proxy"}


@dataclass(frozen=True)
class Run:
    """One `docker run`. `options`: long name → its values in order, "" for a switch; `words` follow the image."""

    image: str
    words: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def last(self, name: str) -> str | None:
        """The value that holds; None: the option is not there."""
        return self.options.get(name, (None,))[-1]

    def all(self, name: str) -> tuple[str, ...]:
        return self.options.get(name, ())


def read_text(text: str) -> Run:
    """The first `docker run` of a shell text: comments, line continuations and what stands around it are left out.

    InputError: there is none, or its quotes do not close.
    """
    try:
        words = shlex.split(re.sub(r"\\\r?\n", " ", text), comments=True)
    except ValueError as error:
        raise InputError([Problem(f"the command cannot be split into words: {error}", "Close its quotes.")]) from None
    for at, pair in enumerate(pairwise(words)):
        if pair[0] in ("docker", "podman") and pair[1] == "run":
            return read(_command(words[at:]))
    raise InputError([Problem("there is no `docker run` in it", "Give the command as it is run in a shell.")])


def _command(words: Sequence[str]) -> tuple[str, ...]:
    """Up to what ends a command in a shell."""
    ends = [at for at, word in enumerate(words) if word in ("&&", ";", "|", "||", "&", ">", "2>&1")]
    return tuple(words[: ends[0]] if ends else words)


def read(words: Sequence[str]) -> Run:
    """The words from `docker` on. InputError: there is no image."""
    rest = list(words[2:])
    options: dict[str, tuple[str, ...]] = {}
    while rest and rest[0].startswith("-") and rest[0] != "--":
        for name, value in _option(rest):
            options[name] = (*options.get(name, ()), value)
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if not rest:
        raise InputError([Problem("the `docker run` names no image", "Give the whole command.")])
    return Run(rest[0], tuple(rest[1:]), options)


def _option(rest: list[str]) -> tuple[tuple[str, str], ...]:
    """Take one option with its value off the front; several short switches may be one word (-it)."""
    word = rest.pop(0)
    if not word.startswith("--") and len(word) > 2:
        names = [_SHORT.get(f"-{letter}", f"-{letter}") for letter in word[1:]]
        if all(name in _SWITCHES for name in names):
            return tuple((name, "") for name in names)
        return ((_SHORT.get(word[:2], word[:2]), word[2:].removeprefix("=")),)
    name, equals, value = word.partition("=")
    name = _SHORT.get(name, name)
    if name in _SWITCHES:
        return ((name, ""),) if value.lower() != "false" else ()
    return ((name, value if equals else (rest.pop(0) if rest else "")),)
