"""`beamdeploy chat`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from beamdeploy.cli import complete, options
from beamdeploy.errors import InputError, Problem

if TYPE_CHECKING:
    from beamdeploy.chat import Messages
    from beamdeploy.exchange import Carry
    from beamdeploy.served import Served


@click.command()
@click.argument("target", metavar="RECIPE|NAME", shell_complete=complete.recipe_files)
@options.one_host
@options.overrides
@click.option("--system", metavar="TEXT", help="The system message.")
@click.option(
    "-m", "--message", "messages", multiple=True, metavar="TEXT", help="Say this, and end; several are turns."
)
def chat(
    target: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    system: str | None,
    messages: tuple[str, ...],
) -> int:
    """Talk to the model: answers come on stdout as they are made, the reasoning dimmed on stderr.

    Every request holds the recipe's request values, and every turn the reasoning of those before it. Without -m it
    asks on a terminal until Ctrl-D; otherwise what is on stdin is the one message.
    """
    from beamdeploy.chat import opening
    from beamdeploy.cli.reach import one, wanted
    from beamdeploy.cli.targets import load_hosts
    from beamdeploy.remote import open_session
    from beamdeploy.served import served

    asked, _ = wanted(target, overrides, "text")
    host = one(load_hosts(where), asked)
    with open_session(host, accept_new=where.accept_new) as session:
        there = served(session, asked)
        interactive = not messages and sys.stdin.isatty()
        _talk(there.way(session), there, opening(system), _questions(messages), go_on=interactive)
    return 0


def _questions(messages: tuple[str, ...]) -> Iterator[str]:
    if messages:
        yield from messages
    elif not sys.stdin.isatty():
        said = sys.stdin.read()
        if not said.strip():
            what = "there is no message: standard input is empty"
            raise InputError([Problem(what, "Say it with -m, or on standard input.", where="command line")])
        yield said
    else:
        yield from _typed()


def _typed() -> Iterator[str]:
    """What is typed, until Ctrl-D or Ctrl-C at the prompt."""
    import readline  # noqa: F401  # gives input() its editing and history

    while True:
        try:
            question = input("> ")
        except (EOFError, KeyboardInterrupt):
            click.echo(err=True)
            return
        if question.strip():
            yield question


def _talk(carry: Carry, there: Served, messages: Messages, questions: Iterator[str], *, go_on: bool) -> None:
    """Turn by turn. HostError: an answer did not come, and nobody is there to ask again."""
    from beamdeploy.chat import ask, ended_early
    from beamdeploy.errors import HostError
    from beamdeploy.report import show_problems
    from beamdeploy.report.talk import Talk

    for question in questions:
        shown = Talk()
        try:
            messages, found = ask(carry, there, messages, question, shown.piece)
        except (HostError, KeyboardInterrupt) as error:
            shown.end()
            if not go_on:
                raise
            show_problems(error.problems if isinstance(error, HostError) else ())
            continue
        shown.end()
        show_problems(tuple(ended_early(found)))
