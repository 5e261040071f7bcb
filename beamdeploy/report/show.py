"""Write reports to the streams: results to stdout, problems to stderr, colour only to a terminal that wants it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from itertools import groupby
from typing import TextIO

from beamdeploy.errors import Problem
from beamdeploy.outcome import HostReport, Report
from beamdeploy.report.text import (
    Line,
    clean,
    clean_line,
    count,
    found_lines,
    plain,
    plan_lines,
    problems_lines,
    report_lines,
    table_lines,
)

FORMS = ("json", "sarif", "junit", "github", "line")
"""What `-o` may name besides text; each is a module as_NAME, imported when it is asked for."""


def show(report: Report, output: str = "text") -> int:
    """Show a report as "text", "json" or another of FORMS; its exit code, for the command to return."""
    if output in FORMS:
        write(import_module(f"beamdeploy.report.as_{output}").dumps(report), sys.stdout)
    else:
        show_lines(report_lines(report))
        show_problems(report.all_problems)
    return report.exit


def show_found(report: Report, summary: str, *, infos: bool = True) -> int:
    """Show problems that are the result of a run: they go to stdout, their number to stderr. The exit code.

    Without `infos` these are only counted.
    """
    shown = [problem for problem in report.problems if infos or problem.level != "info"]
    for _, several in groupby(shown, lambda problem: problem.file):
        show_lines(found_lines(tuple(several), _width()))  # a file at a time: thousands of them are not held at once
    found = count(report.problems) or "nothing is wrong"
    found += " (-v shows the infos)" if len(shown) < len(report.problems) else ""
    show_lines([((f"{summary}: {found}", "bold"),)], sys.stderr)
    return report.exit


def show_problems(problems: Sequence[Problem]) -> None:
    """Problems for people, on stderr."""
    show_lines(problems_lines(problems, width=_width()), sys.stderr)


def show_plans(hosts: Sequence[HostReport]) -> None:
    """Plans for people, on stderr: what is asked about or about to be done."""
    lines = [line for host in hosts if host.plan is not None for line in plan_lines(host.name, host.plan)]
    show_lines(lines, sys.stderr)


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout; without rows, nothing."""
    show_lines(table_lines(head, rows) if rows else ())


def show_text(text: str) -> None:
    """Text on stdout, made safe."""
    write(clean(text) + "\n", sys.stdout)


def log_line(*, several: bool) -> Callable[[str, str], None]:
    """A printer of a server's log lines on stdout, made safe; with the host's name before each if there are several."""
    lock = threading.Lock()

    def line(host: str, text: str) -> None:
        with lock:
            write((f"{clean_line(host)}: " if several else "") + clean(text).replace("\n", " ") + "\n", sys.stdout)

    return line


def show_lines(lines: Iterable[Line], stream: TextIO | None = None) -> None:
    """Lines as text, on stdout unless said otherwise."""
    out = sys.stdout if stream is None else stream
    lines = tuple(lines)
    if coloured(out):
        _write_styled(lines, out)
    elif lines:
        write(plain(lines), out)


def write(text: str, stream: TextIO) -> None:
    """Write text as it is; what the stream's encoding lacks becomes "?". OSError: a result cannot be written.

    What goes on is told on stderr, and a run goes on where nobody can be told: it may be in the middle of a change.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except OSError:
        if stream is not sys.stderr:
            raise


def coloured(stream: TextIO) -> bool:
    """Whether colour goes to this stream: a terminal, and no word against it (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "")


def _width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def _write_styled(lines: Iterable[Line], stream: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True)
