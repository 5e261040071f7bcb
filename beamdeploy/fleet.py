"""The same work on many hosts at once; one host's failure never loses another's result."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from beamdeploy.errors import HostError

T = TypeVar("T")

AT_ONCE = 32
"""Connections at the same time. More gains nothing from a controller of a few cores."""


@dataclass(frozen=True)
class Forks:
    """How many hosts are worked on at the same time, and how many connections are opened at once through a bastion."""

    hosts: int = AT_ONCE
    through_a_bastion: int = 8


AS_USUAL = Forks()


def each(names: Iterable[str], work: Callable[[str], T], *, at_once: int = AT_ONCE) -> dict[str, T | HostError]:
    """Name → what `work` gave, or its HostError. Any other exception is raised when all have ended.

    The threads are daemons, so that Ctrl-C ends the program while a host is silent.
    """
    wanted = tuple(names)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[str, T | BaseException]] = queue.SimpleQueue()
    for name in wanted:
        waiting.put(name)
    for _ in range(min(at_once, len(wanted))):
        threading.Thread(target=_work_off, args=(waiting, ended, work), daemon=True).start()
    results = dict(ended.get() for _ in wanted)
    return {name: _result(results[name]) for name in wanted}


def waves(names: tuple[str, ...], serial: str | None, *, canary: bool = False) -> tuple[tuple[str, ...], ...]:
    """The names in waves of `serial` hosts ("2", "25%": at least one); None: all at once. `canary`: the first alone."""
    if canary and len(names) > 1:
        return (names[:1], *waves(names[1:], serial))
    size = len(names) if serial is None else _size(serial, len(names))
    return tuple(names[at : at + size] for at in range(0, len(names), max(1, size)))


def _size(serial: str, hosts: int) -> int:
    return max(1, hosts * int(serial[:-1]) // 100 if serial.endswith("%") else int(serial))


def _work_off(
    waiting: queue.SimpleQueue[str],
    ended: queue.SimpleQueue[tuple[str, T | BaseException]],
    work: Callable[[str], T],
) -> None:
    while True:
        try:
            name = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            ended.put((name, work(name)))
        except BaseException as error:  # it is raised again, or reported, by the thread that asked
            ended.put((name, error))


def _result(result: T | BaseException) -> T | HostError:
    if isinstance(result, BaseException) and not isinstance(result, HostError):
        raise result
    return result
