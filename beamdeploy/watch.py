"""A container as it starts: what docker says of it, and its log, followed without a gap or a repetition."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from beamdeploy.errors import FAILED, HostError, Problem
from beamdeploy.look import with_smi
from beamdeploy.remote import Session
from beamdeploy.startup import State, advance, begin, grown

_MOST_LINES = 4000
_TICK = "beamdeploy-tick"
# StartedAt is written down a moment after the process began to print
_BEFORE_START = timedelta(seconds=1)

# $1…: the id, then the docker words
_STATE = """
id=$1; shift
"$@" inspect --format '{{json .State}}' "$id" || exit
"$@" inspect --format '{{.RestartCount}}' "$id" || exit
"""

_LOG = """
id=$1 since=$2 lines=$3; shift 3
"$@" logs --since "$since" --tail "$lines" "$id" 2>&1
"""

# One channel: the log as it comes, a tick a second, and what the GPUs hold every twentieth. The log's end ends it.
# busybox's timeout signals this shell alone, hence the trap. No sleep may hold the output open after the end.
_FOLLOW = """
id=$1 since=$2 gpus=$3 tick=$4; shift 4
"$@" logs --follow --since "$since" "$id" 2>&1 & log=$!
(
    n=0
    while sleep 1 </dev/null >/dev/null 2>&1; do
        held=
        if [ $((n % 20)) -eq 0 ] && [ -n "$gpus" ]; then
            held=$(smi "--id=$gpus" --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null |
                awk '/^[0-9]+$/ { sum += $1 } END { print sum + 0 }')
        fi
        n=$((n + 1))
        echo "$tick $held" || exit
    done
) & ticker=$!
trap 'kill "$log" "$ticker"' TERM HUP
wait "$log"
kill "$ticker"
"""

Moment = Callable[[State, bool], None]
"""Called when the start has moved (False) and once a second (True). What it raises ends the following."""


@dataclass(frozen=True)
class Running:
    """What docker says of a container. `since`: from when its log is that of the last run, as docker reads times."""

    status: str
    exit_code: int
    oom_killed: bool
    error: str
    restarts: int
    since: str

    @property
    def ended(self) -> bool:
        return self.status in ("exited", "dead")


class Watch:
    """One run of a container, followed. What was seen is kept when the following breaks off and is taken up again."""

    def __init__(self, engine: str, since: str, started: float) -> None:
        self.since = since
        self.state = replace(begin(engine, time.monotonic()), started=started)
        self._seen = 0

    def of_run(self, since: str) -> None:
        """Begin anew where this is another run of the container than the one that was followed so far."""
        if since != self.since:
            state = replace(begin(self.state.engine, time.monotonic()), started=self.state.started)
            self.since, self.state, self._seen = since, state, 0

    def follow(
        self,
        session: Session,
        docker: Sequence[str],
        container: str,
        gpus: Collection[int],
        moment: Moment,
        *,
        timeout: int,
    ) -> None:
        """Until the log ends, which it does with the container. HostError: the connection is lost."""
        passed = 0

        def take(line: str) -> None:
            nonlocal passed
            if line.startswith(_TICK):
                self._tick(line.removeprefix(_TICK).strip())
                moment(self.state, True)
                return
            passed += 1
            if passed > self._seen:
                self._seen = passed
                self._line(line, moment)

        indices = ",".join(map(str, gpus))
        words = ("sh", "-c", with_smi(_FOLLOW), "follow", container, self.since, indices, _TICK, *docker)
        session.follow(words, take, timeout=timeout)

    def _line(self, line: str, moment: Moment) -> None:
        before, self.state = self.state, advance(self.state, line, time.monotonic())
        if self.state.said != before.said:
            moment(self.state, False)

    def _tick(self, held: str) -> None:
        if held.isdigit():
            self.state = grown(self.state, int(held), time.monotonic())


def running(session: Session, docker: Sequence[str], container: str) -> Running:
    """The container now. HostError: it is gone."""
    result = session.script(_STATE, (container, *docker), timeout=60)
    if not result.ok:
        what = f"container {container[:12]} is gone: {result.err.strip()[-200:]}"
        problem = Problem(what, "Somebody removed it: apply again.", f"{session.host.name}: settle")
        raise HostError(problem, exit=FAILED)
    told, restarts = result.out.strip().rsplit("\n", 1)
    state = json.loads(told)
    return Running(
        state["Status"],
        state["ExitCode"],
        state.get("OOMKilled", False),
        state.get("Error", ""),
        int(restarts),
        since(state.get("StartedAt", "")),
    )


def since(started_at: str) -> str:
    """From when on a log is that of the run that began at StartedAt; "0": from its beginning."""
    try:
        started = datetime.fromisoformat(started_at)
    except ValueError:
        return "0"
    return (started - _BEFORE_START).isoformat() if started.year > 1 else "0"


def log_text(session: Session, docker: Sequence[str], container: str, since: str = "0") -> str:
    """The last thousands of lines of a container's log, stdout and stderr as they came."""
    return session.script(_LOG, (container, since, str(_MOST_LINES), *docker), timeout=60).out
