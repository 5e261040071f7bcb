"""Commands that can be pasted into a POSIX shell: a word or an option with its value a line, quoted once."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence

from beamdeploy.report.show import write

UNKNOWN_DIR = "$MODEL_DIR"


def pasted(commands: Sequence[tuple[str, tuple[str, ...]]]) -> int:
    """Print (host, words) commands on stdout; a comment names the host when it is known."""
    for host, words in commands:
        comment = "" if host == "-" else f"# {host}\n"
        write(comment + paste(words, expand=host == "-") + "\n", sys.stdout)
    return 0


def paste(words: Sequence[str], *, expand: bool) -> str:
    """The words over several lines. `expand`: a word that holds $MODEL_DIR stands in double quotes."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("-") and lines[-1]:
            lines.append([])
        lines[-1].append(_quoted(word, expand=expand))
    return " \\\n  ".join(" ".join(line) for line in lines)


def _quoted(word: str, *, expand: bool) -> str:
    if not expand or UNKNOWN_DIR not in word:
        return shlex.quote(word)
    before, after = (re.sub(r'([\\"$`])', r"\\\1", part) for part in word.split(UNKNOWN_DIR, 1))
    return f'"{before}{UNKNOWN_DIR}{after}"'
