"""The options that several commands share: one decorator each, the same name and meaning everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import click

from beamdeploy.cli import complete

if TYPE_CHECKING:
    from beamdeploy.fleet import Forks

F = TypeVar("F", bound=Callable[..., Any])
_DAY = 86400.0


class Seconds(click.FloatRange):
    """A finite number of seconds: Python's float takes nan and inf as well, and nan is within every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; click's usage error for what is none."""
        given = super().convert(value, param, ctx)
        if not isfinite(given):
            self.fail(f"{given} is no number of seconds, such as 60", param, ctx)
        return given


class Word(click.types.StringParamType):
    """A word that is not empty: "$HOSTS" of a variable that is not set would mean all hosts, or others."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word; click's usage error for an empty one."""
        if value == "":
            self.fail("it is empty; is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


def recipe(command: F) -> F:
    """`recipe: str`, a recipe's file"""
    return click.argument("recipe", shell_complete=complete.recipe_files)(command)


def inventory(command: F) -> F:
    """`inventory: str | None`"""
    return click.option(
        "-i",
        "--inventory",
        type=Word(),
        envvar="BEAMDEPLOY_INVENTORY",
        shell_complete=complete.inventories,
        metavar="WHERE",
        help="Inventory file or folder, 'user@host,' or 'sandbox'. "
        "[default: $BEAMDEPLOY_INVENTORY, then inventories/default.yaml]",
    )(command)


def limit(command: F) -> F:
    """`limit: str | None`"""
    return click.option(
        "-l",
        "--limit",
        type=Word(),
        metavar="PATTERN",
        shell_complete=complete.hosts,
        help="Only these hosts and groups, as in Ansible; @failed: those that the last run left over.",
    )(command)


def overrides(command: Callable[..., int]) -> Callable[..., int]:
    """`overrides: tuple[tuple[str, str], ...]`, pairs of path and value; a chosen variant is the first of them"""

    @wraps(command)
    def gathered(*words: Any, variant: str | None, overrides: tuple[tuple[str, str], ...], **others: Any) -> int:
        chosen = (("--variant", variant),) if variant else ()
        return command(*words, overrides=(*chosen, *overrides), **others)

    chosen = click.option("--variant", metavar="NAME", help="The variant of the recipe that is meant.")(gathered)
    return _assigned(chosen)


def _assigned(command: F) -> F:
    return click.option(
        "-e",
        "--set",
        "overrides",
        multiple=True,
        callback=_assignments,
        metavar="PATH=VALUE",
        help="Override one value of the recipe for this run; may be given several times.",
    )(command)


def output(command: F) -> F:
    """`output: str`, "text" or "json" """
    return output_as("text", "json")(command)


def output_as(*formats: str) -> Callable[[F], F]:
    """`output: str`, one of these; the first is the default. For commands that speak sarif, junit, …."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Form of the result on stdout.",
    )


def verbose(command: F) -> F:
    """`verbose: int`, how often it was said"""
    return click.option("-v", "--verbose", count=True, help="Say more; may be given several times.")(command)


def accept_new(command: F) -> F:
    """`accept_new: bool`"""
    return click.option(
        "--accept-new",
        is_flag=True,
        help="Trust and remember the key of a host that is not known yet; a changed key stays refused.",
    )(command)


def model_dir(command: F) -> F:
    """`model_dir: str | None`"""
    return click.option(
        "--model-dir", type=Word(), metavar="DIR", help="The folder on the host that holds the weights."
    )(command)


def gpus(command: F) -> F:
    """`gpus: tuple[int, ...] | None`"""
    return click.option(
        "--gpus", callback=_gpu_indices, metavar="N,N", help="The GPUs to use on the host, such as 0,1,2,3."
    )(command)


def templates(command: F) -> F:
    """`templates: str | None`"""
    return click.option(
        "--templates",
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        help="Look here first for docker-run.j2 and ENGINE/words.j2.",
    )(command)


def unpinned(command: F) -> F:
    """`unpinned: bool`"""
    return click.option("--unpinned", is_flag=True, help="Go on with an image that has no digest and no lock.")(command)


def _as_usual() -> Forks:
    from beamdeploy.fleet import AS_USUAL

    return AS_USUAL


@dataclass(frozen=True)
class Where:
    """Which hosts are meant, and what is said of all of them: see the help of each option."""

    inventory: str | None
    limit: str | None
    model_dir: str | None
    gpus: tuple[int, ...] | None
    accept_new: bool
    forks: Forks = field(default_factory=_as_usual)


@dataclass(frozen=True)
class Rollout:
    """How a change goes over the hosts: see the help of each option. `lock_wait` in seconds."""

    serial: str | None
    canary: bool
    max_fail: int
    order: str
    lock_wait: float
    keep_failed: bool


def diff(command: F) -> F:
    """`diff: bool`"""
    return click.option("-D", "--diff", is_flag=True, help="Also show the words of the command, old and new.")(command)


def forks(command: F) -> F:
    """`forks: Forks`"""
    return click.option(
        "--forks",
        callback=_forks,
        metavar="N[/M]",
        help="Work on N hosts at a time, and open M connections at a time through one bastion.  [default: 32/8]",
    )(command)


def rollout(command: Callable[..., int]) -> Callable[..., int]:
    """`rollout: Rollout`"""
    orders = click.Choice(["inventory", "reverse_inventory", "sorted", "reverse_sorted", "shuffle"])
    gathered = _as_one("rollout", Rollout, command)
    for option in (
        click.option("--serial", callback=_serial, metavar="N|N%", help="So many hosts at a time.  [default: all]"),
        click.option("--canary", is_flag=True, help="The first host alone, before the others."),
        click.option(
            "--max-fail",
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help="Go on with the next wave while no more than N hosts have failed.",
        ),
        click.option("--keep-failed", is_flag=True, help="Leave a new server that failed there, stopped, for a look."),
        click.option("--order", type=orders, default="inventory", help="In which order, as in Ansible."),
    ):
        gathered = option(gathered)
    return lock_wait(gathered)


def lock_wait(command: F) -> F:
    """`lock_wait: float`, seconds"""
    return click.option(
        "--lock-wait",
        type=Seconds(min=0),
        default=0.0,
        metavar="SECONDS",
        help="Wait so long for another run on the same deployment (or, for stage, folder) and host.",
    )(command)


def interval(seconds: float) -> Callable[[F], F]:
    """`interval: float`, seconds"""
    return click.option(
        "--interval",
        type=Seconds(min=0.1, max=_DAY),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="The pause between two looks, where it is looked again and again.",
    )


def yes(command: F) -> F:
    """`yes: bool`, where a run without a terminal goes on: what it stops it makes anew, or brings back"""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask; without a terminal nothing is asked.")(command)


def yes_needed(command: F) -> F:
    """`yes: bool`, where a run without a terminal is refused: what it takes away is gone"""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")(command)


def hosts(command: Callable[..., int]) -> Callable[..., int]:
    """`where: Where`, of a command that works on all the hosts that are meant"""
    return inventory(limit(model_dir(gpus(accept_new(forks(_as_one("where", Where, command)))))))


def one_host(command: Callable[..., int]) -> Callable[..., int]:
    """`where: Where`, of a command that asks one host, or none"""
    return inventory(limit(model_dir(gpus(accept_new(_as_one("where", Where, command))))))


def _as_one(name: str, kind: type[Where] | type[Rollout], command: Callable[..., int]) -> Callable[..., int]:
    """The command, with the options that are the fields of `kind` handed over as one value."""

    @wraps(command)
    def gathered(*words: Any, **given: Any) -> int:
        ours = {each.name: given.pop(each.name) for each in fields(kind) if each.name in given}
        return command(*words, **{name: kind(**ours)}, **given)

    return gathered


def _forks(ctx: click.Context, param: click.Parameter, given: str | None) -> Forks:
    from beamdeploy.fleet import Forks

    if given is None:
        return _as_usual()
    hosts, slash, bastion = given.partition("/")
    numbers = [hosts, bastion] if slash else [hosts]
    if not all(number.isascii() and number.isdigit() and int(number) > 0 for number in numbers):
        raise click.BadParameter(f"{given!r} is not a number of hosts, such as 32, or 32/8", ctx, param)
    return Forks(int(hosts), int(bastion)) if slash else Forks(int(hosts))


def _serial(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    number = (given or "1").removesuffix("%")
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise click.BadParameter(f"{given!r} is not a number of hosts or a percentage, such as 2 or 25%", ctx, param)
    return given


def _assignments(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    # What path and value mean, the loading of the recipe decides: it knows the types and has the better messages.
    pairs = [text.partition("=") for text in given]
    for text, (path, equals, _) in zip(given, pairs, strict=True):
        if not path or not equals:
            raise click.BadParameter(f"{text!r} is not PATH=VALUE, such as engine.max_num_seqs=16", ctx, param)
    return tuple((path, value) for path, _, value in pairs)


def _gpu_indices(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    words = given.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise click.BadParameter(f"{given!r} is not a list of GPU indices, such as 0,1,2,3", ctx, param)
    if len(set(map(int, words))) < len(words):
        raise click.BadParameter(f"{given!r} names a GPU twice", ctx, param)
    return tuple(map(int, words))
