"""What can be wrong, as data (`Problem`), and the two exceptions that carry it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

DONE = 0
FAILED = 1
BAD_INPUT = 2
BLOCKED = 3
UNREACHABLE = 4
LOCKED = 5
NOT_READY = 6
CHANGES_PENDING = 10
BUG = 70
INTERRUPTED = 130

_WORST_FIRST = (
    BUG,
    INTERRUPTED,
    BAD_INPUT,
    LOCKED,
    BLOCKED,
    FAILED,
    NOT_READY,
    UNREACHABLE,
    CHANGES_PENDING,
    DONE,
)


def worst(exits: Iterable[int]) -> int:
    """The exit code of a run of which the parts ended with these codes; DONE for none."""
    return min(exits, key=_WORST_FIRST.index, default=DONE)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `where` is a host and step ("gpu-a: pull") where no file is at fault.

    `line` and `col` count from 1. `level` is "error", "warning" or "info". `rule` is a stable id ("BD101") or "".
    """

    what: str
    remedy: str = ""
    where: str = ""
    file: str | None = None
    line: int | None = None
    col: int | None = None
    rule: str = ""
    level: str = "error"

    def at(self, where: str) -> Problem:
        """The same problem, said to be at `where`."""
        return replace(self, where=where)

    @property
    def place(self) -> str:
        """`file:line:col`, as far as known, else `where`."""
        if self.file is None:
            return self.where
        return ":".join(str(part) for part in (self.file, self.line, self.col) if part is not None)


class BeamdeployError(Exception):
    """Something a user can act on; everything else that escapes is a bug."""

    def __init__(self, problems: Iterable[Problem], *, exit: int) -> None:
        self.problems = tuple(problems)
        self.exit = exit
        super().__init__("; ".join(problem.what for problem in self.problems))


class InputError(BeamdeployError):
    """The user's files or words are wrong; all problems of the run at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__(problems, exit=BAD_INPUT)


class HostError(BeamdeployError):
    """A host could not be reached or refused. `exit` is UNREACHABLE, FAILED, LOCKED or NOT_READY.

    `final`: no later try mends it, such as a host key that has changed.
    """

    def __init__(self, problem: Problem, *, exit: int = FAILED, final: bool = False) -> None:
        super().__init__((problem,), exit=exit)
        self.final = final
