"""What was deployed on each host and when, and the way back to it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict

from beamdeploy import errors, recap
from beamdeploy.errors import BeamdeployError, HostError, Problem
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.inventory import Host
from beamdeploy.label import Deployed, without_labels
from beamdeploy.outcome import HostReport, Report
from beamdeploy.record import Entry, read
from beamdeploy.render import Spec, render_again
from beamdeploy.run import Run, SayHost

_READY, _REMOVED = "ready", "removed"


def entries(
    hosts: Iterable[Host], name: str | None, say: SayHost, *, accept_new: bool, forks: Forks = AS_USUAL
) -> dict[str, tuple[Entry, ...] | HostError]:
    """Host → its history, oldest first; entry N of `history` is at N - 1."""
    by_name = {host.name: host for host in hosts}
    with ExitStack() as stack:
        run = Run(stack, say, forks)

        def work(host: str) -> tuple[Entry, ...]:
            return read(run.opened(by_name[host], accept_new=accept_new), name)

        return each(by_name, work, at_once=forks.hosts)


def history(found: dict[str, tuple[Entry, ...] | HostError], number: int | None) -> Report:
    """The report on all entries, or on entry `number` (from 1) of each host."""
    reports = tuple(_report(host, result, number) for host, result in found.items())
    return recap.shared(Report("History", errors.worst(report.exit for report in reports), reports))


def way_back(
    hosts: Iterable[Host], found: dict[str, tuple[Entry, ...] | HostError], number: int | None, say: SayHost
) -> tuple[Spec, ...]:
    """The spec that each host returns to: entry `number`, else the last good one before what it was brought to last.

    After a destroy it is the last good one. BeamdeployError: a host has no such entry, or cannot be asked (HostError).
    """
    specs = []
    problems = []
    for host in hosts:
        result = found[host.name]
        if isinstance(result, HostError):
            raise result
        entry = _chosen(result, number)
        if entry is None:
            problems.append(_nothing(host, number))
        else:
            say(host.name, "history", f"back to entry {result.index(entry) + 1}, {entry.at}: {_named(entry)}")
            specs.append(render_again(_deployed(entry), host))
    if problems:
        # a number is a word of the command; that there is nothing to return to is the host's
        raise BeamdeployError(problems, exit=errors.FAILED if number is None else errors.BAD_INPUT)
    return tuple(specs)


def _named(entry: Entry) -> str:
    """ "beam 1f2e3d4c5b6a, lightseekorg/tokenspeed:beam"."""
    return f"{entry.name} {entry.digest[7:19]}, {entry.image}"


def _chosen(found: tuple[Entry, ...], number: int | None) -> Entry | None:
    if number is not None:
        return found[number - 1] if 1 <= number <= len(found) and found[number - 1].words else None
    good = [entry for entry in found if entry.outcome == _READY]
    ended = [entry for entry in found if entry.outcome in (_READY, _REMOVED)]
    if good and ended[-1].outcome == _REMOVED:
        return good[-1]
    # the last good one is what serves now; a run that failed was undone when it failed
    return next((entry for entry in reversed(good) if entry.digest != good[-1].digest), None)


def _deployed(entry: Entry) -> Deployed:
    words = without_labels(entry.words)
    return Deployed(entry.name, entry.digest, words, entry.recipe, entry.settings, entry.ids)


def _nothing(host: Host, number: int | None) -> Problem:
    wanted = "earlier good deployment" if number is None else f"deployment number {number}"
    return Problem(f"{host.name} has no {wanted} to return to", "beamdeploy history shows what there is.", host.name)


def _report(host: str, result: tuple[Entry, ...] | HostError, number: int | None) -> HostReport:
    if isinstance(result, HostError):
        return recap.failed(host, result)
    if number is not None and not 1 <= number <= len(result):
        problem = Problem(f"there is no entry {number}; the history has {len(result)}", "", host)
        return HostReport(host, "nothing", errors.FAILED, problem.what, problems=(problem,))
    shown = {at: entry for at, entry in enumerate(result, 1) if number in (None, at)}
    details = {"entries": [{"number": at, **asdict(entry)} for at, entry in shown.items()]}
    return HostReport(host, f"{len(result)} entries", errors.DONE, details=details)
