"""What is known of models before their weights are there: one YAML file each, with its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Variant:
    """One checkpoint of a model. `size`: bytes, an estimate; `quantization`: what engines may call it."""

    name: str
    repo: str
    quantization: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class DrafterFacts:
    """A drafter of a model. `window`: tokens that its attention sees; `size`: bytes; KV as in `ModelFacts`."""

    name: str
    repo: str
    method: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    window: int
    size: int


@dataclass(frozen=True)
class ModelFacts:
    """One model. `full_layers` keep the whole context in the KV cache, `sliding_layers` only `window` tokens.

    `attention`: the kernel family (gqa or mla). `catalogs`: engine → the catalogs whose images know the model.
    `parsers`, `sampling`, `template`: what its publisher recommends, by the recipe's own keys.
    """

    name: str
    layers: int
    full_layers: int
    sliding_layers: int
    window: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    context: int
    vocabulary: int
    attention: str
    reasoning: bool
    variants: tuple[Variant, ...]
    drafters: tuple[DrafterFacts, ...]
    catalogs: Mapping[str, tuple[str, ...]]
    parsers: Mapping[str, str]
    sampling: Mapping[str, float]
    template: Mapping[str, Any]
    template_options: tuple[str, ...]

    def variant(self, source: str | None) -> Variant | None:
        """The checkpoint that `source` (hf://OWNER/NAME[@REVISION]) names."""
        return next((each for each in self.variants if each.repo == repo_of(source)), None)

    def drafter(self, source: str | None) -> DrafterFacts | None:
        """The drafter that `source` names."""
        return next((each for each in self.drafters if each.repo == repo_of(source)), None)

    def kv_bytes(self, element: int) -> tuple[int, int]:
        """Bytes of KV cache over all GPUs: (a token, a sequence besides), for elements of so many bytes."""
        layer = 2 * self.kv_heads * self.head_dim * element
        return self.full_layers * layer, self.sliding_layers * layer * self.window


def repo_of(source: str | None) -> str | None:
    """ "hf://reflection/Beam@main" → "reflection/Beam"; None: not a repository of the hub."""
    if source is None or not source.startswith("hf://"):
        return None
    return source.removeprefix("hf://").partition("@")[0]


@cache
def models() -> tuple[ModelFacts, ...]:
    """All models that are known."""
    found = sorted(entry.name for entry in files("beamdeploy.models").iterdir() if entry.name.endswith(".yaml"))
    return tuple(_model((files("beamdeploy.models") / name).read_text(encoding="utf-8")) for name in found)


def model_of(source: str | None, served_name: str) -> ModelFacts | None:
    """The model of this repository, or else of this name; None: not known."""
    repo = repo_of(source)
    for model in models():
        repos = {*(each.repo for each in model.variants), *(each.repo for each in model.drafters)}
        if repo in repos or (repo is None and served_name.lower() == model.name.lower()):
            return model
    return None


def _model(text: str) -> ModelFacts:
    loaded: dict[str, Any] = yaml.load(text, Loader=_LOADER)
    variants = tuple(Variant(**{**each, "quantization": tuple(each["quantization"])}) for each in loaded["variants"])
    drafters = tuple(DrafterFacts(**each) for each in loaded["drafters"])
    catalogs = {engine: tuple(versions) for engine, versions in loaded["catalogs"].items()}
    lists = {"variants": variants, "drafters": drafters, "template_options": tuple(loaded["template_options"])}
    return ModelFacts(**{**loaded, **lists, "catalogs": catalogs})
