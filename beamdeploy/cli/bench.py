"""`beamdeploy bench`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from beamdeploy.cli import complete, options

if TYPE_CHECKING:
    from beamdeploy.outcome import Report

_HEAD = ("AT A TIME", "REQUESTS", "TTFT p50/p90/p99", "INTER-TOKEN ms", "LATENCY s", "TOK/S USER", "TOK/S", "ACCEPTED")


def _levels(ctx: click.Context, param: click.Parameter, given: str) -> tuple[int, ...]:
    words = given.split(",")
    if not all(word.isascii() and word.isdigit() and 0 < int(word) <= 1024 for word in words):
        raise click.BadParameter(f"{given!r} is not a list of numbers from 1 to 1024, such as 1,2,4,8", ctx, param)
    return tuple(dict.fromkeys(map(int, words)))


def _outputs(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[int, str]:
    """Tokens and form: both are called output."""
    tokens, form = 128, "text"
    for word in given:
        if word.isascii() and word.isdigit() and 0 < int(word) <= 1_000_000:
            tokens = int(word)
        elif word in ("text", "json"):
            form = word
        else:
            raise click.BadParameter(f"{word!r} is neither a number of tokens nor text or json", ctx, param)
    return tokens, form


@click.command()
@click.argument("target", metavar="RECIPE|NAME", shell_complete=complete.recipe_files)
@options.one_host
@options.overrides
@click.option("--concurrency", callback=_levels, default="1,2,4,8", show_default=True, help="Requests at a time.")
@click.option("--requests", type=click.IntRange(1), default=32, show_default=True, help="Requests at each level.")
@click.option("--input", "input_tokens", type=click.IntRange(1), default=512, show_default=True, help="Tokens in.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    callback=_outputs,
    metavar="TOKENS|text|json",
    help="A number: tokens out; text or json: the form of the result. May be given twice.  [default: 128, text]",
)
@click.option(
    "--against", type=click.Path(dir_okay=False), metavar="FILE", help="Compare with the JSON of an earlier run."
)
@click.option("--plot", type=click.Path(dir_okay=False, writable=True), metavar="FILE.svg", help="Draw the figures.")
def bench(
    target: str,
    where: options.Where,
    overrides: tuple[tuple[str, str], ...],
    concurrency: tuple[int, ...],
    requests: int,
    input_tokens: int,
    outputs: tuple[int, str],
    against: str | None,
    plot: str | None,
) -> int:
    """Measure time to first token, time between tokens, latency and throughput of a server.

    The requests go through the SSH session, all different, with the recipe's request values. Ends with 6 when some
    failed.
    """
    from beamdeploy.bench import Wanted
    from beamdeploy.bench import bench as measure
    from beamdeploy.bench.figures import load_earlier
    from beamdeploy.bench.load import Size
    from beamdeploy.cli.reach import one, wanted
    from beamdeploy.cli.targets import load_hosts
    from beamdeploy.remote import open_session
    from beamdeploy.report import Progress, show
    from beamdeploy.served import served

    output_tokens, form = outputs
    asked, notes = wanted(target, overrides, form)
    host = one(load_hosts(where), asked)
    before = load_earlier(against, host.name) if against else None
    how = Wanted(concurrency, requests, Size(input_tokens, output_tokens))
    with Progress() as progress, open_session(host, accept_new=where.accept_new) as session:
        there = served(session, asked)
        report = measure(there.channels(session), there, host.name, how, before, progress.event)
    if plot:
        _draw(plot, report, before or (), there.model)
    if form == "text":
        _show(report)
    return show(report.beside(notes), form)


def _draw(file: str, report: Report, before: Sequence[Mapping[str, Any]], model: str) -> None:
    from beamdeploy.bench.plot import svg
    from beamdeploy.report import clean_line

    Path(file).write_text(svg(_of(report, "levels"), before, clean_line(model)), encoding="utf-8")


def _show(report: Report) -> None:
    from beamdeploy.report import show_table

    show_table(_HEAD, [_row(each) for each in _of(report, "levels")])
    show_table(("AT A TIME", "FIGURE", "BEFORE", "NOW", "CHANGE"), [_compared(each) for each in _of(report, "against")])


def _of(report: Report, key: str) -> Sequence[Mapping[str, Any]]:
    return cast(Sequence[Mapping[str, Any]], report.hosts[0].details.get(key, ()))


def _row(level: Mapping[str, Any]) -> tuple[str, ...]:
    user, accepted = level["user_tokens_per_second"], level["acceptance"]
    return (
        str(level["concurrency"]),
        str(level["requests"]) + (f" ({level['failed']} failed)" if level["failed"] else ""),
        _spread(level["ttft"], 1, "s"),
        _spread(level["inter_token"], 1000, ""),
        _spread(level["latency"], 1, ""),
        "-" if user is None else f"{user:.1f}",
        f"{level['tokens_per_second']:.1f}",
        "-" if accepted is None else f"{accepted:.0%}",
    )


def _spread(spread: Mapping[str, float] | None, factor: float, unit: str) -> str:
    if spread is None:
        return "-"
    return " / ".join(f"{spread[part] * factor:.3g}" for part in ("p50", "p90", "p99")) + (f" {unit}" if unit else "")


def _compared(change: Mapping[str, Any]) -> tuple[str, ...]:
    figures = (f"{change['before']:.4g}", f"{change['now']:.4g}", f"{change['ratio'] - 1:+.1%}")
    return (str(change["concurrency"]), str(change["figure"]), *figures)
