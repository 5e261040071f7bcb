"""The log of a deployment, line by line, from one host or many; following goes on over connections that are lost."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, repeat

from beamdeploy import errors
from beamdeploy.errors import FAILED, HostError, Problem
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.inventory import Host
from beamdeploy.label import NAME
from beamdeploy.lasting import lasting
from beamdeploy.outcome import HostReport, Report
from beamdeploy.regain import WayBack
from beamdeploy.remote import Session, open_session
from beamdeploy.remote.gates import Gates
from beamdeploy.remote.renewable import Renewable
from beamdeploy.run import SayHost, told
from beamdeploy.served import deployed_as
from beamdeploy.startup import advance, begin
from beamdeploy.steps import is_there

_LONGEST = 30 * 24 * 3600
"""Seconds that a log may be followed."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) ?")
_OVERLAP = timedelta(seconds=1)
"""stdout and stderr are stamped each by itself, so a line may stand after a younger one."""
_MOST_IN_OVERLAP = 20_000


def logs(
    hosts: Iterable[Host],
    name: str,
    line: Callable[[str, str], None],
    say: SayHost,
    *,
    tail: int | None,
    follow: bool,
    phases: bool,
    accept_new: bool,
    forks: Forks = AS_USUAL,
) -> Report:
    """Hand over every line as (host, text), or only those that begin a phase of a start, with its name.

    The report says on which hosts there was no log. All are followed at the same time, whatever their number: of that,
    `forks` bounds the opening of the connections.
    """
    door = _Door(hosts, forks, accept_new=accept_new)

    def work(host: str) -> tuple[Problem, ...]:
        with Renewable(door.opened(host)) as session:
            container = _container(session, name)
            shown = partial(line, host)
            take = _phases(_engine(session, container), shown) if phases else shown
            if follow:
                way = WayBack(
                    lambda: door.opened_again(host),
                    session.renew,
                    lambda *event: say(host, *event),
                    "the log goes on there",
                )
                _follow(session, container, take, tail, way)
            else:
                wanted = ("--tail", str(tail)) if tail is not None else ()
                words = (*session.host.docker_words, "logs", *wanted, container)
                session.follow(words, take, timeout=600)
            return told(session)

    results = each(door.hosts, work, at_once=len(door.hosts) if follow else forks.hosts)
    reports = tuple(_report(host, result) for host, result in results.items())
    return Report("Logs", errors.worst(report.exit for report in reports), reports)


class _Door:
    """The way to each host, for so many at a time as `forks` says."""

    def __init__(self, hosts: Iterable[Host], forks: Forks, *, accept_new: bool) -> None:
        self.hosts = {host.name: host for host in hosts}
        self._accept_new = accept_new
        self._gates = Gates(forks.through_a_bastion)
        self._at_once = threading.BoundedSemaphore(forks.hosts)

    def opened(self, host: str) -> Session:
        with self._at_once:
            return open_session(self.hosts[host], accept_new=self._accept_new, gates=self._gates)

    def opened_again(self, host: str) -> Session:
        self._gates.hope()
        return self.opened(host)


class Stamped:
    """Hands over the lines of a log that comes with docker's time stamps, without them, and each only once."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line
        self._stamp = ""
        self._first = ""
        self._newest = ""
        self._recent: deque[tuple[str, str]] = deque(maxlen=_MOST_IN_OVERLAP)
        self._seen: Counter[tuple[str, str]] = Counter()

    def take(self, text: str) -> None:
        """One line; a part after a carriage return has the stamp of the line that it is of."""
        found = _STAMP.match(text)
        self._stamp, text = (found[1], text[found.end() :]) if found else (self._stamp, text)
        piece = (self._stamp, text)
        if self._seen[piece] > 0:
            self._seen[piece] -= 1
            return
        self._first = self._first or self._stamp
        self._newest = max(self._newest, self._stamp)
        self._recent.append(piece)
        if text:
            self._line(text)

    def again(self) -> str | None:
        """From when on to ask after a gap, as docker takes times; None: no line came yet."""
        if not self._newest:
            return None
        first, newest = (datetime.fromisoformat(stamp) for stamp in (self._first, self._newest))
        begin = max(first, newest - _OVERLAP).isoformat()
        self._seen = Counter(piece for piece in self._recent if piece[0][:19] >= begin[:19])
        return begin


def _container(session: Session, name: str) -> str:
    container = is_there(session, session.host, f"name=^/{name}$", f"label={NAME}={name}")
    if container is None:
        what = f"there is no deployment named {name}"
        raise HostError(Problem(what, "beamdeploy status shows what runs.", session.host.name))
    return container


def _engine(session: Session, container: str) -> str:
    """The engine whose log it is, as the container's label says; empty: it does not say."""
    deployed = deployed_as(session, container)
    return str(deployed.recipe.get("engine", {}).get("name", "")) if deployed else ""


def _phases(engine: str, line: Callable[[str], None]) -> Callable[[str], None]:
    """Takes every line of a log and hands over those with which a phase begins."""
    state = begin(engine, 0)

    def take(text: str) -> None:
        nonlocal state
        before, state = state.phase, advance(state, text, 0)
        if state.phase != before:
            line(f"{state.phase}: {state.last}")

    return take


def _follow(session: Session, container: str, line: Callable[[str], None], tail: int | None, way: WayBack) -> None:
    """To the end of the log. HostError: the host does not come back."""
    lines, began = Stamped(line), time.monotonic()
    begins = chain([("--tail", "all" if tail is None else str(tail))], repeat(None))

    def follow() -> None:
        later = ("--since", lines.again() or f"{math.ceil(time.monotonic() - began)}s")
        words = (*session.host.docker_words, "logs", "--timestamps", *(next(begins) or later), "--follow", container)
        session.follow(words, lines.take, timeout=_LONGEST)

    lasting(session, follow, way.regainer())


def _report(host: str, result: HostError | tuple[Problem, ...]) -> HostReport:
    if isinstance(result, tuple):
        return HostReport(host, "shown", errors.DONE, problems=result)
    return HostReport(host, "failed", result.exit or FAILED, result.problems[0].what, problems=result.problems)
