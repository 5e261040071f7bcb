"""Words to the one text that goes over the wire, and what comes back to the words' own output.

Whatever the login shell is (sh, bash, zsh, csh, tcsh, fish), it splits the text into the same words: the text holds
no newline, backslash or exclamation mark, and single quotes are the only quoting that all of them read alike.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence

# the kernel takes at most 128 KiB in one word, and sshd hands the whole text to the login shell as one
LONGEST = 131_000
KILL_AFTER = 5

_HARMLESS = re.compile(r"[ -~]*")
_MARK = "beamdeploy"
# what the start-up files of the login shell print comes before the mark. Printed twice, since a csh with `set echo`
# prints the command line itself, and that holds the mark once
_PRINTED = f"{_MARK}:{_MARK}:"
_FRAME = 'printf "%s:%s:" "$0" "$0"; printf "%s:%s:" "$0" "$0" >&2; exec "$@"'
# without a terminal sshd sends no hang-up: when the channel closes, only the end of stdin tells the host. The reader
# waits for that end, and stops the words then
_FOLLOW_FRAME = (
    'printf "%s:%s:" "$0" "$0"; exec 3<&0; "$@" </dev/null 3<&- & p=$!; '
    "(read x <&3; kill $p) >/dev/null 2>&1 & w=$!; wait $p; s=$?; kill $w 2>/dev/null; exit $s"
)
_UNWRAP = 'eval "$(printf %s "$@" | base64 -d)"'


def timed(words: Sequence[str], timeout: int) -> tuple[str, ...]:
    """The words under `timeout` (coreutils or busybox): exit 124 when the seconds are up, and nothing left running."""
    return ("timeout", "-k", str(KILL_AFTER), str(timeout), *words)


def framed(words: Sequence[str], timeout: int) -> tuple[str, ...]:
    """The timed words, with a mark on stdout and stderr before their own output."""
    return ("sh", "-c", _FRAME, _MARK, *timed(words, timeout))


def held(words: Sequence[str]) -> tuple[str, ...]:
    """The words, with a mark on stdout and stderr, reading the channel's own stdin."""
    return ("sh", "-c", _FRAME, _MARK, *words)


def followed(words: Sequence[str], timeout: int) -> tuple[str, ...]:
    """The timed words, with a mark on stdout, that end when stdin ends."""
    return ("sh", "-c", _FOLLOW_FRAME, _MARK, *timed(words, timeout))


def script_words(text: str, args: Sequence[str]) -> tuple[str, ...]:
    """The words that run a POSIX sh script with $1… = args."""
    return ("sh", "-c", text, "script", *args)


def command_line(words: Sequence[str]) -> str:
    """The text that any login shell reads as these words. ValueError: too long, or a word holds a NUL."""
    if any("\0" in word for word in words):
        raise ValueError("a word holds a NUL")
    line = _join(words)
    if len(line) > LONGEST:
        raise ValueError(f"{len(line)} bytes are more than a host takes in one command ({LONGEST})")
    return line


def _join(words: Sequence[str]) -> str:
    text = shlex.join(words)
    if "=" not in words[0] and all(map(_is_harmless, words)):
        return text
    encoded = base64.b64encode(f"exec {text}".encode(errors="surrogateescape")).decode()
    # old csh takes no word above 1024 bytes
    chunks = [encoded[at : at + 1000] for at in range(0, len(encoded), 1000)]
    return shlex.join(("sh", "-c", _UNWRAP, "sh", *chunks))


def _is_harmless(word: str) -> bool:
    """zsh reads =ls as a path; csh reads ! and fish reads a backslash even between single quotes."""
    return _HARMLESS.fullmatch(word) is not None and not word.startswith("=") and not set(word) & set("'\\!")


def after_mark(output: bytes) -> bytes | None:
    """What the words printed; None: the mark is not there, so that they never ran."""
    _noise, mark, after = output.partition(_PRINTED.encode())
    return after if mark else None
