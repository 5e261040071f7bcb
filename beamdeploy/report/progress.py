"""What goes on at each host, on stderr: a live line a host on a terminal, otherwise plain lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from beamdeploy.report.show import coloured, write
from beamdeploy.report.text import clean_line

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


@dataclass(frozen=True)
class _Event:
    phase: str
    detail: str
    since: float
    news: str = ""


class Progress:
    """The progress of a run. `event` and `note` may be called by any thread, inside and outside the context.

    Only a terminal gets live lines; a question is asked while they are `paused`.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._lock = threading.Lock()
        self._latest: dict[str, _Event] = {}
        self._live: Live | None = None

    def event(self, host: str, phase: str, detail: str = "") -> None:
        """The host is in this phase. The same phase and detail again say nothing new.

        What stands after a tab in the detail moves within the phase: alone it is no new plain line.
        """
        news = clean_line(detail.partition("\t")[0])
        host, phase, detail = clean_line(host), clean_line(phase), clean_line(detail.replace("\t", "", 1))
        with self._lock:
            before = self._latest.get(host)
            if before is not None and (before.phase, before.detail) == (phase, detail):
                return
            same_phase = before is not None and before.phase == phase
            since = before.since if before is not None and same_phase else time.monotonic()
            self._latest = {**self._latest, host: _Event(phase, detail, since, news)}
            if self._live is None and not (same_phase and before is not None and before.news == news):
                write(": ".join(part for part in (host, phase, detail) if part) + "\n", self._stream)

    def note(self, host: str, text: str) -> None:
        """A line that stays, such as one of a server's log."""
        line = f"{clean_line(host)}: {clean_line(text)}"
        with self._lock:
            if self._live is None:
                write(line + "\n", self._stream)
            else:
                from rich.text import Text

                self._live.console.print(Text(line), soft_wrap=True)

    def __enter__(self) -> Progress:
        if coloured(self._stream):
            live = _live(self._stream, self)
            live.start()
            with self._lock:
                self._live = live
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            live, self._live = self._live, None
        if live is not None:
            live.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No live lines while something else is shown or asked on the terminal."""
        live = self._live is not None
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            if live:
                self.__enter__()

    def __rich__(self) -> Text:
        # The mapping is replaced and never changed: the thread that draws needs no lock, so it cannot wait for ours.
        from rich.text import Text

        lines = Text("\n").join(_live_lines(self._latest, time.monotonic()))
        lines.no_wrap, lines.overflow = True, "ellipsis"
        return lines


def _live_lines(latest: dict[str, _Event], now: float) -> Iterator[Text]:
    from rich.text import Text

    width = max(map(len, latest), default=0)
    for host, event in latest.items():
        minutes, seconds = divmod(int(now - event.since), 60)
        clock = f"{minutes:3}:{seconds:02}  "
        yield Text.assemble((host.ljust(width), "bold"), (clock, "dim"), (event.phase, "cyan"), "  ", event.detail)


def _live(stream: TextIO, shown: Progress) -> Live:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    return Live(shown, console=console, refresh_per_second=8, transient=True, redirect_stdout=False)
