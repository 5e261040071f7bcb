"""Where an escaping exception becomes text or JSON, and an exit code. The only place that catches everything."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import NoReturn, TextIO

import click

from beamdeploy.errors import BAD_INPUT, BUG, DONE, FAILED, INTERRUPTED, BeamdeployError, Problem

_UNWRITABLE = {errno.ENOSPC: "no space is left", errno.EBADF: "standard output is closed"}
_BROKEN_PIPE = 128 + signal.SIGPIPE


def guarded(run: Callable[[], object], words: Sequence[str]) -> int:
    """Run a command of the command line `words`; its exit code. Whatever it raises is shown."""
    _replace_closed_streams()
    try:
        with _terminated_as_interrupted():
            exit = _shown(run, words)
    except BrokenPipeError:
        exit = _BROKEN_PIPE
    _silence_what_nobody_reads()
    return exit


def asked_for_json(words: Sequence[str]) -> bool:
    """Whether a command line says `-o json`. Asked of the words: a usage error ends the parsing before its options."""
    return any(
        word in ("-ojson", "-o=json", "--output=json") or (before in ("-o", "--output") and word == "json")
        for before, word in pairwise(("", *words))
    )


def _shown(run: Callable[[], object], words: Sequence[str]) -> int:
    try:
        result = run()
        return result if isinstance(result, int) else DONE
    except click.exceptions.Exit as error:
        return error.exit_code
    except BeamdeployError as error:
        return _fail(words, error.problems, error.exit)
    except click.ClickException as error:
        return _usage(words, error)
    except (KeyboardInterrupt, click.Abort):
        return _interrupted(words)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
            return _unwritten(_UNWRITABLE[error.errno])
        if isinstance(error, BrokenPipeError) and any(map(_reader_gone, (sys.stdout, sys.stderr))):
            raise  # `| head` has what it wants: no news for anyone
        return _bug(words, error)


def _fail(words: Sequence[str], problems: Sequence[Problem], exit: int) -> int:
    from beamdeploy.outcome import Report
    from beamdeploy.report import show, show_problems

    if asked_for_json(words):
        return show(Report(_kind(words), exit, problems=tuple(problems)), "json")
    show_problems(problems)
    return exit


def _unwritten(why: str) -> int:
    """Said on stderr, in whatever form the result was to be: stdout takes nothing."""
    from beamdeploy.report import show_problems

    show_problems([Problem(f"the output cannot be written: {why}", "What was done is done.")])
    return FAILED


def _usage(words: Sequence[str], error: click.ClickException) -> int:
    # click's own words and hint of `--help` for people; its exit codes are not ours.
    if asked_for_json(words):
        return _fail(words, [Problem(error.format_message(), rule="usage", where="command line")], BAD_INPUT)
    error.show(file=sys.stderr)
    return BAD_INPUT


def _interrupted(words: Sequence[str]) -> int:
    if sys.stderr.isatty():
        click.echo(err=True)  # ends the line on which the terminal wrote ^C
    remedy = "What was started on a host goes on there; `beamdeploy status` says what."
    return _fail(words, [Problem("interrupted", remedy)], INTERRUPTED)


def _bug(words: Sequence[str], error: Exception) -> int:
    import traceback

    from beamdeploy.report import clean

    click.echo(clean("".join(traceback.format_exception(error))), err=True, nl=False)
    remedy = "Please report it with the lines above; no file of yours is at fault."
    return _fail(words, [Problem(f"this is a bug in beamdeploy: {type(error).__name__}: {error}", remedy)], BUG)


def _kind(words: Sequence[str]) -> str:
    from beamdeploy.cli.table import names

    return next((word for word in words if word in names()), "command").capitalize()


def _replace_closed_streams() -> None:
    """`>&-` leaves no stream at all: a result that is written there is lost, as on a full disk, and nothing is read."""
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))


def _silence_what_nobody_reads() -> None:
    # The interpreter flushes at its end, and would complain of a closed pipe then.
    for stream in (sys.stdout, sys.stderr):
        lost = _reader_gone(stream)
        try:
            stream.flush()
        except OSError:  # nobody reads, or the disk is full: it was said, where it could be
            lost = True
        if lost or _reader_gone(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _reader_gone(stream: TextIO) -> bool:
    # Asked of the system: a failed flush drops what it held, and the next one succeeds.
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM is as Ctrl-C: what was begun is left in order. Signals can be had in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
