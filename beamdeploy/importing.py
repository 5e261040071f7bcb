"""A `docker run` of one of the engines → the recipe that says the same, and what could not be carried over."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from beamdeploy.dockerrun import Run
from beamdeploy.engines import engine_facts
from beamdeploy.engines.catalog import Catalog, Flag, catalog, catalogs
from beamdeploy.engines.traits import Traits, traits
from beamdeploy.errors import InputError, Problem
from beamdeploy.gpu_access import GPUS, given, is_gpu

_PROGRAMS = {"tokenspeed": "tokenspeed", "ts": "tokenspeed", "vllm": "vllm", "sglang": "sglang"}
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY")
_MEANT: tuple[str, ...] = (
    "--name",
    "--gpus",
    "--device",
    "--shm-size",
    "--publish",
    "--mount",
    "--volume",
    "--env",
    "--entrypoint",
    "--restart",
)
_MEANT += ("--init", "--rm", "--detach", "--label", "--interactive", "--tty", "--env-file")


_WIDTHS = ("--speculative-num-draft-tokens", "--speculative-num-steps")


@dataclass
class Draft:
    """A recipe in the making, and notes on what it does not say."""

    recipe: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    """TokenSpeed's two flags that count one thing."""

    def put(self, path: str, value: Any) -> None:
        """Say a setting."""
        at = self.recipe
        *heads, last = path.split(".")
        for head in heads:
            at = at.setdefault(head, {})
        at[last] = value


def imported(run: Run, *, gpu: str | None = None) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """(recipe, notes). InputError: the engine cannot be told, or the command names no model."""
    name, words = _engine(run)
    found = traits(name)
    assert found is not None
    known = _catalog(name, run.image)
    draft = Draft({"apiVersion": "beamdeploy/v1", "name": run.last("--name") or name})
    draft.put("hardware", {"gpu": gpu or "unknown", "count": 1})
    draft.put("image", _image(run.image))
    draft.put("model", {})
    draft.put("engine", {"name": name, "catalog": known.version})
    model = _flags(draft, words, name, known, found)
    _width(draft)
    _model(draft, run, model)
    _container(draft, run)
    _hardware(draft, run, gpu, found)
    if draft.recipe["engine"].get("args") == {}:
        del draft.recipe["engine"]["args"]
    return draft.recipe, tuple(draft.notes)


def _engine(run: Run) -> tuple[str, list[str]]:
    """The engine, and its words after `serve`."""
    words = [*([run.last("--entrypoint")] if run.last("--entrypoint") else []), *run.words]
    text = [str(word) for word in words]
    if text[:1] and text[0].rpartition("/")[2] in _PROGRAMS:
        return _PROGRAMS[text[0].rpartition("/")[2]], text[2:] if text[1:2] == ["serve"] else text[1:]
    for module, engine in (("sglang.launch_server", "sglang"), ("vllm.entrypoints.openai.api_server", "vllm")):
        if module in text:
            return engine, text[text.index(module) + 1 :]
    for engine in ("vllm", "sglang", "tokenspeed"):
        held = traits(engine)
        if held and any(repository in run.image for repository in held.repositories):
            return engine, text[1:] if text[:1] == ["serve"] else text
    what = "neither the program nor the image says which engine it is"
    raise InputError([Problem(what, "Give --entrypoint vllm, sglang or tokenspeed in the command.")])


def _catalog(engine: str, image: str) -> Catalog:
    """The catalog that the image's tag names, else the engine's default."""
    tag = image.rpartition(":")[2]
    named = next((each for each in catalogs(engine) if tag in (each, f"v{each}")), engine_facts(engine).catalog)
    found = catalog(engine, named)
    assert found is not None
    return found


def _image(word: str) -> dict[str, str]:
    if re.fullmatch(r"sha256:[0-9a-f]{64}", word):
        return {"id": word}
    return {"reference": word} if "@sha256:" in word else {"reference": word, "unpinned": "imported from a command"}


def _flags(draft: Draft, words: Sequence[str], engine: str, known: Catalog, found: Traits) -> str | None:
    """Say every flag as a setting or in args; the model that the words name."""
    rest, model = list(words), None
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            model = model or word
            continue
        name, equals, value = word.partition("=")
        flag = known.names.get(name) or known.names.get(name.replace("_", "-")) or _short(known, name)
        values = [value] if equals else []
        several = flag is not None and flag.several
        takes = flag is None or (flag.takes_value and name not in flag.negatives)
        while takes and not equals and rest and not _is_flag(rest[0]) and (several or not values):
            values.append(rest.pop(0))
        if flag is not None and flag.name in ("--model", "--model-path"):
            model = model or (values[0] if values else None)
        elif not _special(draft, engine, name, flag, values):
            _plain(draft, name, flag, values, found)
    return model


def _short(known: Catalog, name: str) -> Flag | None:
    return next((flag for flag in known.names.values() if name in flag.aliases), None)


def _is_flag(word: str) -> bool:
    return word.startswith("-") and re.fullmatch(r"-[0-9.]+", word) is None


def _special(draft: Draft, engine: str, name: str, flag: Flag | None, values: list[str]) -> bool:
    """What is no flag with a value of its own."""
    known = flag.name if flag else name
    if known in ("--host", "--port", "--enable-auto-tool-choice"):
        return True  # beamdeploy passes them itself
    if known in ("--enable-prefix-caching", "--disable-prefix-caching", "--disable-radix-cache"):
        off = known.startswith("--disable") or (flag is not None and name in flag.negatives)
        draft.put("engine.prefix_caching", not off)
    elif known in ("--disable-kvstore", "--enable-hierarchical-cache"):
        draft.put("engine.kvstore", known.startswith("--enable"))
    elif known == "--enable-expert-parallel" and engine == "vllm":
        draft.put("engine.expert_parallel", 0)
    elif known == "--speculative-config" and values:
        _speculative(draft, json.loads(values[0]))
    elif known == "--speculative-algorithm" and values:
        draft.put("speculative.method", values[0].lower())
    elif known in ("--speculative-draft-model-path",) and values:
        draft.put("speculative.drafter", {"path": values[0]})
    elif engine == "tokenspeed" and known in _WIDTHS and values and values[0].isdigit():
        draft.widths[known] = int(values[0])
    else:
        return False
    return True


def _speculative(draft: Draft, said: Mapping[str, Any]) -> None:
    for key, value in said.items():
        if key == "model":
            draft.put("speculative.drafter", {"path": value})
        elif key in ("method", "num_speculative_tokens", "attention_backend"):
            draft.put(f"speculative.{key}", value)
        else:
            draft.notes.append(f"speculative-config: {key}: {value} has no place in a recipe")


def _width(draft: Draft) -> None:
    """A block drafter's verify width is one more than its steps; of the others the steps are what is drafted."""
    if not draft.widths:
        return
    width, steps = (draft.widths.get(name) for name in _WIDTHS)
    block = draft.recipe.get("speculative", {}).get("method") in ("dflash", "dspark")
    number = (width or (steps or 0) + 1) if block else (steps or (width or 0) - 1)
    draft.put("speculative.num_speculative_tokens", number)


def _plain(draft: Draft, name: str, flag: Flag | None, values: list[str], found: Traits) -> None:
    known = flag.name if flag else name
    setting = found.setting_of(known)
    if setting is not None and setting.split(".")[0] not in ("hardware", "container") and values:
        draft.put(setting, _value(flag, values))
        return
    key = name.lstrip("-").replace("_", "-")
    if flag is None:
        draft.notes.append(f"{name} is in no catalog: it is kept in engine.args and called unverified")
        draft.recipe["engine"].setdefault("unverified", []).append(f"engine.args.{key}")
    draft.recipe["engine"].setdefault("args", {})[key] = _value(flag, values) if values else True


def _value(flag: Flag | None, values: list[str]) -> Any:
    read = [_typed(flag, value) for value in values]
    return read[0] if len(read) == 1 else read


def _typed(flag: Flag | None, word: str) -> Any:
    kind = flag.type if flag else ""
    if kind == "int" and re.fullmatch(r"-?[0-9]+", word):
        return int(word)
    if kind == "float" and re.fullmatch(r"-?[0-9]*\.?[0-9]+", word):
        return float(word) if "." in word else int(word)
    if kind == "json" and word.startswith("{"):
        return json.loads(word)
    return word


def _model(draft: Draft, run: Run, model: str | None) -> None:
    if model is None:
        raise InputError([Problem("the command names no model", "Give the whole command.")])
    folder = _folder(draft, run, model)
    draft.recipe["model"] = {"served_name": draft.recipe["model"].get("served_name", model), "weights": folder}
    drafter = draft.recipe.get("speculative", {}).get("drafter")
    if drafter:
        draft.put("speculative.drafter", _folder(draft, run, drafter["path"]))


def _folder(draft: Draft, run: Run, model: str) -> dict[str, str]:
    """Where the weights are: below a mount, or a repository of the hub that is to be staged."""
    for source, target in _mounts(run):
        if model.startswith(f"{target.rstrip('/')}/"):
            draft.notes.append(f"the weights lie below {source} on the host: model_dir: {source} in the inventory")
            return {"path": model.removeprefix(f"{target.rstrip('/')}/").strip("/")}
        if model == target:
            above, _, name = source.rstrip("/").rpartition("/")
            draft.notes.append(
                f"{model} is a mount itself, of {source} on the host: model_dir: {above or '/'} in the inventory"
            )
            return {"path": name}
    if re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        draft.notes.append(
            f"{model} came from the hub: stage it (beamdeploy stage) below the host's model_dir: nothing is fetched"
        )
        return {"path": model.rpartition("/")[2].lower(), "source": f"hf://{model}"}
    draft.notes.append(f"{model} lies below no mount of the command")
    return {"path": model.strip("/")}


def _mounts(run: Run) -> Iterator[tuple[str, str]]:
    for word in run.all("--mount"):
        said = dict(part.strip('"').partition("=")[::2] for part in word.split(","))
        yield said.get("src") or said.get("source") or "", said.get("dst") or said.get("target") or ""
    for word in run.all("--volume"):
        source, _, target = word.partition(":")
        yield source, target.partition(":")[0]


def _container(draft: Draft, run: Run) -> None:
    draft.put("container.publish", _publish(draft, run))
    if run.last("--shm-size"):
        draft.put("container.shm_size", str(run.last("--shm-size")).lower().removesuffix("b"))
    if "--init" not in run.options:
        draft.notes.append("--init was not given; it is added: without it signals do not reach the engine")
    restart = run.last("--restart")
    if restart and restart != "no":
        draft.put("container.restart", restart.partition(":")[0])
    for pair in run.all("--env"):
        name, equals, value = pair.partition("=")
        if _SECRET.search(name) or not equals:
            draft.recipe["container"].setdefault("secrets", {})[name] = {"env": name}
            draft.notes.append(f"{name} is a secret or has no value: it is taken from your environment")
        else:
            draft.recipe["container"].setdefault("env", {})[name] = value
    for device in run.all("--device"):
        if not is_gpu(device):
            draft.notes.append(f"--device {device} has no place in a recipe (docker_args of a host)")
    for name, values in run.options.items():
        if name not in _MEANT or name == "--env-file":
            said = " ".join(value for value in values if value)
            draft.notes.append(f"{name}{' ' + said if said else ''} has no place in a recipe (docker_args of a host)")


def _publish(draft: Draft, run: Run) -> str:
    word = (run.last("--publish") or "8000:8000").removesuffix("/tcp")
    address, _, inside = word.rpartition(":")
    if not re.fullmatch(r"(\d+\.){3}\d+:\d+|\[.*\]:\d+", address):
        draft.notes.append(f"port {word} would open every interface: it is published on 127.0.0.1")
        return f"127.0.0.1:{address or inside}"
    return address


def _hardware(draft: Draft, run: Run, gpu: str | None, found: Traits) -> None:
    engine = draft.recipe["engine"]
    engine.setdefault("tensor_parallel", 1)
    product = 1
    for path in found.gpus:
        product *= int(engine.get(path.removeprefix("engine."), 1))
    gpus = given(run.last("--gpus"), run.all("--device"))
    count = len(gpus.names) or product
    if gpus.access != GPUS:
        draft.notes.append(f"the GPUs are given by --device: say gpu_access: {gpus.access} in the inventory")
    draft.put("hardware.count", count)
    if engine.get("expert_parallel") == 0:
        engine["expert_parallel"] = count
    if gpu is None:
        draft.notes.append("hardware.gpu: the command does not say which GPUs it is for")
