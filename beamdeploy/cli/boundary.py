"""Where an escaping exception becomes text or JSON, and an exit code. The only place that catches everything."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from beamdeploy.errors import BAD_INPUT, BUG, DONE, INTERRUPTED, BeamdeployError, Problem

_BROKEN_PIPE = 128 + signal.SIGPIPE


def guarded(run: Callable[[], object], words: Sequence[str]) -> int:
    """Run a command of the command line `words`; its exit code. Whatever it raises is shown."""
    try:
        with _terminated_as_interrupted():
            return _flushed(_shown(run, words))
    except BrokenPipeError:
        # The reader (`| head`) has gone: no news for anyone. The interpreter must not flush into it again at its end.
        _quiet_streams()
        return _BROKEN_PIPE


def asked_for_json(words: Sequence[str]) -> bool:
    """Whether a command line says `-o json`. Asked of the words: a usage error ends the parsing before its options."""
    pairs = zip(words, [*words[1:], ""], strict=True)
    return any(
        word in ("-ojson", "-o=json", "--output=json") or (word in ("-o", "--output") and value == "json")
        for word, value in pairs
    )


def _shown(run: Callable[[], object], words: Sequence[str]) -> int:
    try:
        result = run()
        return result if isinstance(result, int) else DONE
    except BeamdeployError as error:
        return _fail(words, error.problems, error.exit)
    except click.ClickException as error:
        return _usage(words, error)
    except (KeyboardInterrupt, click.Abort):
        return _interrupted(words)
    except BrokenPipeError as error:
        return _broken_pipe(words, error)
    except Exception as error:
        return _bug(words, error)


def _fail(words: Sequence[str], problems: Sequence[Problem], exit: int) -> int:
    from beamdeploy.outcome import Report
    from beamdeploy.report import show, show_problems

    if asked_for_json(words):
        return show(Report(_kind(words), exit, problems=tuple(problems)), "json")
    show_problems(problems)
    return exit


def _usage(words: Sequence[str], error: click.ClickException) -> int:
    # click's own words and hint of `--help` for people; its exit codes are not ours.
    if asked_for_json(words):
        return _fail(words, [Problem(error.format_message(), rule="usage", where="command line")], BAD_INPUT)
    error.show(file=sys.stderr)
    return BAD_INPUT


def _interrupted(words: Sequence[str]) -> int:
    remedy = "What was started on a host goes on there; `beamdeploy status` says what."
    return _fail(words, [Problem("interrupted", remedy)], INTERRUPTED)


def _broken_pipe(words: Sequence[str], error: BrokenPipeError) -> int:
    _flush()  # raises again when it is our own output that nobody reads
    return _bug(words, error)


def _bug(words: Sequence[str], error: Exception) -> int:
    import traceback

    from beamdeploy.report import clean

    click.echo(clean("".join(traceback.format_exception(error))), err=True, nl=False)
    remedy = "Please report it with the lines above; no file of yours is at fault."
    return _fail(words, [Problem(f"this is a bug in beamdeploy: {type(error).__name__}: {error}", remedy)], BUG)


def _kind(words: Sequence[str]) -> str:
    from beamdeploy.cli.table import names

    return next((word for word in words if word in names()), "command").capitalize()


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _flushed(exit: int) -> int:
    try:
        _flush()
    except BrokenPipeError:
        _quiet_streams()
    return exit


def _quiet_streams() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


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
