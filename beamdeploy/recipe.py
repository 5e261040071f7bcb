"""Recipes: how a model is served, as frozen values, and their loading from YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from beamdeploy import documents, schema, variants
from beamdeploy.documents import Document
from beamdeploy.errors import InputError, Problem
from beamdeploy.image import ImageRef, parse_reference

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Hardware:
    gpu: str
    count: int
    min_driver: str | None = None


@dataclass(frozen=True)
class Folder:
    """A checkpoint folder: `path` below the host's model_dir, and where it comes from."""

    path: str
    source: str | None = None


@dataclass(frozen=True)
class Model:
    served_name: str
    weights: Folder


@dataclass(frozen=True)
class Quantization:
    weights: str | None = None
    dtype: str | None = None
    kv_cache: str | None = None


@dataclass(frozen=True)
class Engine:
    """The engine's settings. None: not said, the engine's default holds.

    `command`, `entrypoint`, `port`, `ready`: of an engine that is known by the recipe alone.
    """

    name: str
    tensor_parallel: int = 1
    command: tuple[str, ...] = ()
    entrypoint: str | None = None
    port: int | None = None
    ready: str | None = None
    catalog: str | None = None
    data_parallel: int | None = None
    pipeline_parallel: int | None = None
    expert_parallel: int | None = None
    nodes: int = 1
    rank_port: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    gpu_memory_utilization: float | None = None
    chunked_prefill_size: int | None = None
    max_cudagraph_capture_size: int | None = None
    attention_backend: str | None = None
    moe_backend: str | None = None
    prefix_caching: bool | None = None
    kvstore: bool | None = None
    args: Mapping[str, Any] = ()  # type: ignore[assignment]  # the schema's default fills it
    unverified: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parsers:
    tool_call: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True)
class Speculative:
    method: str
    drafter: Folder | None = None
    num_speculative_tokens: int | None = None
    attention_backend: str | None = None


@dataclass(frozen=True)
class Container:
    """`address`:`port` is what is published on the host; `stop_timeout` in seconds, None: the engine's own."""

    address: str
    port: int
    env: Mapping[str, str]
    shm_size: str | None = None
    init: bool = True
    restart: str | None = None
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    network: str | None = None
    stop_timeout: int | None = None


@dataclass(frozen=True)
class Ready:
    """Limits in seconds."""

    timeout: int
    stall: int


@dataclass(frozen=True)
class Smoke:
    """The checks that end an apply, and the seconds that a request of one may be without an answer."""

    checks: tuple[str, ...] = ("models", "completion")
    timeout: int = 120


@dataclass(frozen=True)
class Recipe:
    """One recipe. `source` is the data it was made from, with the schema's defaults."""

    name: str
    hardware: Hardware
    image: ImageRef
    unpinned: str | None
    model: Model
    quantization: Quantization
    engine: Engine
    parsers: Parsers
    speculative: Speculative | None
    container: Container
    request: Json
    ready: Ready
    source: Json
    file: str = "-"
    smoke: Smoke = Smoke()

    @property
    def gpus(self) -> int:
        """The GPUs of all nodes."""
        return self.hardware.count * self.engine.nodes

    @property
    def folders(self) -> tuple[str, ...]:
        """The weights folders that must be staged, below model_dir."""
        drafter = self.speculative.drafter if self.speculative else None
        return (self.model.weights.path, *((drafter.path,) if drafter else ()))


def load_recipe(file: str, overrides: Iterable[tuple[str, str]] = ()) -> Recipe:
    """The recipe in `file` ("-": standard input), with `-e PATH=VALUE` overrides. InputError: all that is wrong."""
    return load_with_document(file, overrides)[0]


def load_with_document(file: str, overrides: Iterable[tuple[str, str]] = ()) -> tuple[Recipe, Document]:
    """The recipe as `load_recipe` gives it, and the document that it was read from."""
    document, problems = read_recipe(file)
    if document is None or problems:
        raise InputError(problems)
    overrides = tuple(overrides)
    document = _chosen(document, [value for path, value in overrides if path == variants.CHOSEN])
    data: Any = document.data
    for path, value in (pair for pair in overrides if pair[0] != variants.CHOSEN):
        data = _override(document, data, path, value)
    return build(schema.defaults(data, "recipe"), file), document


def _chosen(document: Document, names: list[str]) -> Document:
    """The document with the variant of that name, checked like the file."""
    chosen = variants.resolved(document, names[-1] if names else None)
    problems = recipe_problems(chosen) if names else ()
    if problems:
        raise InputError(problems)
    return chosen


def read_recipe(file: str, text: str | None = None) -> tuple[Document | None, tuple[Problem, ...]]:
    """The checked document in `file`, or everything that is wrong with it."""
    document, problems = documents.load(file, text)
    if document is None:
        return None, problems
    # all at once: what YAML said of a value is not said again for its kind
    found = (*problems, *recipe_problems(document))
    return document, tuple(sorted(found, key=lambda each: (each.line or 0, each.col or 0)))


def recipe_problems(document: Document) -> tuple[Problem, ...]:
    """Everything that is wrong with a recipe that is well-formed YAML."""
    return (*schema.check(document, "recipe"), *_publish_problems(document))


def build(data: Json, file: str = "-") -> Recipe:
    """A recipe from data that holds to the schema and has its defaults."""
    speculative = data.get("speculative")
    engine = data["engine"]
    return Recipe(
        name=data["name"],
        hardware=Hardware(**data["hardware"]),
        image=_image(data["image"]),
        unpinned=data["image"].get("unpinned"),
        model=Model(data["model"]["served_name"], Folder(**data["model"]["weights"])),
        quantization=Quantization(**data["quantization"]),
        engine=Engine(
            **{**engine, "command": tuple(engine.get("command", ())), "unverified": tuple(engine["unverified"])}
        ),
        parsers=Parsers(**data["parsers"]),
        speculative=_speculative(speculative) if speculative else None,
        container=_container(data["container"]),
        request=data["request"],
        ready=Ready(seconds(data["ready"]["timeout"]), seconds(data["ready"]["stall"])),
        source=data,
        file=file,
        smoke=_smoke(data.get("smoke")),
    )


def seconds(duration: str) -> int:
    """ "45m" → 2700."""
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def _smoke(data: Json | None) -> Smoke:
    """Labels and records of earlier versions hold no such section."""
    return Smoke(tuple(data["checks"]), seconds(data["timeout"])) if data else Smoke()


def _image(data: Json) -> ImageRef:
    return ImageRef(id=data["id"]) if "id" in data else parse_reference(data["reference"])


def _speculative(data: Json) -> Speculative:
    drafter = data.get("drafter")
    return Speculative(**{**data, "drafter": Folder(**drafter) if drafter else None})


def _container(data: Json) -> Container:
    address, _, port = data["publish"].rpartition(":")
    rest = {key: value for key, value in data.items() if key != "publish"}
    return Container(address=address, port=int(port), **rest)


def _publish_problems(document: Document) -> tuple[Problem, ...]:
    data: Any = document.data
    container = data.get("container") if isinstance(data, dict) else None
    publish = container.get("publish") if isinstance(container, dict) else None
    text = publish if isinstance(publish, str) and ("container", "publish") not in document.faults else ""
    numbers = re.fullmatch(r"(?:(\d+)\.(\d+)\.(\d+)\.(\d+)|\[.*\]):(\d+)", text)
    if numbers is None:
        return ()  # the schema's pattern, or YAML, has said it
    *octets, port = (int(number) for number in numbers.groups() if number is not None)
    if port < 65536 and all(octet < 256 for octet in octets):
        return ()
    what = f"container.publish: {publish} is not an address and port"
    remedy = "Give an IPv4 address of four numbers below 256 and a port below 65536, such as 127.0.0.1:8000."
    return (documents.problem(document, ("container", "publish"), what, remedy, rule="BD050"),)


def _override(document: Document, data: Any, path: str, value: str) -> Any:
    """`data` with `-e PATH=VALUE` put in, checked like the file. InputError names the option."""
    option = f"-e {path}={value}"
    loaded, problems = documents.load(option, f"value: {value}\n" if value else "value: ''\n")
    if loaded is None or problems:
        raise InputError([Problem(p.what, p.remedy, option, rule=p.rule) for p in problems])
    changed = _put(deepcopy(data), path.split("."), value_of(loaded), option)
    problems = _check_changed(document, changed)
    if problems:
        raise InputError([Problem(p.what, p.remedy, option, rule=p.rule) for p in problems])
    return changed


def _check_changed(document: Document, data: Any) -> tuple[Problem, ...]:
    changed = Document(document.file, data, document.keys, document.values, document.text, document.written)
    return recipe_problems(changed)


def value_of(document: Document) -> Any:
    """The one value of an override's document."""
    data: Any = document.data
    return data["value"]


def _put(data: Any, keys: list[str], value: Any, option: str) -> Any:
    place = data
    for key in keys[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise InputError([Problem(f"{option}: {key} is not a section of the recipe", "Name a setting.", option)])
    place[keys[-1]] = value
    return data
