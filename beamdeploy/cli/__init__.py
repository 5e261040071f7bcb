"""The command line: words in, exit code out. A command's module is imported when the command is asked for."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, cast

import click

from beamdeploy import __version__
from beamdeploy.cli.table import SECTIONS, names

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_CODES = """
\b
Exit codes:
    0  done, or nothing to do        5  locked by another run
    1  failed on a host              6  started, but not ready or not right
    2  bad input                    10  changes pending
    3  blocked, nothing changed     70  a bug in beamdeploy
    4  unreachable                 130  interrupted
"""


def _command(name: str) -> click.Command | None:
    for rows in SECTIONS.values():
        if name in rows:
            module = import_module(f"beamdeploy.cli.{rows[name][0]}")
            return cast(click.Command, getattr(module, f"{name}_" if iskeyword(name) else name))
    return None


class _Commands(click.Group):
    """The group of all commands, listed from the table and imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in names() and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(_unknown(args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, rows in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(10), line) for name, (_, line) in rows.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        rows = [row for section in SECTIONS.values() for row in section.items()]
        commands = [CompletionItem(name, help=line) for name, (_, line) in rows if name.startswith(incomplete)]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def main(self, args: Any = None, *rest: Any, **extra: Any) -> Any:
        if "_BEAMDEPLOY_COMPLETE" in os.environ:
            return super().main(args, *rest, **extra)
        from beamdeploy.cli.boundary import guarded

        words = sys.argv[1:] if args is None else list(args)
        sys.exit(guarded(partial(self._run, words), words))

    def _run(self, words: Sequence[str]) -> object:
        # Not click's own main: that ends quietly on every broken pipe, also on one to a host.
        with self.make_context("beamdeploy", list(words)) as ctx:
            return self.invoke(ctx)


def _unknown(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, names(), n=1)
    return f"No such command '{word}'." + (f" Did you mean '{near[0]}'?" if near else "")


@click.group(
    cls=_Commands,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="beamdeploy", message="%(prog)s %(version)s")
@click.option(
    "--engines",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),  # resolved, "" would be the working directory
    metavar="DIR",
    help="A folder with engines of your own, one folder each; may be given several times.",
)
@click.option("--trust-engines", is_flag=True, help="Run the rules.py of these engines: it is code.")
def main(engines: tuple[str, ...], trust_engines: bool) -> None:
    """Deploy large language model servers to GPU hosts over SSH, as one YAML file says."""
    # by the environment: what beamdeploy starts itself (the sandbox's programs) must know them, too
    if engines:
        os.environ["BEAMDEPLOY_ENGINES"] = os.pathsep.join(map(os.path.realpath, engines))
    if trust_engines:
        os.environ["BEAMDEPLOY_TRUST_ENGINES"] = "1"


def run() -> None:
    """`main`, and an end without taking the interpreter apart: that costs a tenth of a short run."""
    # what the imports make stays to the end: looking for garbage among it costs 20 ms
    gc.set_threshold(50_000)
    try:
        main()
    except SystemExit as end:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
