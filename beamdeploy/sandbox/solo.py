"""The stand-in for engines that are one program: `vllm serve …` and `sglang serve …`, as `engine` is for TokenSpeed.

Flags are those of the catalogs; what is refused at once, printed, answered and died of is theirs. Environment as in
`beamdeploy.sandbox.engine`. Sources: vllm 0.33.0 and sglang 0.5.23, the files that each engine's log.yaml names.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from beamdeploy.sandbox import startup
from beamdeploy.sandbox.arguments import ArgumentsRefused
from beamdeploy.sandbox.chat import Model
from beamdeploy.sandbox.engine import Pace, Stopped, bound, leave_words, meet, pace, stop, wait_for_death
from beamdeploy.sandbox.gateway import Drafted, Front, serve
from beamdeploy.sandbox.kinds import KINDS, Kind, configured, died, known_values, parsed, whole
from beamdeploy.sandbox.rendezvous import Peers, answer_health, fault_of, follow, meeting
from beamdeploy.sandbox.startup import Died, Launch, Parsed


class Log:
    """Prints lines as an engine prefixes them."""

    def __init__(self, kind: Kind) -> None:
        self._vllm = kind.name == "vllm"

    def say(self, line: str, place: str = "core.py:413", *, level: str = "INFO", front: bool = False) -> None:
        """One line of the log; `place` is vLLM's file and line, `front` its API server."""
        if self._vllm:
            process = "APIServer pid=1" if front else "EngineCore pid=271"
            self.bare(f"({process}) {level} {time.strftime('%m-%d %H:%M:%S')} [{place}] {line}")
        else:
            rank = "" if front else " TP0"
            self.bare(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{rank}] {line}")

    def bar(self, line: str, *, last: bool) -> None:
        """A progress bar: SGLang redraws it with carriage returns, vLLM ends each with a line break."""
        if self._vllm:
            self.bare(f"(EngineCore pid=271) {line}")
        else:
            sys.stdout.write(line + ("\n" if last else "\r"))
            sys.stdout.flush()

    def bare(self, line: str) -> None:
        """Without a prefix."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def start(kind: Kind, launch: Launch, speed: Pace, log: Log) -> Peers | None:
    """From the process group to a loaded engine. Died: what it would die of, at the moment when it would."""
    if kind.name == "vllm":
        log.say(f"vLLM API server version {kind.catalog}", "api_server.py:1842", front=True)
        log.say(f"non-default args: {{'model': '{launch.model}'}}", "utils.py:253", front=True)
        log.say(f"Initializing a V1 LLM engine (v{kind.catalog})", "core.py:77")
    else:
        log.say(f"server_args=ServerArgs(model_path='{launch.model}')", front=True)
        log.say("Init torch distributed begin.")
    if speed.fault == "crash-at-start":
        raise died("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)")
    peers = meet(launch, lambda number: _rank_is_dead(kind, number, log))
    startup.check_layers(launch, "beam", os.environ)
    _check_backend(kind, launch)
    parts = 2 if launch.drafter else 1
    _read(kind, launch.model, launch.config, speed.load_seconds / parts, speed.fault, log)
    if launch.drafter:
        _read(kind, launch.drafter, launch.draft_config, speed.load_seconds / parts, "", log)
    _fill(kind, launch, speed, log)
    return peers


def _rank_is_dead(kind: Kind, number: int, log: Log) -> int:
    """What is said of another node's rank, and the status that this one ends with."""
    lines = {
        "vllm": f"Worker proc VllmWorker-{number} died unexpectedly, shutting down executor.",
        "sglang": f"Rank {number} scheduler died (exit code: {kind.crash})",
    }
    log.say(lines[kind.name], level="ERROR")
    return 1 if kind.name == "vllm" else kind.crash


def _check_backend(kind: Kind, launch: Launch) -> None:
    """vLLM looks the name up in an enum before it loads; SGLang's parser has refused it already."""
    name = launch.engine.get("attention_backend")
    known = known_values(kind, "--attention-backend")
    if name is not None and known and str(name).upper() not in known:
        raise died(f"KeyError: '{name}'")


def _read(kind: Kind, folder: Path, config: Mapping[str, object], seconds: float, fault: str, log: Log) -> None:
    files = startup.shards(folder)
    began = time.monotonic()
    if kind.name == "vllm":
        log.say(f"Starting to load model {folder}...", "gpu_model_runner.py:429")
    else:
        log.say("Load weight begin. avail mem=266.10 GB")
    if not files:
        raise died(f"RuntimeError: Cannot find any model weights with `{folder}`")
    for done, path in enumerate(files, start=1):
        time.sleep(seconds / len(files))
        startup.read_shard(path)
        log.bar(startup.shard_line(done, len(files)), last=done == len(files) or fault == "stall")
        if fault == "stall":
            threading.Event().wait()
        if fault == "cuda-oom":
            raise died("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.")
    took = time.monotonic() - began
    if kind.name == "vllm":
        log.say(f"Loading weights took {took:.2f} seconds", "default_loader.py:507")
        log.say(f"Model loading took 73.90 GiB memory and {took:.2f} seconds", "gpu_model_runner.py:1164")
    else:
        loaded = startup.loaded_line(config, 192.2).replace(
            "Load weight end. ", f"Load weight end. elapsed={took:.2f} s, "
        )
        log.say(f"{loaded}, mem usage=73.90 GB.")


def _fill(kind: Kind, launch: Launch, speed: Pace, log: Log) -> None:
    """KV cache and graphs. vLLM refuses a context that its cache does not hold; it shortens nothing."""
    cache, length = speed.cache_tokens, launch.context
    asked = launch.engine.get("max_model_len") is not None
    if kind.name == "vllm" and length > cache and asked:
        what = f"To serve at least one request with the model's max seq len ({length}), more KV cache memory is needed."
        raise died(f"ValueError: {what} Based on the available memory, the estimated maximum model length is {cache}.")
    sizes = [size for size in (1, 2, 4, 8) if size <= whole(launch.engine.get("max_cudagraph_capture_size"), 8)]
    if kind.name == "vllm":
        log.say("Available KV cache memory: 40.12 GiB", "gpu_worker.py:773")
        held = f"KV cache size: {cache:,} tokens, Maximum concurrency for {length:,} tokens per request: "
        log.say(f"{held}{cache / length:.2f}x", "kv_cache_utils.py:1149")
    if speed.fault == "graph-oom":
        why = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB."
        raise died(why if kind.name == "vllm" else f"Exception: Capture cuda graph failed: {why}")
    for done, size in enumerate(reversed(sizes), start=1):
        percent = 100 * done // len(sizes)
        line = {
            "vllm": f"Capturing CUDA graphs (decode, FULL): {percent:3d}%|{'#' * done}| {done}/{len(sizes)}",
            "sglang": f"Capturing batches (bs={size} avail_mem=34.20 GB): {percent:3d}%|{'#' * done}|",
        }[kind.name]
        log.bar(line, last=done == len(sizes))
    if kind.name == "vllm":
        log.say("Graph capturing finished in 1 secs, took 0.61 GiB", "gpu_model_runner.py:1300")
        log.say("init engine (profile, create kv cache, warmup model) took 1.1 s")
        return
    seqs = whole(launch.engine.get("max_num_seqs"), 48)
    chunk = whole(launch.engine.get("chunked_prefill_size"), 8192)
    total = f"max_total_num_tokens={cache}, chunked_prefill_size={chunk}, max_prefill_tokens=16384"
    log.say(f"{total}, max_running_requests={seqs}, context_len={min(length, cache)}, available_gpu_mem=34.00 GB")


def front_of(kind: Kind, launch: Launch, speed: Pace) -> Front:
    """What is served, with this run's fault in it."""
    engine = launch.engine
    parses = bool(engine.get("tool_call_parser"))
    model = Model(
        "some-other-model" if speed.fault == "wrong-model" else launch.served_name,
        max_input=min(speed.cache_tokens, launch.context) - 1,
        calls_tools=parses and speed.fault != "no-tool-calls",
        reasons=bool(engine.get("reasoning_parser")) and speed.fault != "no-reasoning",
        reasoning_field=kind.fields,
    )
    key = engine.get("api_key") or (os.environ.get("VLLM_API_KEY") if kind.name == "vllm" else None)
    counted = launch.drafter is not None and (kind.name == "vllm" or bool(engine.get("enable_metrics")))
    return Front(
        model,
        api_key=str(key[0] if isinstance(key, list) else key or ""),
        hangs=speed.fault == "hang-after-ready",
        unready="The server is starting" if speed.fault == "never-ready" else "",
        token_seconds=speed.token_seconds,
        drafted=Drafted(kind.name) if counted else None,
        engine=kind.name,
        warming=threading.Event() if kind.name == "sglang" else None,
    )


def served(kind: Kind, front: Front, engine: Parsed, speed: Pace, log: Log) -> int:
    """Open the port and wait for the end; the status that the process ends with."""
    host, port = str(engine.get("host") or kind.host), whole(engine.get("port"), kind.port)
    if front.warming is not None:
        front.warming.set()
    try:
        server = serve(front, *bound(host, port, os.environ))
    except OSError:
        raise died(
            f"OSError: [Errno 98] error while attempting to bind on address ('{host}', {port}): address already in use"
        ) from None
    try:
        if kind.name == "vllm":
            log.say(f"Starting vLLM server on http://{host}:{port}", "api_server.py:2090", front=True)
        if not front.unready:
            _say_ready(kind, front, log)
        wait_for_death(speed)
        log.say(
            "Scheduler hit an exception: RuntimeError" if kind.name == "sglang" else "EngineCore died", level="ERROR"
        )
        return kind.dead_while_serving
    finally:
        server.shutdown()


def _say_ready(kind: Kind, front: Front, log: Log) -> None:
    if kind.name == "vllm":
        log.bare("(APIServer pid=1) INFO:     Application startup complete.")
        return
    log.bare(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] INFO:     Application startup complete.")
    time.sleep(0.05)
    assert front.warming is not None
    front.warming.clear()
    log.say("The server is fired up and ready to roll!", front=True)


def _say_death(kind: Kind, end: Died, log: Log) -> None:
    """The error as each engine passes it on from the process that had it."""
    error = end.lines[min(2, len(end.lines) - 1)]
    if kind.name == "vllm":
        log.say("EngineCore failed to start.", "core.py:900", level="ERROR")
        for line in ("Traceback (most recent call last):", error):
            log.say(line, "core.py:900", level="ERROR")
        log.bare("(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.")
        return
    log.say("Scheduler hit an exception: Traceback (most recent call last):", level="ERROR")
    log.bare(error)
    log.bare("Received sigquit from a child process. It usually means the child failed.")


def _head(peers: Peers | None, kind: Kind, front: Front, engine: Parsed, speed: Pace, log: Log) -> int:
    try:
        return served(kind, front, engine, speed, log)
    except Stopped:
        if peers is not None:
            peers.farewell()
        raise


def _run(kind: Kind, words: Sequence[str], speed: Pace, log: Log) -> int:
    extra = ("--no-such-flag",) if speed.fault == "bad-gateway-flag-late" else ()
    model, engine = parsed(kind, (*words, *extra))
    try:
        launch = configured(kind, model, engine, os.environ)
        here = meeting(engine)
        speed = replace(speed, fault=fault_of(speed.fault, here, os.environ))
        if here is not None and here.number and kind.name == "sglang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends when its head has told it to
        peers = start(kind, launch, speed, log)
        if peers is not None and here is not None and here.number:
            if kind.name == "sglang":
                answer_health(str(engine.get("host") or kind.host), whole(engine.get("port"), kind.port))
            return follow(peers, until_signal=False)
        return _head(peers, kind, front_of(kind, launch, speed), engine, speed, log)
    except Died as end:
        _say_death(kind, end, log)
        return kind.crash


def main(name: str, words: Sequence[str]) -> int:
    """`serve MODEL …` or `--version`; the exit status."""
    kind = KINDS[name]
    if list(words[:1]) == ["--version"]:
        sys.stdout.write(f"{kind.catalog}\n")
        return 0
    if list(words[:1]) != ["serve"]:
        sys.stdout.write(f"usage: {name} serve MODEL …\n")
        return 2
    leave_words(words, os.environ)
    speed = pace(os.environ)
    handler: Callable[[int, object], None] | int = signal.SIG_IGN if speed.fault == "ignore-term" else stop
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, handler)
    try:
        return _run(kind, words[1:], replace(speed, timing=False), Log(kind))
    except Stopped:
        return 0
    except ArgumentsRefused as refused:
        sys.stdout.write("\n".join(refused.lines) + "\n")
        sys.stdout.flush()
        return refused.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
