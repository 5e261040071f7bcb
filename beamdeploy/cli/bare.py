"""Options that may stand without a value: `--deep` and `--deep=always`, never `--deep always`."""

from __future__ import annotations

from collections.abc import Mapping

import click


def with_bare(option: str, meant: str) -> type[click.Command]:
    """A command class that reads `option` alone as `option=meant`, so that it never eats the word after it."""

    class Command(click.Command):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            return super().parse_args(ctx, _completed(args, {option: meant}))

    return Command


def _completed(args: list[str], bare: Mapping[str, str]) -> list[str]:
    end = args.index("--") if "--" in args else len(args)
    return [*(f"{word}={bare[word]}" if word in bare else word for word in args[:end]), *args[end:]]
