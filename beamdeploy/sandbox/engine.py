"""The stand-in engine: `tokenspeed serve …` without a GPU, with TokenSpeed's arguments, log, endpoints and failures.

Needs nothing but the standard library, so that it runs in an image that holds only Python. Environment:

    STANDIN_LOAD_SECONDS      how long loading takes in all (0.3)
    STANDIN_FAULT             one of FAULTS
    STANDIN_FAULT_RANK        of several nodes, the only one that has the fault
    STANDIN_CACHE_TOKENS      what the KV cache holds, in tokens
    STANDIN_TOKEN_SECONDS     pause between streamed tokens (0)
    STANDIN_FAULT_SECONDS     how long after the ready line `die-after-ready` dies (1)
    STANDIN_BIND              host:port that is opened in place of --host and --port: a sandbox has no network
    BEAMDEPLOY_STANDIN_ARGV   where the words are left as JSON (/tmp/beamdeploy-standin-argv.json)
    BEAMDEPLOY_STANDIN_CATALOG   whose flags it takes: "beam" or "0.1.1"
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from beamdeploy.sandbox import startup
from beamdeploy.sandbox.arguments import ArgumentsRefused, Flag, Split, flags, parse, split
from beamdeploy.sandbox.chat import Model
from beamdeploy.sandbox.gateway import Drafted, Front, serve
from beamdeploy.sandbox.rendezvous import Lost, Peers, answer_health, fault_of, follow, meeting, met
from beamdeploy.sandbox.startup import Died, Launch, rank_died

FAULTS: Mapping[str, str] = {
    "": "none",
    "crash-at-start": "a rank raises before weights are read",
    "cuda-oom": "out of GPU memory while weights are read",
    "graph-oom": "out of GPU memory while CUDA graphs are captured",
    "stall": "loading stops after the first shard, for ever",
    "bad-gateway-flag-late": "the gateway refuses its arguments after the load",
    "never-ready": "the port answers, /readiness stays 503",
    "hang-after-ready": "ready, but no generation ever returns",
    "wrong-model": "another name is served",
    "no-tool-calls": "tool calls come as text",
    "no-reasoning": "replies hold no reasoning",
    "die-after-ready": "a rank dies while serving",
    "ignore-term": "SIGTERM has no effect",
}


class Stopped(Exception):
    """SIGTERM or SIGINT came."""


class StartupFailed(Exception):
    """A child ended during the start."""

    def __init__(self, child: str, status: int, lines: Sequence[str]) -> None:
        self.child = child
        self.status = status
        self.lines = tuple(lines)
        super().__init__(f"startup failed: {child} subprocess exited with rc={status} during startup")


@dataclass(frozen=True)
class Pace:
    """How fast and how wrong this run goes."""

    fault: str
    load_seconds: float
    cache_tokens: int
    token_seconds: float
    fault_seconds: float
    timing: bool


def pace(environ: Mapping[str, str]) -> Pace:
    """Read the environment. ValueError: a fault that does not exist, or no number."""
    fault = environ.get("STANDIN_FAULT", "")
    if fault not in FAULTS:
        raise ValueError(f"STANDIN_FAULT={fault!r} is not one of {', '.join(filter(None, FAULTS))}")
    return Pace(
        fault=fault,
        load_seconds=float(environ.get("STANDIN_LOAD_SECONDS", "0.3")),
        cache_tokens=int(environ.get("STANDIN_CACHE_TOKENS", startup.CACHE_TOKENS)),
        token_seconds=float(environ.get("STANDIN_TOKEN_SECONDS", "0")),
        fault_seconds=float(environ.get("STANDIN_FAULT_SECONDS", "1")),
        timing=environ.get("TOKENSPEED_STARTUP_TIMING") == "1",
    )


def say(line: str, child: str = "") -> None:
    """Print one line as the launcher passes it on: with the name of the child that said it."""
    sys.stdout.write(f"[{child}] {line}\n" if child else f"{line}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def phase(name: str, pace: Pace) -> Iterator[None]:
    """Print the records that TOKENSPEED_STARTUP_TIMING=1 asks for, around what is done."""
    began = time.monotonic()
    record: dict[str, object] = {"phase": name, "event": "start", "rank": 0, "role": "target"}
    if pace.timing:
        say(f"startup_timing {json.dumps(record)}", "ts")
    yield
    if pace.timing:
        ended = {"event": "end", "duration_s": round(time.monotonic() - began, 3), "status": "ok"}
        say(f"startup_timing {json.dumps(record | ended)}", "ts")


def read_weights(folder: Path, config: Mapping[str, object], free: float, seconds: float, fault: str) -> None:
    """Print what is printed while one checkpoint is read, over `seconds`."""
    files = startup.shards(folder)
    say(f"Load weight begin. avail mem={free:6.2f} GB", "ts")
    if not files:
        raise rank_died(f"RuntimeError: Cannot find any model weights with `{folder}`")
    for done, path in enumerate(files, start=1):
        time.sleep(seconds / len(files))
        startup.read_shard(path)
        say(startup.shard_line(done, len(files)), "ts")
        if fault == "stall":
            threading.Event().wait()
        if fault == "cuda-oom":
            what = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
            raise rank_died(f"{what} GPU 0 has a total capacity of 267.69 GiB of which 1.10 GiB is free.")
    say(startup.loaded_line(config, free - 74), "ts")


def start_engine(launch: Launch, catalog: Sequence[Flag], name: str, pace: Pace) -> Peers | None:
    """From the process group to SERVING. Died: what TokenSpeed would die of, at the moment when it would."""
    say(f"Init torch distributed begin. Avail mem={startup.MEMORY_GB} GB", "ts")
    if pace.fault == "crash-at-start":
        raise rank_died("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)")
    peers = meet(launch, rank_is_dead)
    startup.check_layers(launch, name, os.environ)
    parts = 2 if launch.drafter else 1
    with phase("weights.target", pace):
        read_weights(launch.model, launch.config, 266.1, pace.load_seconds / parts, pace.fault)
    if launch.drafter:
        with phase("weights.draft", pace):
            read_weights(launch.drafter, launch.draft_config, 192.1, pace.load_seconds / parts, "")
    startup.check_backends(launch, catalog)
    with phase("graph.capture", pace):
        for line in startup.capture_lines(launch):
            say(line, "ts")
        if pace.fault == "graph-oom":
            raise rank_died("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.")
    for line in startup.memory_lines(launch, pace.cache_tokens):
        say(line, "ts")
    return peers


def meet(launch: Launch, lost: Lost) -> Peers | None:
    """All ranks of several nodes; None on one. Died: they do not come."""
    here = meeting(launch.engine)
    if here is None:
        return None
    try:
        peers = met(here)
    except OSError as error:
        raise rank_died(f"torch.distributed.DistNetworkError: {here.address}:{here.port}: {error}") from None
    peers.watch(lost)
    return peers


def rank_is_dead(number: int) -> int:
    """What is said of another node's rank, and the status that this one ends with."""
    say(f"Rank {number} scheduler is dead. Please check if there are relevant logs.", "ts")
    say(f"Exit code: {startup.RAISED}", "ts")
    return startup.RAISED % 256


def front(launch: Launch, gateway: Mapping[str, object], pace: Pace) -> Front:
    """What the gateway serves, with this run's fault in it."""
    model = Model(
        "some-other-model" if pace.fault == "wrong-model" else launch.served_name,
        max_input=min(pace.cache_tokens, launch.context) - 1,
        calls_tools=pace.fault != "no-tool-calls",
        reasons=pace.fault != "no-reasoning" and gateway.get("reasoning_parser") != "passthrough",
    )
    key = str(gateway.get("api_key") or os.environ.get("SMG_API_KEY", ""))
    plain = Front(model, api_key=key, token_seconds=pace.token_seconds)
    unready = "insufficient healthy workers" if pace.fault == "never-ready" else ""
    drafted = Drafted() if launch.drafter and launch.engine.get("enable_metrics") else None
    return replace(plain, hangs=pace.fault == "hang-after-ready", unready=unready, drafted=drafted)


@contextlib.contextmanager
def child(name: str) -> Iterator[None]:
    """What a child process dies of is the launcher's `startup failed`."""
    try:
        yield
    except (ArgumentsRefused, Died) as end:
        raise StartupFailed(name, end.status, end.lines) from None


def run(words: Sequence[str], pace: Pace, environ: Mapping[str, str]) -> int:
    """Serve until a signal comes; the launcher's exit status. StartupFailed, Stopped, ArgumentsRefused end it early."""
    name = environ.get("BEAMDEPLOY_STANDIN_CATALOG", "beam")
    catalog = flags(name)
    parts = split(words, catalog)
    with child("ts"):
        engine = parse("engine", parts.engine, catalog)
        launch = startup.configure(_model(parts), engine, environ)
        here = meeting(engine)
        pace = replace(pace, fault=fault_of(pace.fault, here, environ))
        peers = start_engine(launch, catalog, name, pace)
    with child("smg"):
        extra = ("--no-such-flag",) if pace.fault == "bad-gateway-flag-late" else ()
        gateway = parse("gateway", (*parts.gateway, *extra), catalog)
    if peers is not None and here is not None and here.number:
        answer_health(str(gateway.get("host") or "0.0.0.0"), int(str(gateway["port"])))
        return follow(peers, until_signal=True)
    try:
        return serve_until_stopped(front(launch, gateway, pace), gateway, pace)
    except Stopped:
        if peers is not None:
            peers.farewell()
        raise


def _model(parts: Split) -> str:
    if parts.model is None:
        raise ArgumentsRefused(1, ("ts serve: error: the following arguments are required: --model",))
    return parts.model


def serve_until_stopped(front: Front, gateway: Mapping[str, object], pace: Pace) -> int:
    """Open the port and wait. The status is that of the child that died."""
    host, port = str(gateway.get("host") or "0.0.0.0"), int(str(gateway["port"]))
    try:
        server = serve(front, *bound(host, port, os.environ))
    except OSError:
        why = f"Error: failed to bind {host}:{port}: Address already in use (os error 98)"
        raise StartupFailed("smg", 1, (why,)) from None
    try:
        if not front.unready:
            say(f"ts serve ready on http://{host}:{port}")
        wait_for_death(pace)
        say("Rank 0 scheduler is dead. Please check if there are relevant logs.", "ts")
        say(f"Exit code: {startup.RAISED}", "ts")
        return startup.RAISED % 256
    finally:
        server.shutdown()


def bound(host: str, port: int, environ: Mapping[str, str]) -> tuple[str, int]:
    """Where the port is opened for these words."""
    instead, _, number = environ.get("STANDIN_BIND", "").rpartition(":")
    return (instead, int(number)) if instead else (host, port)


def wait_for_death(pace: Pace) -> None:
    """Return when a rank dies; never, without that fault."""
    if pace.fault == "die-after-ready":
        time.sleep(pace.fault_seconds)
    else:
        threading.Event().wait()


def stop(number: int, frame: object) -> None:
    """The handler of SIGTERM and SIGINT."""
    raise Stopped


def leave_words(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Leave the words where a test reads them; a read-only container may not have the place."""
    path = Path(environ.get("BEAMDEPLOY_STANDIN_ARGV", "/tmp/beamdeploy-standin-argv.json"))
    with contextlib.suppress(OSError):
        path.write_text(json.dumps(list(words)), encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """`serve MODEL …` or `version`; the exit status."""
    if list(words[:1]) == ["version"]:
        say("tokenspeed 0.1.1")
        return 0
    if list(words[:1]) != ["serve"]:
        say("usage: tokenspeed {serve,version} …")
        return 2
    leave_words(words, os.environ)
    speed = pace(os.environ)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if speed.fault == "ignore-term" else stop)
    try:
        return run(words[1:], speed, os.environ)
    except Stopped:
        return 0
    except ArgumentsRefused as refused:
        for line in refused.lines:
            say(line)
        return refused.status
    except StartupFailed as failed:
        for line in failed.lines:
            say(line, failed.child)
        say(str(failed))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
