"""A model's answer as it comes: the answer on stdout, its reasoning dimmed on stderr. Both are data and made safe."""

from __future__ import annotations

import sys

from beamdeploy.report.show import coloured, write
from beamdeploy.report.text import clean

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class Talk:
    """One answer. `piece` is called with each part of it, `end` once."""

    def __init__(self) -> None:
        self._dim = coloured(sys.stderr)
        self._reasoning = self._answer = False

    def piece(self, reasoning: str, content: str) -> None:
        """Show what came."""
        if reasoning:
            self._reasoning = True
            write(f"{_DIM}{clean(reasoning)}{_PLAIN}" if self._dim else clean(reasoning), sys.stderr)
        if content:
            if self._reasoning and not self._answer:
                write("\n\n" if sys.stdout.isatty() and sys.stderr.isatty() else "\n", sys.stderr)
            self._answer = True
            write(clean(content), sys.stdout)

    def end(self) -> None:
        """The line ends, also of an answer that broke off."""
        if self._answer:
            write("\n", sys.stdout)
        elif self._reasoning:
            write("\n", sys.stderr)
