"""What rules must know of an engine beyond its flags, read from its folder's traits.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from beamdeploy.engines import place, places

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Traits:
    """One engine. Empty fields: nothing is known, and no rule asks.

    `settings`: recipe setting → the flags that say the same.
    `counterparts`: a flag of another engine → what says it here. `defaults`: what holds when a setting is left out.
    `capability`: quantization → compute capability (major * 10 + minor). `majors`: those of the images.
    `gpus`: the settings whose product is the number of GPUs. `methods`: method → what it needs of `drafter`
    ("needed", "refused", "free"). `tokens`: how num_speculative_tokens counts ("block", "drafts", "window").
    `families`: attention family → backends; `windowed`: those that honour a drafter's sliding window.
    `needs`: combinations that are refused; `online`: methods that quantize an unquantized checkpoint while loading.
    `refuses`: combinations, as `needs`, of a model or on GPUs. `step`: how a step's tokens are limited.
    `graph_unit`: what max_cudagraph_capture_size counts, "requests" or "tokens".
    `stop`: (flag, its default, factor, seconds on top): the longest stop. `startup`: (flag, its default in seconds).
    `memory_share`: gpu_memory_utilization where it is not said; None: the engine chooses.
    `startup_env`: the same as a variable, which counts with several API servers only.
    """

    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counterparts: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    capability: Mapping[str, int] = field(default_factory=dict)
    majors: tuple[int, ...] = ()
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    methods: Mapping[str, str] = field(default_factory=dict)
    meant: Mapping[str, str] = field(default_factory=dict)
    tokens: str = ""
    tokens_needed: tuple[str, ...] = ()
    families: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    windowed: tuple[str, ...] = ()
    stop: tuple[str, int, int, int] | None = None
    startup: tuple[str, int] | None = None
    startup_env: tuple[str, int] | None = None
    long_context: str = ""
    key_flags: tuple[str, ...] = ()
    key_env: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    env_prefixes: tuple[str, ...] = ()
    needs: tuple[Mapping[str, Any], ...] = ()
    refuses: tuple[Mapping[str, Any], ...] = ()
    step: str = ""
    graph_unit: str = ""
    online: tuple[str, ...] = ()
    served_name_without: str = ""
    memory_share: float | None = None

    def setting_of(self, flag: str) -> str | None:
        """The recipe's setting that gives this flag."""
        return next((setting for setting, flags in self.settings.items() if flag in flags), None)


@cache
def described() -> tuple[str, ...]:
    """The engines of which traits are known, also those that no recipe can name yet."""
    return tuple(sorted({name for name, where in places() if (where / "traits.yaml").is_file()}))


@cache
def traits(engine: str) -> Traits | None:
    """The traits of an engine; None: its folder has none."""
    file = place(engine) / "traits.yaml"
    if not file.is_file():
        return None
    loaded: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)
    return Traits(**_frozen(loaded))


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return {key: _frozen(each) for key, each in value.items()} if isinstance(value, dict) else value
