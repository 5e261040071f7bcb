"""What came of a run, as data: built by the line, printed only by `report`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from beamdeploy.errors import Problem


@dataclass(frozen=True)
class PlanLine:
    """A planned step as it is shown. `mark`: "+" adds, "-" stops or removes, "~" changes, "!" blocks, " " looks."""

    mark: str
    what: str
    reason: str = ""
    cost: str = ""


@dataclass(frozen=True)
class HostReport:
    """What came of one host.

    `outcome` is a word or two: "unchanged", "changed", "blocked", "failed", "unreachable", "not attempted", "ready", ….
    `details` is what JSON can hold; its keys stand beside outcome, exit and summary in the JSON report.
    """

    name: str
    outcome: str
    exit: int
    summary: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    plan: tuple[PlanLine, ...] | None = None
    """What would be or was done, for people; None: the command plans nothing."""


@dataclass(frozen=True)
class Report:
    """What came of a run. `kind` is the command ("Apply"); `problems` are those of no single host."""

    kind: str
    exit: int
    hosts: tuple[HostReport, ...] = ()
    problems: tuple[Problem, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        """The run's problems, then each host's, in order."""
        return (*self.problems, *(problem for host in self.hosts for problem in host.problems))

    def beside(self, problems: tuple[Problem, ...]) -> Report:
        """The same report, with these problems before its own."""
        return replace(self, problems=(*problems, *self.problems))
