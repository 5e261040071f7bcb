"""Rules on container.env, and on secrets in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from beamdeploy.engines.traits import described, traits
from beamdeploy.plaintext import holds_secret, is_secret
from beamdeploy.rules.rule import Finding, Rule, Subject, closest

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TRUE = ("1", "true", "yes", "on")
KNOWN = (
    *OFFLINE,
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DISABLE_REQUIRE",
    "NCCL_DEBUG",
    "NCCL_SOCKET_IFNAME",
    "NCCL_P2P_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_CUMEM_ENABLE",
    "NCCL_NVLS_ENABLE",
    "GLOO_SOCKET_IFNAME",
    "TOKENSPEED_STARTUP_TIMING",
    "TOKENSPEED_SKIP_GRPC_WARMUP",
    "TOKENSPEED_GRPC_MAX_MESSAGE_BYTES",
    "TOKENSPEED_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
    "VLLM_ENGINE_READY_TIMEOUT_S",
    "VLLM_LOGGING_LEVEL",
    "VLLM_CACHE_ROOT",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
    "SGLANG_HEALTH_CHECK_TIMEOUT",
    "PROMETHEUS_MULTIPROC_DIR",
    "OMP_NUM_THREADS",
    "HF_HOME",
)
_MOST = 500  # variables that are compared with known names
_SECRET_FLAG = re.compile(r"(^|-)(password|secret|api-keys?|app-key|token|db-url)$")


def _offline(subject: Subject) -> Iterator[Finding]:
    env = subject.recipe.container.env
    missing = [name for name in OFFLINE if name not in env]
    for name in OFFLINE:
        if name in env and env[name].lower() not in TRUE:
            what = f"container.env.{name}: {env[name] or 'empty'} lets the engine ask the hub while it starts"
            yield Finding(("container", "env", name), what, 'Write "1": the weights are there.')
    if missing:
        what = (
            f"container.env lacks {' and '.join(missing)}: the engine may ask the hub while it starts, and wait for it"
        )
        places = ("container", "env") if env else ("container",)
        added = " and ".join(name + ': "1"' for name in missing)
        yield Finding(places, what, f"Add {added}.", key=True)


def _devices(subject: Subject) -> Iterator[Finding]:
    env, count = subject.recipe.container.env, subject.recipe.hardware.count
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        if name not in env:
            continue
        level = "warning" if env[name] == ",".join(map(str, range(count))) and name[0] == "C" else None
        what = f"container.env.{name}: {env[name]} and the inventory's gpus both choose GPUs"
        inside = f"in the container they are counted from 0 to {count - 1}, whichever they are on the host"
        yield Finding(("container", "env", name), f"{what}; {inside}", "Remove it.", level, key=True)


def _checks(subject: Subject) -> Iterator[Finding]:
    if "NVIDIA_DISABLE_REQUIRE" in subject.recipe.container.env:
        what = "container.env.NVIDIA_DISABLE_REQUIRE turns off the check that the driver fits the image's CUDA"
        path = ("container", "env", "NVIDIA_DISABLE_REQUIRE")
        yield Finding(path, what, "Remove it: a driver that is too old fails later and less clearly.", key=True)


def _others(subject: Subject) -> Iterator[Finding]:
    own = subject.traits.env_prefixes
    doubtful = [name for name in subject.recipe.container.env if name not in OFFLINE and not name.startswith(own)]
    if not own or not doubtful:
        return
    others = {prefix: name for name in described() if name != subject.recipe.engine.name for prefix in _prefixes(name)}
    for name in doubtful:
        engine = next((others[prefix] for prefix in others if name.startswith(prefix)), None)
        if engine is not None:
            what = f"container.env.{name} is read by {engine}; {subject.recipe.engine.name} ignores it"
            yield Finding(("container", "env", name), what, "Remove it.", key=True)


def _prefixes(engine: str) -> tuple[str, ...]:
    found = traits(engine)
    return found.env_prefixes if found else ()


def _misspelt(subject: Subject) -> Iterator[Finding]:
    for name in islice(subject.recipe.container.env, _MOST):
        near = None if name in KNOWN else closest(name, KNOWN, 0.88)
        if near is not None and near not in subject.recipe.container.env:
            what = f"container.env.{name} is no variable known here, and looks like {near}"
            yield Finding(("container", "env", name), what, f"Did you mean {near}?", key=True)


def _secrets(subject: Subject) -> Iterator[Finding]:
    # the value itself is never repeated
    for name, value in subject.recipe.container.env.items():
        if is_secret(name, value):
            remedy = f"Name where it comes from instead: container.secrets: {{{name}: {{env: {name}}}}}."
            yield _secret(("container", "env", name), f"container.env.{name}", remedy)
    for name, value in subject.recipe.engine.args.items():
        if value is not True and value is not False and (_SECRET_FLAG.search(name) or holds_secret(str(value))):
            variables = subject.traits.key_env if "key" in name else ()
            instead = f", or give it by container.secrets as {variables[0]} if this image reads it" if variables else ""
            remedy = f"Remove it: publish on 127.0.0.1 behind a proxy that asks for a key{instead}."
            yield _secret(("engine", "args", name), f"engine.args.{name}", remedy)


def _secret(path: tuple[str, ...], said: str, remedy: str) -> Finding:
    what = f"{said} holds a secret in plain text: the file, docker inspect, ps and the deployment's history show it"
    return Finding(path, what, f"{remedy} Revoke it if the file was shared.")


def _both(subject: Subject) -> Iterator[Finding]:
    for name in subject.setting("container.secrets") or {}:
        if name in subject.recipe.container.env:
            what = f"container.env.{name} and container.secrets.{name} are one variable"
            yield Finding(("container", "env", name), what, "Keep the secret, remove the other.", key=True)


RULES = (
    Rule(
        "BD410",
        "The engine may ask the hub",
        "warning",
        "The weights are on the server. Without these variables a start waits for the hub, or loads a file that was "
        "never checked.",
        'container:\n  env:\n    HF_HUB_OFFLINE: "0"  # <-',
        'container:\n  env:\n    HF_HUB_OFFLINE: "1"\n    TRANSFORMERS_OFFLINE: "1"',
        "huggingface_hub, environment variables",
        _offline,
    ),
    Rule(
        "BD411",
        "GPUs are chosen twice",
        "error",
        "The container is given its GPUs and counts them from 0. A list of the host's numbers then hides them. The "
        "numbers that they have anyway are a warning.",
        'container:\n  env:\n    CUDA_VISIBLE_DEVICES: "4,5,6,7"  # <-',
        'container:\n  env:\n    NCCL_DEBUG: "WARN"',
        "NVIDIA Container Toolkit, environment variables",
        _devices,
    ),
    Rule(
        "BD412",
        "The check of the driver is turned off",
        "warning",
        "The container toolkit compares the image's CUDA with the driver before anything starts.",
        'container:\n  env:\n    NVIDIA_DISABLE_REQUIRE: "1"  # <-',
        'container:\n  env:\n    NCCL_DEBUG: "WARN"',
        "NVIDIA Container Toolkit, NVIDIA_REQUIRE_CUDA",
        _checks,
    ),
    Rule(
        "BD413",
        "The variable belongs to another engine",
        "warning",
        "It does nothing here, and what it was meant to do is not done.",
        'container:\n  env:\n    VLLM_LOGGING_LEVEL: "DEBUG"  # <-',
        'container:\n  env:\n    TOKENSPEED_STARTUP_TIMING: "1"',
        "vLLM 0.33.0 envs.py; SGLang 0.5.23 environ.py; TokenSpeed 0.1.1 runtime/utils/env.py",
        _others,
    ),
    Rule(
        "BD414",
        "The variable looks misspelt",
        "warning",
        "Nothing complains about a variable that nothing reads.",
        'container:\n  env:\n    HF_HUB_OFLINE: "1"  # <-\n    HF_HUB_OFFLINE: null',
        'container:\n  env:\n    HF_HUB_OFFLINE: "1"',
        "",
        _misspelt,
    ),
    Rule(
        "BD415",
        "A secret in plain text",
        "error",
        "A recipe is committed and shown; the container's words and environment can be read by anyone who may use "
        "docker on the host.",
        "container:\n  env:\n    HF_TOKEN: not-a-real-token  # <-",
        "container:\n  secrets:\n    HF_TOKEN:\n      env: HF_TOKEN",
        "docker inspect; ps",
        _secrets,
    ),
    Rule(
        "BD416",
        "A variable is given as text and as a secret",
        "error",
        "Which of both the engine would see depends on the order of docker's options.",
        'container:\n  env:\n    MY_PROXY: "http://proxy:3128"  # <-\n  secrets:\n    MY_PROXY:\n      env: MY_PROXY',
        "container:\n  secrets:\n    MY_PROXY:\n      env: MY_PROXY",
        "docker run --env and --env-file",
        _both,
    ),
)
