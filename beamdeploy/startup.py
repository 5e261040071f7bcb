"""A server's start as a state machine over its log: which phase, how far, and whether it still moves. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from beamdeploy.engines.log import EngineLog, Phase, engine_logs
from beamdeploy.errors import Problem
from beamdeploy.recipe import Ready, Recipe

_SEQUENCE = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")
_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ")
_ROW = re.compile(
    r"^(?:\[\w+\] )?\s+(?P<name>[A-Za-z][\w /()-]*?)\s*[:|=]?\s+(?P<gb>\d+(?:\.\d+)?)(?:\s*G(?:i?B))?\s*$"
)
_GROWN_MIB = 64
"""GPU memory that comes and goes without loading."""

WEIGHTS = "target weights"
DRAFTER = "drafter weights"
READY = "ready"


@dataclass(frozen=True)
class Decided:
    """What the engine settled on by itself. GB as the engine prints them; None: it did not say."""

    context: int | None = None
    max_input: int | None = None
    kv_tokens: int | None = None
    concurrency: float | None = None
    max_running: int | None = None
    memory: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class State:
    """A start so far. Times are seconds of one clock; `done` of `total` are of this phase, `percent` too.

    `passed`: the phases that were entered, of the target and of the drafter apart; `entered`: when after the start each
    was entered first; `begun`, `ended`: checkpoints that ranks began and ended to read; `memory_mib`: the most that the
    GPUs were seen to hold.
    """

    engine: str
    started: float
    phase: str = "container"
    since: float = 0.0
    moved: float = 0.0
    done: int | None = None
    total: int | None = None
    percent: int | None = None
    drafter: bool = False
    begun: int = 0
    ended: int = 0
    passed: frozenset[tuple[str, bool]] = frozenset()
    entered: tuple[tuple[str, float], ...] = (("container", 0.0),)
    in_table: bool = False
    memory_mib: int = 0
    decided: Decided = field(default_factory=Decided)
    last: str = ""

    @property
    def said(self) -> str:
        """ "target weights 12/64 (19 %)" """
        count = f" {self.done}/{self.total}" if self.total else ""
        return f"{self.phase}{count}" + (f" ({self.percent} %)" if self.percent is not None else "")


@dataclass(frozen=True)
class Verdict:
    """`word`: "loading", "slow" (it moves, and too little), "stalled", "late" or "ready".

    `still`: seconds without progress; `left`: seconds that this phase still takes at its pace, None: not known.
    """

    word: str
    still: float
    left: float | None = None


def begin(engine: str, seconds: float) -> State:
    """The container runs, and has said nothing yet."""
    return State(engine, seconds, since=seconds, moved=seconds)


def log_lines(text: str) -> Iterator[str]:
    """The lines of a log without colours, docker's time stamps and empty ones; redrawn bars are a line each."""
    yield from (line for _, line in numbered_lines(text))


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """The same with the number, from 1, of the text's own line that each stands in."""
    for number, whole in enumerate(text.split("\n"), start=1):
        yield from ((number, cleaned) for part in whole.split("\r") if (cleaned := clean(part)))


def clean(line: str) -> str:
    """A line without escape sequences, control characters and docker's time stamp."""
    plain = _SEQUENCE.sub("", line)
    return _STAMP.sub("", "".join(char for char in plain if char >= " " or char == "\t")).rstrip()


def advance(state: State, line: str, seconds: float) -> State:
    """The state after one line (or a piece of output with several). Only a new phase or a higher count is progress."""
    log = engine_logs().get(state.engine)
    for each in log_lines(line):
        state = _advanced(state, log, each, seconds)
    return state


def grown(state: State, memory_mib: int, seconds: float) -> State:
    """The state after the GPUs were seen to hold so much: growth is progress, where a log tells nothing."""
    if memory_mib <= state.memory_mib + _GROWN_MIB:
        return state
    first = state.memory_mib == 0
    return replace(state, memory_mib=memory_mib, moved=state.moved if first else seconds)


def limit_passed(state: State, now: float, limits: Ready) -> str:
    """ "timeout", "stall" or ""."""
    if now - state.started > limits.timeout:
        return "timeout"
    return "stall" if now - state.moved > limits.stall else ""


def verdict(state: State, now: float, limits: Ready) -> Verdict:
    """How the start stands at `now`."""
    still, left = now - state.moved, _left(state, now)
    if state.phase == READY:
        return Verdict("ready", still, 0.0)
    passed = limit_passed(state, now, limits)
    if passed:
        return Verdict("late" if passed == "timeout" else "stalled", still, left)
    too_long = left is not None and now + left > state.started + limits.timeout
    return Verdict("slow" if too_long or still > limits.stall / 2 else "loading", still, left)


def seconds_left(state: State, now: float, usual: Mapping[str, float]) -> float | None:
    """Until it is ready, by its own pace and an earlier start; None: not known.

    `usual`: phase → seconds after the start at which it was entered then.
    """
    own, begin, ready = _left(state, now), usual.get(state.phase), usual.get(READY)
    if begin is None or ready is None:
        return own
    end = min((at for at in usual.values() if at > begin), default=ready)
    rest = own if own is not None else max(0.0, end - begin - (now - state.since))
    return rest + ready - end


def decisions(decided: Decided, recipe: Recipe) -> tuple[Problem, ...]:
    """What the engine decided otherwise than the recipe says, as warnings."""
    engine = recipe.engine
    found: list[Problem] = []
    if decided.context and engine.max_model_len and decided.context < engine.max_model_len:
        what = f"the engine shortened the context to {decided.context} tokens; engine.max_model_len is "
        remedy = (
            "Longer requests are refused. Raise engine.gpu_memory_utilization, lower engine.max_num_seqs, "
            f"or set engine.max_model_len to {decided.context}."
        )
        found.append(Problem(f"{what}{engine.max_model_len}", remedy, level="warning"))
    if decided.max_running and engine.max_num_seqs and decided.max_running < engine.max_num_seqs:
        what = f"the engine runs {decided.max_running} requests at a time; engine.max_num_seqs is {engine.max_num_seqs}"
        found.append(
            Problem(what, "The others wait. Raise engine.gpu_memory_utilization or lower it.", level="warning")
        )
    return tuple(found)


def _advanced(state: State, log: EngineLog | None, line: str, seconds: float) -> State:
    state = replace(state, last=line)
    matches = ((phase, phase.regex.search(line)) for phase in (log.phases if log else ()))
    found = next(((phase, match) for phase, match in matches if match), None)
    if found is None:
        return _row(state, line)
    phase, match = found
    groups = {name: text.replace(",", "") for name, text in match.groupdict().items() if text is not None}
    state = _counted(_entered(state, phase, groups, seconds), groups, seconds)
    return replace(state, in_table=phase.table, decided=_decided(state.decided, groups))


def _entered(state: State, phase: Phase, groups: dict[str, str], seconds: float) -> State:
    drafter = state.drafter or phase.part == "drafter" or _second_checkpoint(state, phase, groups)
    begun = state.begun + (phase.event == "begin")
    ended = state.ended + (phase.event == "end")
    name = DRAFTER if phase.phase == WEIGHTS and drafter else phase.phase
    state = replace(state, drafter=drafter, begun=begun, ended=ended)
    if (name, drafter) in state.passed or (name == state.phase):
        return state  # a rank that says later what another has said
    passed = state.passed | {(name, drafter)}
    entered = state.entered
    if name not in dict(entered):
        entered = (*entered, (name, round(seconds - state.started, 1)))
    state = replace(state, phase=name, since=seconds, moved=seconds, passed=passed, entered=entered)
    return replace(state, done=None, total=None, percent=None)


def _second_checkpoint(state: State, phase: Phase, groups: dict[str, str]) -> bool:
    """Whether a line begins the drafter: every rank has ended the target, or the count starts again."""
    if phase.phase != WEIGHTS:
        return False
    if phase.event == "begin":
        return 0 < state.begun <= state.ended
    again = "done" in groups and state.total is not None and state.phase == WEIGHTS
    return again and state.done == state.total and int(groups["done"]) < int(state.done or 0)


def _counted(state: State, groups: dict[str, str], seconds: float) -> State:
    """With the count of this line, if it is higher."""
    done, percent = groups.get("done"), groups.get("percent")
    if done is None and percent is None:
        return state
    higher = int(done) > (state.done or 0) if done is not None else int(percent or 0) > (state.percent or 0)
    if state.total is not None and not higher:
        return state
    total = int(groups["total"]) if "total" in groups else state.total
    counted = replace(state, done=int(done) if done is not None else None, total=total, percent=int(percent or 0))
    return replace(counted, moved=seconds) if higher else counted


def _decided(decided: Decided, groups: dict[str, str]) -> Decided:
    whole = {name: int(groups[name]) for name in ("context", "max_input", "kv_tokens", "max_running") if name in groups}
    rates = {"concurrency": float(groups["concurrency"])} if "concurrency" in groups else {}
    parts = {name[:-3]: float(groups[name]) for name in ("weights_gb", "kv_gb", "graphs_gb") if name in groups}
    memory = tuple({**dict(decided.memory), **parts}.items())
    return replace(decided, **whole, **rates, memory=memory)  # type: ignore[arg-type]  # the names are its fields


def _row(state: State, line: str) -> State:
    """A row of the memory table, or its end."""
    row = _ROW.match(line) if state.in_table else None
    if row is None:
        return replace(state, in_table=False)
    memory = (*state.decided.memory, (row["name"].strip(), float(row["gb"])))
    return replace(state, decided=replace(state.decided, memory=memory))


def _left(state: State, now: float) -> float | None:
    if not state.done or not state.total:
        return None
    return (state.total - state.done) * (state.moved - state.since) / state.done
