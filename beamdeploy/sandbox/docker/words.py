"""The words of docker's commands: which flags each takes, and how the client complains of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from beamdeploy.sandbox.docker.failure import Failure


# no dataclasses here: importing them would take a third of the time that a docker command takes
class Command(NamedTuple):
    """`flags`: names of one flag, parted by "|"; with "=" at the end it takes a value. `most` None: any number.

    `whole`: what follows the first argument belongs to another program.
    """

    usage: str
    least: int
    most: int | None
    flags: str
    whole: bool = False


RUN_FLAGS = (
    "detach|d init rm interactive|i tty|t privileged read-only quiet|q publish-all|P name= gpus= shm-size= publish|p= "
    "mount= volume|v= env|e= env-file= label|l= label-file= entrypoint= restart= pull= network|net= ipc= ulimit= "
    "memory|m= user|u= workdir|w= cap-add= cap-drop= security-opt= log-driver= log-opt= stop-timeout= stop-signal= "
    "hostname|h= add-host= tmpfs= device= runtime= platform= cpus= cpuset-cpus= cpuset-mems= pids-limit= group-add= "
    "userns= uts= pid= expose= dns= health-cmd= oom-score-adj= memory-swap= sysctl= cgroupns= cidfile="
)
LIST_FLAGS = "all|a quiet|q no-trunc size|s latest|l filter|f= format= last|n="
COMMANDS: Mapping[str, Command] = {
    "version": Command("docker version [OPTIONS]", 0, 0, "format|f="),
    "info": Command("docker info [OPTIONS]", 0, 0, "format|f="),
    "pull": Command("docker pull [OPTIONS] NAME[:TAG|@DIGEST]", 1, 1, "quiet|q all-tags|a platform="),
    "images": Command(
        "docker images [OPTIONS] [REPOSITORY[:TAG]]", 0, 1, "all|a quiet|q no-trunc digests filter|f= format="
    ),
    "image inspect": Command("docker image inspect [OPTIONS] IMAGE [IMAGE...]", 1, None, "format|f="),
    "save": Command("docker save [OPTIONS] IMAGE [IMAGE...]", 1, None, "output|o="),
    "load": Command("docker load [OPTIONS]", 0, 0, "input|i= quiet|q"),
    "tag": Command("docker tag SOURCE_IMAGE[:TAG] TARGET_IMAGE[:TAG]", 2, 2, ""),
    "rmi": Command("docker rmi [OPTIONS] IMAGE [IMAGE...]", 1, None, "force|f no-prune"),
    "run": Command("docker run [OPTIONS] IMAGE [COMMAND] [ARG...]", 1, None, RUN_FLAGS, whole=True),
    "create": Command("docker create [OPTIONS] IMAGE [COMMAND] [ARG...]", 1, None, RUN_FLAGS, whole=True),
    "ps": Command("docker ps [OPTIONS]", 0, 0, LIST_FLAGS),
    "inspect": Command("docker inspect [OPTIONS] NAME|ID [NAME|ID...]", 1, None, "format|f= size|s type="),
    "container inspect": Command(
        "docker container inspect [OPTIONS] CONTAINER [CONTAINER...]", 1, None, "format|f= size|s"
    ),
    "logs": Command("docker logs [OPTIONS] CONTAINER", 1, 1, "follow|f timestamps|t details tail|n= since= until="),
    "start": Command("docker start [OPTIONS] CONTAINER [CONTAINER...]", 1, None, "attach|a interactive|i"),
    "stop": Command("docker stop [OPTIONS] CONTAINER [CONTAINER...]", 1, None, "time|timeout|t= signal|s="),
    "kill": Command("docker kill [OPTIONS] CONTAINER [CONTAINER...]", 1, None, "signal|s="),
    "rm": Command("docker rm [OPTIONS] CONTAINER [CONTAINER...]", 1, None, "force|f volumes|v link|l"),
    "rename": Command("docker rename CONTAINER NEW_NAME", 2, 2, ""),
    "pause": Command("docker pause CONTAINER [CONTAINER...]", 1, None, ""),
    "unpause": Command("docker unpause CONTAINER [CONTAINER...]", 1, None, ""),
    "exec": Command(
        "docker exec [OPTIONS] CONTAINER COMMAND [ARG...]",
        2,
        None,
        "interactive|i tty|t env|e= user|u= workdir|w=",
        True,
    ),
}
SAME = {
    ("container", "ls"): "ps",
    ("container", "list"): "ps",
    ("container", "ps"): "ps",
    ("container", "inspect"): "container inspect",
    ("image", "inspect"): "image inspect",
    ("image", "ls"): "images",
    ("image", "list"): "images",
    ("image", "pull"): "pull",
    ("image", "rm"): "rmi",
}


class Asked(NamedTuple):
    """A command with its flags, each with all values that it was given (a switch: one "true" each time)."""

    command: str
    flags: Mapping[str, tuple[str, ...]]
    rest: tuple[str, ...]

    def on(self, flag: str) -> bool:
        return self.flags.get(flag, ("false",))[-1] == "true"

    def last(self, flag: str, default: str | None = None) -> str | None:
        return self.flags.get(flag, (default,))[-1]

    def all(self, flag: str) -> tuple[str, ...]:
        return self.flags.get(flag, ())


def parse(words: Sequence[str]) -> Asked:
    """Sort the words after `docker`. Failure: as the client complains."""
    command, rest = _command(words)
    known = _names(COMMANDS[command])
    flags: dict[str, tuple[str, ...]] = {}
    arguments: list[str] = []
    left = list(rest)
    while left:
        word = left.pop(0)
        if word == "--":
            arguments += left
            break
        if not word.startswith("-") or word == "-":
            arguments.append(word)
            if COMMANDS[command].whole:
                arguments += left
                break
        else:
            for name, value in _flag(command, word, left, known):
                flags[name] = (*flags.get(name, ()), value)
    _count(command, arguments)
    return Asked(command, flags, tuple(arguments))


def _command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    if tuple(words[:2]) in SAME:
        return SAME[(words[0], words[1])], words[2:]
    if words[:1] == ["container"] and len(words) > 1 and words[1] in COMMANDS:
        return words[1], words[2:]
    if words and words[0] in COMMANDS:
        return words[0], words[1:]
    said = " ".join(words[:1])
    raise Failure(f"docker: unknown command: docker {said}\n\nRun 'docker --help' for more information")


def _names(command: Command) -> Mapping[str, tuple[str, bool]]:
    """Every spelling → the flag's name, and whether it takes a value."""
    known: dict[str, tuple[str, bool]] = {}
    for text in command.flags.split():
        names = text.rstrip("=").split("|")
        known |= {("-" if len(name) == 1 else "--") + name: (names[0], text.endswith("=")) for name in names}
    return known


def _flag(command: str, word: str, left: list[str], known: Mapping[str, tuple[str, bool]]) -> list[tuple[str, str]]:
    name, joined, value = word.partition("=")
    if word.startswith("--"):
        if name not in known:
            raise _misused(command, f"unknown flag: {name}")
        flag, takes = known[name]
        if not takes:
            return [(flag, value if joined else "true")]
        return [(flag, value if joined else _value(command, name, left))]
    return _short(command, word, left, known)


def _short(command: str, word: str, left: list[str], known: Mapping[str, tuple[str, bool]]) -> list[tuple[str, str]]:
    """`-aq`, `-p 1:1`, `-p1:1`, `-n=1`"""
    found: list[tuple[str, str]] = []
    for at, letter in enumerate(word[1:], 2):
        if f"-{letter}" not in known:
            raise _misused(command, f"unknown shorthand flag: '{letter}' in {word}")
        flag, takes = known[f"-{letter}"]
        if takes:
            joined = word[at:].removeprefix("=")
            return [*found, (flag, joined or _value(command, f"'{letter}' in {word}", left))]
        found.append((flag, "true"))
    return found


def _value(command: str, name: str, left: list[str]) -> str:
    if not left:
        shorthand = "" if name.startswith("--") else " shorthand"
        raise _misused(command, f"flag needs an argument:{shorthand} {name}")
    return left.pop(0)


def number(asked: Asked, flag: str, spelling: str) -> int | None:
    """The flag as a whole number; None: it was not given."""
    text = asked.last(flag)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        why = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise _misused(asked.command, f'invalid argument "{text}" for "{spelling}" flag: {why}') from None


def _misused(command: str, text: str) -> Failure:
    usage = COMMANDS[command].usage
    return Failure(f"{text}\n\nUsage:  {usage}\n\nRun 'docker {command} --help' for more information", 125)


def misused(asked: Asked, text: str) -> Failure:
    """A flag's value that the client itself refuses."""
    return _misused(asked.command, text)


def _count(command: str, arguments: Sequence[str]) -> None:
    entry = COMMANDS[command]
    if entry.least <= len(arguments) and (entry.most is None or len(arguments) <= entry.most):
        return
    exactly = entry.least == entry.most
    how = "" if exactly else "at least " if len(arguments) < entry.least else "at most "
    count = entry.least if len(arguments) < entry.least else entry.most
    if entry.most == 0:
        text = f"'docker {command}' accepts no arguments"
    else:
        text = f"'docker {command}' requires {how}{count} argument{'' if count == 1 else 's'}"
    raise Failure(f"docker: {text}\n\nUsage:  {entry.usage}\n\nRun 'docker {command} --help' for more information")
