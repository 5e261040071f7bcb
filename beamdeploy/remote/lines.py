"""A stream of bytes as lines, as they come."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable

KEPT = 200


class Lines:
    """Hands over each line that ends in a line feed or carriage return (progress bars), and keeps the last 200."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._last: deque[str] = deque(maxlen=KEPT)

    def feed(self, output: bytes) -> None:
        *lines, self._rest = re.split(r"[\r\n]", self._rest + self._decoder.decode(output))
        for line in lines:
            self._take(line)

    def end(self) -> None:
        """No more comes: the rest is a line, too."""
        self._take(self._rest + self._decoder.decode(b"", final=True))
        self._rest = ""

    def _take(self, line: str) -> None:
        # empty ones are what \r\n and redrawn progress bars leave
        if line:
            self._last.append(line)
            self._line(line)

    @property
    def last(self) -> str:
        return "\n".join(self._last)
