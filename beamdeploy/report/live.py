"""A report that is made again and again: a live table on a terminal, otherwise plain lines, each with its time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from beamdeploy.errors import DONE
from beamdeploy.outcome import Report
from beamdeploy.report.show import coloured, write
from beamdeploy.report.text import Line, clean_line, host_lines, plain, table_lines

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


Lines = Callable[[Report], tuple[Line, ...]]
Tables = Callable[[Report], Sequence[tuple[Sequence[str], Sequence[Sequence[str]]]]]


def is_live() -> bool:
    """Whether stdout is a terminal on which lines can be drawn again."""
    return coloured(sys.stdout)


def tables_of(tables: Tables) -> Lines:
    """How a report is shown as tables (head, rows), one after the other; those without rows are left out."""

    def lines(report: Report) -> tuple[Line, ...]:
        return tuple(line for head, rows in tables(report) if rows for line in table_lines(head, rows))

    return lines


def watched(look: Callable[[], Report], interval: float, output: str, lines: Lines | None = None) -> int:
    """Look and show until Ctrl-C, with a pause of `interval` seconds; the exit code is that of the last look."""
    exit_code = DONE
    with LiveTable(output, lines=lines) as shown:
        try:
            while True:
                report = look()
                exit_code = report.exit
                shown.show(report, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
                time.sleep(interval)
        except KeyboardInterrupt:
            return exit_code


class LiveTable:
    """Shows one report after another on stdout, as "text" or "json" (an object a line)."""

    def __init__(self, output: str, stream: TextIO | None = None, lines: Lines | None = None) -> None:
        self._output = output
        self._lines = lines or (lambda report: host_lines(report.hosts))
        self._stream = sys.stdout if stream is None else stream
        self._live: Live | None = None

    def show(self, report: Report, at: str) -> None:
        """Show the newest report, made `at`."""
        if self._output == "json":
            import json

            from beamdeploy.report.as_json import document

            write(json.dumps({"at": at, **document(report)}) + "\n", self._stream)
        elif self._live is not None:
            self._live.update(_table(self._lines(report), report, at), refresh=True)
        else:
            rows = plain(self._lines(report)).splitlines()
            told = [f"{problem.level}: {clean_line(problem.what)}" for problem in report.all_problems]
            write("".join(f"{at}  {line}\n" for line in (*rows, *told)), self._stream)

    def __enter__(self) -> LiveTable:
        if self._output == "text" and coloured(self._stream):
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
            self._live = Live(console=console, auto_refresh=False, redirect_stdout=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def _table(lines: tuple[Line, ...], report: Report, at: str) -> Text:
    from rich.text import Text

    rows = [Text.assemble(*line) for line in lines]
    told = [Text(f"{problem.level}: {clean_line(problem.what)}", "yellow") for problem in report.all_problems]
    shown = Text("\n").join([Text(at, "dim"), *rows, *told])
    shown.no_wrap, shown.overflow = True, "ellipsis"
    return shown
