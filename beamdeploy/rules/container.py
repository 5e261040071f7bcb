"""Rules on how the container runs: memory, port, restart, stop, readiness."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.recipe import seconds
from beamdeploy.rules.rule import Finding, Rule, Subject, whole

ANYWHERE = ("0.0.0.0", "[::]")
_GIB = 2**30
_SHM_A_GPU = _GIB
_READ_SPEED = 4e9  # bytes a second: faster than one NVMe drive


def _shm(subject: Subject) -> Iterator[Finding]:
    size = subject.recipe.container.shm_size
    ranks = min(subject.recipe.engine.tensor_parallel, subject.recipe.hardware.count)
    if ranks == 1:
        return
    if size is None:
        what = f"container.shm_size is not set: docker gives 64 MiB, and {ranks} GPUs exchange data through it"
        yield Finding("container", what, "Set container.shm_size: 64g (or at least 1g for each GPU).", key=True)
    elif bytes_of(size) < ranks * _SHM_A_GPU:
        what = f"container.shm_size: {size} is little for engine.tensor_parallel: {ranks}"
        yield Finding("container.shm_size", what, f"Give at least {ranks}g; the publisher's page has 64g.")


def bytes_of(size: str) -> int:
    """ "64g" → bytes."""
    return (whole(size[:-1]) or 10**18) * {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}[size[-1]]


def _publish(subject: Subject) -> Iterator[Finding]:
    container = subject.recipe.container
    if container.address.startswith("127.") or container.address in ("[::1]",) or has_key(subject):
        return
    where = "on every interface, past the host's firewall" if container.address in ANYWHERE else "beyond the host"
    what = f"container.publish: {container.address}:{container.port} answers {where}, to anyone, without a key"
    remedy = "Publish on 127.0.0.1 and reach it through ssh or a proxy that asks for a key."
    yield Finding("container.publish", what, remedy, None if container.address in ANYWHERE else "warning")


def has_key(subject: Subject) -> bool:
    """Whether the engine will ask for a key."""
    container = subject.recipe.source["container"]
    names = {*container.get("env", {}), *container.get("secrets", {})}
    flags = any(subject.argument(flag) is not None for flag in subject.traits.key_flags)
    return flags or bool(names & set(subject.traits.key_env))


def _restart(subject: Subject) -> Iterator[Finding]:
    policy = subject.recipe.container.restart
    if policy == "on-failure" or policy is None:
        return
    if policy == "always":
        what = "container.restart: always starts a server again that was stopped, and one that cannot load for ever"
        yield Finding("container.restart", what, "Use on-failure, or leave it out: a failed start keeps its log.")
    else:
        what = f"container.restart: {policy} loads again for ever what fails at each start"
        yield Finding("container.restart", what, "Leave it out until the deployment has proved itself.", "info")


def _stop(subject: Subject) -> Iterator[Finding]:
    given, stop, engine = subject.recipe.container.stop_timeout, subject.traits.stop, subject.engine
    if engine is None or stop is None:
        return
    flag, default, factor, more = stop
    given_drain = whole(subject.argument(flag))
    drain = default if given_drain is None else given_drain
    worst = factor * drain + more
    has = given if given is not None else engine.stop_timeout
    if has >= min(worst, factor * drain + 2):
        return
    what = f"container.stop_timeout: {has} is shorter than {engine.name} may need to end by itself ({worst} s"
    path = "container.stop_timeout" if given is not None else ("engine", "args", flag[2:])
    yield Finding(path, f"{what}: {factor} × {flag} {drain} + {more})", f"Set container.stop_timeout: {worst}.")


def _init(subject: Subject) -> Iterator[Finding]:
    if not subject.recipe.container.init:
        what = "container.init: false: the engine is process 1 and gets no signal that it does not handle"
        yield Finding("container.init", what, "Remove it: with an init, stop works and exit codes are true.")


def _stall(subject: Subject) -> Iterator[Finding]:
    ready, source = subject.recipe.ready, subject.recipe.source["ready"]
    if ready.stall >= ready.timeout:
        what = f"ready.stall: {source['stall']} is not shorter than ready.timeout: {source['timeout']}"
        yield Finding("ready.stall", f"{what}, so that a hang is never noticed before", "Make it shorter.")


def _timeout(subject: Subject) -> Iterator[Finding]:
    timeout, variant = subject.recipe.ready.timeout, subject.variant
    said = subject.recipe.source["ready"]["timeout"]
    least = 300 + int(variant.size / _READ_SPEED) if variant else 60
    if timeout < least:
        size = f" {variant.size / 1e9:.0f} GB of weights and" if variant else ""
        what = f"ready.timeout: {said} is too short to read{size} compile kernels and capture graphs"
        yield Finding("ready.timeout", what, f"Give at least {-(-least // 60)}m; 45m is usual for large models.")


def _startup(subject: Subject) -> Iterator[Finding]:
    yield from _startup_env(subject)
    if subject.traits.startup is None:
        return
    flag, default = subject.traits.startup
    given = whole(subject.argument(flag))
    limit = default if given is None else given
    timeout = subject.recipe.source["ready"]["timeout"]
    if seconds(timeout) > limit:
        what = f"ready.timeout: {timeout} is longer than the engine waits for itself ({flag} {limit} s)"
        yield Finding("ready.timeout", what, f"Add {flag[2:]}: {seconds(timeout)} to engine.args, or wait less long.")


def _startup_env(subject: Subject) -> Iterator[Finding]:
    """vLLM's limit is a variable, and counts when there are several API servers: with replicas, or asked for."""
    several = (subject.recipe.engine.data_parallel or 1) > 1 or (whole(subject.argument("--api-server-count")) or 1) > 1
    if subject.traits.startup_env is None or not several:
        return
    name, default = subject.traits.startup_env
    given = whole(subject.recipe.container.env.get(name))
    limit = default if given is None else given
    timeout = subject.recipe.source["ready"]["timeout"]
    if seconds(timeout) > limit:
        what = f"ready.timeout: {timeout} is longer than the engine waits for itself ({name} {limit} s)"
        yield Finding("ready.timeout", what, f'Add {name}: "{seconds(timeout)}" to container.env, or wait less long.')


RULES = (
    Rule(
        "BD400",
        "Too little shared memory for several GPUs",
        "warning",
        "NCCL and the engine's ranks exchange data through /dev/shm. With docker's 64 MiB a start hangs or ends with a "
        "bus error.",
        "container:\n  shm_size: 64m  # <-",
        "container:\n  shm_size: 64g",
        "the publisher's page of Beam; TokenSpeed docs/guides/getting-started.md (32g)",
        _shm,
    ),
    Rule(
        "BD401",
        "The port is open to others and no key is asked for",
        "error",
        "docker publishes past the host's firewall (ufw, firewalld). An address of one network is a warning.",
        "container:\n  publish: 0.0.0.0:8000  # <-",
        "container:\n  publish: 127.0.0.1:8000",
        "docker documentation, packet filtering and firewalls",
        _publish,
    ),
    Rule(
        "BD402",
        "The restart policy hides failures",
        "warning",
        "A start takes twenty minutes and all GPUs. A server that cannot load would try for ever, with a log that "
        "grows over the cause; `always` also brings back what an operator stopped.",
        "container:\n  restart: always  # <-",
        "container:\n  restart: on-failure",
        "docker documentation, restart policies",
        _restart,
    ),
    Rule(
        "BD403",
        "The engine gets less time to stop than it may need",
        "warning",
        "TokenSpeed ends its gateway, then its engine, each in up to --drain-timeout seconds; killed before, GPU "
        "memory can stay taken for a while.",
        "container:\n  stop_timeout: 20  # <-",
        "container:\n  stop_timeout: 70",
        "TokenSpeed 0.1.1 cli/_proc.py, cli/serve_smg.py:779",
        _stop,
    ),
    Rule(
        "BD404",
        "No init in the container",
        "warning",
        "Process 1 gets no signal without a handler: docker stop waits its whole time, and SGLang ends with 0 after a "
        "crash.",
        "container:\n  init: false  # <-",
        "container:\n  init: true",
        "docker run --init; SGLang 0.5.23 utils/common.py:2549",
        _init,
    ),
    Rule(
        "BD405",
        "The limit for a hang is not shorter than the limit for all",
        "warning",
        "ready.stall is how long nothing may happen, ready.timeout how long everything may take.",
        "ready:\n  timeout: 10m\n  stall: 15m  # <-",
        "ready:\n  timeout: 45m\n  stall: 10m",
        "",
        _stall,
    ),
    Rule(
        "BD406",
        "The time to become ready is too short",
        "warning",
        "Weights are read, kernels compiled, graphs captured. A limit below that takes down a server that was well.",
        "ready:\n  timeout: 3m  # <-\n  stall: 2m",
        "ready:\n  timeout: 45m\n  stall: 10m",
        "measured loads of models of this size: 6 to 40 minutes",
        _timeout,
    ),
    Rule(
        "BD407",
        "The engine gives up before beamdeploy does",
        "warning",
        "TokenSpeed ends itself when its engine is not up within --engine-startup-timeout, an hour unless it is given. "
        "vLLM with several API servers, as with replicas, ends after VLLM_ENGINE_READY_TIMEOUT_S, which is 600 s.",
        "ready:\n  timeout: 2h  # <-",
        "ready:\n  timeout: 2h\nengine:\n  args:\n    engine-startup-timeout: 7200",
        "TokenSpeed 0.1.1 cli/_argsplit.py; vLLM 0.33.0 envs.py:813",
        _startup,
    ),
)
