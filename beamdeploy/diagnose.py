"""Why a docker command or a server failed, in the recipe's words: the first cause, not the last symptom."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from beamdeploy.engines.log import Failure, Phase, Saying, engine_logs, exit_saying, failures, shared_log
from beamdeploy.engines.traits import traits
from beamdeploy.errors import Problem
from beamdeploy.remote import Result
from beamdeploy.startup import numbered_lines

_AFTER_WEIGHTS = ("kernel tuning", "KV cache", "graph capture", "warm-up", "ready")
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"(?:^|[\s\]|])((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure)(?:: .*)?)$")
_LONGEST_TRACEBACK = 400
_ERROR = re.compile(r"\b(?:ERROR|FATAL|CRITICAL|PANIC)\b|\b[Ee]rror:|\bpanicked at\b|[Ff]atal error|startup failed")
_LONGEST_VALUE = 200
_BY_SIGNAL = 128
"""A shell, or `timeout`, ends with so much more than the number of the signal that ended its command."""
_NO_SAYING = "the log lists none"
_ANY = "openai"
"""The engine of which a recipe gives the whole command."""


@dataclass(frozen=True)
class Diagnosis:
    """Why a server ended. `evidence`: the line that says it, `line` its number from 1 (0: no line does).

    `path`: the recipe's setting to change, "" where the host is to be changed. `id`: of the signature; "traceback",
    "exit" or "unknown" where none fits.
    """

    id: str
    evidence: str
    line: int
    cause: str
    remedy: str
    path: str = ""
    confidence: str = "high"

    @property
    def problem(self) -> Problem:
        """Cause with evidence, and what to do."""
        sure = "" if self.confidence == "high" else f" ({self.confidence} confidence)"
        said = f' (log: "{self.evidence}")' if self.evidence else ""
        return Problem(f"{self.cause}{sure}{said}", self.remedy)


@dataclass(frozen=True)
class _Found:
    """A signature in a log. `at`: index of its line."""

    at: int
    failure: Failure
    match: re.Match[str]


def explain(log_text: str, engine: str | None = None, exit_code: int | None = None) -> Diagnosis | None:
    """The first cause in a log. None: the log tells of no failure, and the exit code of none either.

    `engine`: a name; None or one without a log.yaml: it is guessed. `exit_code`: None for a server that runs.
    """
    numbered = tuple(numbered_lines(log_text))
    lines = tuple(line for _, line in numbered)
    known = engine if engine in engine_logs() else guess_engine(lines)
    first = _first_cause(lines, known, engine or known, exit_code)
    return replace(first, line=numbered[first.line - 1][0]) if first and first.line else first


def _first_cause(lines: Sequence[str], known: str | None, whose: str | None, exit_code: int | None) -> Diagnosis | None:
    """`known`: whose log lines are looked for; `whose`: the engine that the recipe names, which may have none."""
    found = tuple(_found(lines, failures(known)))
    by_kind = {kind: [each for each in found if each.failure.kind == kind] for kind in ("root", "effect", "summary")}
    if by_kind["root"]:
        return _said(by_kind["root"][0], lines, known, whose)
    return (
        _traceback(lines, found)
        or next((_said(each, lines, known, whose) for each in by_kind["effect"]), None)
        or _by_exit(known, exit_code)
        or next((_said(each, lines, known, whose) for each in by_kind["summary"]), None)
        or _unknown(lines, found, exit_code)
    )


def guess_engine(lines: Sequence[str]) -> str | None:
    """The engine whose lines these are; None: they say nothing, or of several alike."""
    counts = {name: sum(1 for line in lines if log.recognise.search(line)) for name, log in engine_logs().items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] and list(counts.values()).count(counts[best]) == 1 else None


def docker_failure(result: Result, where: str) -> Problem:
    """Why a docker command failed; docker's own last line is kept."""
    text = result.err.strip() or result.out.strip()
    line = next((row for row in reversed(text.splitlines()) if row.strip() and "--help" not in row), "")
    if result.exit == 124:
        return Problem(f"{_command(result)} did not end in time", "Look at the docker daemon's log on the host.", where)
    matches = ((each, each.regex.search(text)) for each in shared_log().failures if each.area == "docker")
    found = next(((each, match) for each, match in matches if match), None)
    if found is not None:
        says = _filled(found[0].says, found[1], None)
        return Problem(f"{says.cause} (docker: {line})", says.remedy, where)
    if result.exit == 127:
        return not_on_path(where)
    killed = result.exit is None or result.exit > _BY_SIGNAL
    ended = "ended abnormally" if killed else f"failed with exit code {result.exit}"
    return Problem(f"{_command(result)} {ended}: {line}", "Run it by hand on the host to see more.", where)


def not_on_path(where: str) -> Problem:
    """docker is not found by a session without a terminal, whatever a login shell finds."""
    return Problem(
        "docker is not on the PATH of non-interactive SSH sessions",
        "Give its full path in the inventory: docker: /usr/local/bin/docker",
        where,
    )


def _command(result: Result) -> str:
    return " ".join(result.words[:2])


def _found(lines: Sequence[str], signatures: Sequence[Failure]) -> Iterator[_Found]:
    """The first signature of each line that has one, harmless ones too."""
    for at, line in enumerate(lines):
        found = next((each for each in signatures if each.regex.search(line)), None)
        whole = "\n".join(lines[at : at + 4])
        for each in (found,) if found else signatures:
            match = each.regex.search(whole) if found or "\\n" in each.regex.pattern else None
            if match and match.start() <= len(line):
                yield _Found(at, each, match)
                break


def _said(found: _Found, lines: Sequence[str], engine: str | None, whose: str | None) -> Diagnosis:
    failure = found.failure
    before = lines[: found.at]
    later = (failure.loaded, _were_read), (failure.loading, _are_read)
    says = next((each for each, seen in later if each and _seen(before, engine, seen)), failure.says)
    filled = _filled(says, found.match, whose)
    return Diagnosis(
        failure.id, lines[found.at].strip(), found.at + 1, filled.cause, filled.remedy, filled.path, failure.confidence
    )


def _seen(before: Sequence[str], engine: str | None, tells: Callable[[Phase], bool]) -> bool:
    """Whether a line before shows one of these phases."""
    log = engine_logs().get(engine or "")
    logs = [log] if log else list(engine_logs().values())
    known = [phase.regex for log in logs for phase in log.phases if tells(phase)]
    return any(regex.search(line) for line in before for regex in known)


def _were_read(phase: Phase) -> bool:
    """The weights are in memory."""
    return phase.event == "end" or (phase.phase in _AFTER_WEIGHTS and not phase.table)


def _are_read(phase: Phase) -> bool:
    """Some of them are being read."""
    return phase.phase.endswith(" weights") and not phase.table


def _filled(says: Saying, match: re.Match[str], engine: str | None) -> Saying:
    """The words with the match's groups in them."""
    groups = defaultdict(str, {name: text[:_LONGEST_VALUE] for name, text in match.groupdict().items() if text})
    groups.setdefault("choices", _NO_SAYING)
    flag = groups["flag"] or groups["flag2"]
    path = setting(engine, flag) if says.path == "@flag" else says.path
    cause = says.cause.format_map(groups)
    return Saying(cause, says.remedy.format_map(defaultdict(str, groups, path=path)), path)


def setting(engine: str | None, flag: str) -> str:
    """The recipe's setting that gives a flag; for one that no setting gives, its place below engine.args."""
    if engine == _ANY:
        return "engine.command"
    engines = (engine,) if engine else tuple(engine_logs())
    known = (found.setting_of(flag) for name in engines if (found := traits(name)) is not None)
    return next((each for each in known if each), f"engine.args.{flag.lstrip('-')}" if flag else "engine.args")


def _traceback(lines: Sequence[str], found: Sequence[_Found]) -> Diagnosis | None:
    """What the first traceback ends with. One that a signature names already says no more than that one."""
    named = {each.at for each in found if _TRACEBACK not in lines[each.at]}
    for start in (at for at, line in enumerate(lines) if _TRACEBACK in line):
        for at in range(start + 1, min(len(lines), start + _LONGEST_TRACEBACK)):
            raised = _RAISED.search(lines[at])
            if raised and at not in named:
                remedy = "No signature knows it; the traceback in the log shows where it was raised."
                return Diagnosis("traceback", lines[at].strip(), at + 1, raised[1], remedy, confidence="medium")
            if raised:
                break
    return None


def _by_exit(engine: str | None, exit_code: int | None) -> Diagnosis | None:
    says = exit_saying(engine, exit_code) if exit_code is not None else None
    if says is None:
        return None
    cause = f"{says.cause} (exit code {exit_code})"
    return Diagnosis("exit", "", 0, cause, says.remedy, says.path, "medium")


def _unknown(lines: Sequence[str], found: Sequence[_Found], exit_code: int | None) -> Diagnosis | None:
    """The last line that looks like an error; of a server that ended, else its last line."""
    harmless = {each.at for each in found}
    errors = [at for at, line in enumerate(lines) if _ERROR.search(line) and at not in harmless]
    if not errors and (not exit_code or not lines):
        return None
    at = errors[-1] if errors else len(lines) - 1
    cause = "unknown; this is the last line that looks like an error" if errors else "unknown; this is the last line"
    remedy = "No signature knows it. Show the whole log: beamdeploy logs."
    return Diagnosis("unknown", lines[at].strip(), at + 1, cause, remedy, confidence="low")
