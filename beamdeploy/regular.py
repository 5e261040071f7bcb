"""Reading what a user names: regular files. A pipe without a writer or a device without end would be waited for."""

from __future__ import annotations

import errno
import os
import stat

_OF_THIS_PROCESS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""What the shell has opened for it, as by `<(…)`: a pipe among these has its writer."""


def bytes_of(path: str | os.PathLike[str], most: int = -1, *, pipes: bool = False) -> bytes:
    """What a file holds, up to `most` bytes. `pipes`: also what the shell has opened for this process.

    OSError: it cannot be read, or is no regular file.
    """
    named = os.fspath(path)
    if pipes and named.startswith(_OF_THIS_PROCESS):
        with open(named, "rb") as stream:
            return stream.read(most)
    # a device may act on being opened; a pipe that came in between is not waited for
    _must_be_regular(named, os.stat(named))
    with open(named, "rb", opener=_at_once) as stream:
        _must_be_regular(named, os.fstat(stream.fileno()))
        return stream.read(most)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def text_of(path: str | os.PathLike[str], *, errors: str = "strict", pipes: bool = False) -> str:
    """The same as text, its line ends as one newline each. ValueError: it is not UTF-8."""
    text = bytes_of(path, pipes=pipes).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def must_be(path: str | os.PathLike[str]) -> None:
    """For what others read. OSError: it is not there, or is no regular file."""
    _must_be_regular(os.fspath(path), os.stat(path))


def _must_be_regular(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
