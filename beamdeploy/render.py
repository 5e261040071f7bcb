"""Recipe + host + lock → `Spec`: the words of `docker run`, and what identifies them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from beamdeploy import __version__, caches, ranks
from beamdeploy.engines import EngineFacts, facts_of, foreign
from beamdeploy.errors import InputError, Problem
from beamdeploy.gpu_access import GPUS, gpu_words
from beamdeploy.image import ImageRef, parse_reference
from beamdeploy.inventory import Host
from beamdeploy.label import Deployed, label_words, settings_of
from beamdeploy.lock import Lock, LockedFolder, locked, locked_weights, with_ids
from beamdeploy.ranks import Rank
from beamdeploy.recipe import Recipe, build

if TYPE_CHECKING:
    from jinja2 import Environment

MOUNT_POINT = "/weights"
_SECONDS = 5
"""For a template that is not ours; ours take milliseconds."""


@dataclass(frozen=True)
class Spec:
    """What is wanted on one host. `words`: the whole `docker run`; `digest`: over the words without our labels.

    `settings`: recipe path → value, as far as it is in the words; `templates`: the files that were used; `weights`:
    the folders that the lock holds; `rank`: None on one node.
    """

    host: Host
    recipe: Recipe
    engine: EngineFacts
    image: ImageRef
    words: tuple[str, ...]
    digest: str
    settings: Mapping[str, Any]
    templates: tuple[str, ...]
    weights: Mapping[str, LockedFolder] = field(default_factory=dict)
    rank: Rank | None = None

    @property
    def answers(self) -> bool:
        """Whether this host answers requests: of several nodes the head alone does."""
        return self.rank is None or self.rank.number == 0

    @property
    def rank_ports(self) -> tuple[int, ...]:
        """The ports that this host opens for its other ranks."""
        return ranks.rank_ports(self.engine, self.rank.port) if self.rank is not None and self.answers else ()

    @property
    def gpus(self) -> tuple[int, ...]:
        return _gpus(self.recipe, self.host)

    @property
    def stop_timeout(self) -> int:
        return self.recipe.container.stop_timeout or self.engine.stop_timeout


def nowhere(model_dir: str | None, gpus: tuple[int, ...] | None) -> Host:
    """Stands for a server that is not known yet: the shell's own MODEL_DIR says where the weights lie."""
    return Host("-", model_dir=model_dir or "$MODEL_DIR", gpus=gpus)


def render(
    recipe: Recipe, host: Host, lock: Lock | None, *, templates: str | None = None, rank: Rank | None = None
) -> Spec:
    """The `Spec` for one host. InputError: a host variable is missing, a template or a value is wrong."""
    problems = tuple(_host_problems(recipe, host))
    if problems:
        raise InputError(problems)
    image = _image(recipe, lock)
    engine = facts_of(recipe.source["engine"])
    words, used = _words(recipe, host, engine, image, templates, rank)
    digest = digest_of_words(words)
    settings = settings_of(recipe.source, image=image.word) | _host_settings(recipe, host)
    settings |= ranks.settings(rank)
    deployed = Deployed(recipe.name, digest, words, recipe.source, settings)
    weights = locked_weights(recipe, lock) if lock else {}
    return Spec(host, recipe, engine, image, _labelled(deployed), digest, settings, used, weights, rank)


def _image(recipe: Recipe, lock: Lock | None) -> ImageRef:
    if lock is None:
        return recipe.image
    return with_ids(recipe.image, lock) if recipe.image.pinned else locked(recipe.image, lock)


def render_again(deployed: Deployed, host: Host) -> Spec:
    """The spec that a deployment was made from, out of its label or its record: no file and no template is needed."""
    recipe = build(deployed.recipe)
    settings = deployed.settings
    image = str(settings["image"])
    named = ImageRef(id=image) if image.startswith("sha256:") else parse_reference(image)
    ref = replace(named, ids=deployed.ids)
    there = replace(host, **_host_values(settings))
    labelled = _labelled(deployed)
    engine, rank = facts_of(recipe.source["engine"]), ranks.rank_of(settings)
    return Spec(there, recipe, engine, ref, labelled, deployed.digest, settings, (), rank=rank)


def _host_settings(recipe: Recipe, host: Host) -> dict[str, Any]:
    """The host's share of the settings: path → value. What is as it always was is left out: older labels lack it."""
    odd: dict[str, Any] = {"inventory.gpu_access": host.gpu_access} if host.gpu_access != GPUS else {}
    odd |= {"inventory.docker_args": list(host.docker_args)} if host.docker_args else {}
    return {"inventory.model_dir": host.model_dir, "inventory.gpus": list(_gpus(recipe, host)), **odd}


def _host_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Host` that such settings say."""
    return {
        "model_dir": settings["inventory.model_dir"],
        "gpus": tuple(settings["inventory.gpus"]),
        "gpu_access": settings.get("inventory.gpu_access", GPUS),
        "docker_args": tuple(settings.get("inventory.docker_args", ())),
    }


def _labelled(deployed: Deployed) -> tuple[str, ...]:
    """The words with our labels, where an entrypoint makes a good place for them."""
    words = deployed.words
    place = words.index("--entrypoint") if "--entrypoint" in words else 2
    return (*words[:place], *label_words(deployed), *words[place:])


def digest_of_words(words: Iterable[str]) -> str:
    """ "sha256:…" over the words, each ended by a zero byte, so that no two lists of words are alike."""
    return "sha256:" + hashlib.sha256("".join(word + "\0" for word in words).encode()).hexdigest()


def _host_problems(recipe: Recipe, host: Host) -> Iterator[Problem]:
    if host.model_dir is None:
        yield Problem(
            f"model_dir is not set for {host.name}",
            "Say in the inventory (or with --model-dir) in which folder of the host the weights lie.",
            host.name,
        )
    wanted = recipe.hardware.count
    if host.gpus is not None and len(host.gpus) != wanted:
        yield Problem(
            f"hardware.count is {wanted}, the inventory lists {len(host.gpus)} GPUs for {host.name}",
            f"List {wanted} GPUs in the host's gpus, or change hardware.count and engine.tensor_parallel.",
            host.name,
        )


def _gpus(recipe: Recipe, host: Host) -> tuple[int, ...]:
    return host.gpus if host.gpus is not None else tuple(range(recipe.hardware.count))


def _words(
    recipe: Recipe, host: Host, engine: EngineFacts, image: ImageRef, templates: str | None, rank: Rank | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words without labels, and the template files that made them."""
    names = ("docker-run.j2", f"{engine.name}/words.j2")
    environment = _environment(templates)
    values = {
        "recipe": recipe,
        "host": host,
        "engine": engine,
        "image": image,
        "gpus": ",".join(str(gpu) for gpu in _gpus(recipe, host)),
        "gpu_words": gpu_words(host.gpu_access, _gpus(recipe, host)),
        "mount": mount_word(str(host.model_dir)),
        "env": tuple(
            f"{name}={value}" for name, value in ranks.environment(rank, engine, recipe.container.env).items()
        ),
        "listen": _listen(recipe, engine),
        "rank": rank,
        "docker_args": host.docker_args,
        "env_file": env_file(recipe, host),
        "speculative_config": _speculative_config(recipe),
        "arguments": tuple(_arguments(recipe.engine.args)),
    }
    text, used = _rendered(environment, names, values)
    words = text.removesuffix("\n").split("\n")
    if "" in words:
        raise InputError([Problem(f"a template gave an empty word (word {words.index('') + 1})", "One word a line.")])
    return tuple(words), used


def _listen(recipe: Recipe, engine: EngineFacts) -> Mapping[str, Any]:
    """Where the engine listens: on every address of its own network, or where it is published on the host's."""
    if recipe.container.network is None:
        return {"address": "0.0.0.0", "port": engine.port}
    return {"address": recipe.container.address.strip("[]"), "port": recipe.container.port}


def env_file(recipe: Recipe, host: Host) -> str | None:
    """Where the secrets lie on the host, for the docker client there; None: the recipe has none."""
    return f"{host.state_folder}/{recipe.name}/secrets.env" if recipe.container.secrets else None


def mount_word(source: str) -> str:
    """docker reads `--mount` as one line of CSV: a field with a comma or a quote must be quoted in CSV's way."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(("type=bind", f"src={source}", f"dst={MOUNT_POINT}", "readonly"))
    return line.getvalue()


def _speculative_config(recipe: Recipe) -> Mapping[str, Any]:
    speculative = recipe.speculative
    if speculative is None:
        return {}
    drafter = {"model": f"{MOUNT_POINT}/{speculative.drafter.path}"} if speculative.drafter else {}
    tokens = speculative.num_speculative_tokens
    return {"method": speculative.method, **drafter, **({"num_speculative_tokens": tokens} if tokens else {})}


def _arguments(args: Mapping[str, Any]) -> Iterator[str]:
    """Extra flags as words: true → the switch, a list → its values, a mapping → JSON; false → nothing."""
    for flag, value in args.items():
        if value is False:
            continue
        yield f"--{flag}"
        if value is not True:
            yield from (_one_word(item) for item in (value if isinstance(value, list) else [value]))


def _one_word(value: object) -> str:
    """What every `{{ }}` passes through. ValueError: it would not be exactly one word."""
    if isinstance(value, Mapping):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if value is None or isinstance(value, bool):
        raise ValueError(f"{value} is not a word")
    word = str(value)
    if word != word.strip() or not word or any(mark in word for mark in "\r\n\0"):
        raise ValueError(f"{word!r} is empty, has a blank at an edge, or more than one line")
    return word


@cache
def _environment(templates: str | None) -> Environment:
    from jinja2 import FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    package = files("beamdeploy")
    folders = [*([templates] if templates else []), str(package / "templates"), str(package / "engines")]
    folders += map(str, foreign())
    # compiling ours takes as long as all rules of a recipe
    compiled = caches.made(os.environ, f"templates-{__version__}")
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(folders),
        bytecode_cache=FileSystemBytecodeCache(str(compiled)) if compiled else None,
        undefined=StrictUndefined,
        finalize=_one_word,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _rendered(
    environment: Environment, names: tuple[str, ...], values: Mapping[str, Any]
) -> tuple[str, tuple[str, ...]]:
    from jinja2 import TemplateError

    known = (TemplateError, ValueError, TypeError, ArithmeticError, LookupError, RecursionError, MemoryError)
    try:
        used = tuple(str(environment.get_template(name).filename) for name in names)
        ours = str(files("beamdeploy"))
        with nullcontext() if all(file.startswith(ours) for file in used) else _no_longer_than(_SECONDS):
            return environment.get_template(names[0]).render(values), used
    except (*known, TimeoutError) as error:
        raise InputError([_template_problem(error)]) from error


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    """TimeoutError: Python code below went on for longer. Works in any thread, which a signal does not."""
    until = time.monotonic() + seconds

    def look(frame: object, event: str, value: object) -> object:
        if time.monotonic() > until:
            raise TimeoutError(f"it did not end within {seconds:g} s: a loop in it goes on and on")
        return look

    before = sys.gettrace()
    sys.settrace(look)  # type: ignore[arg-type]  # typeshed wants the function's own type
    try:
        yield
    finally:
        sys.settrace(before)


def _template_problem(error: Exception) -> Problem:
    """The problem at the template's own file and line; jinja2 puts both into the traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(".j2")]
    file = getattr(error, "filename", None) or (frames[-1].filename if frames else None)
    line = getattr(error, "lineno", None) or (frames[-1].lineno if frames else None)
    names = "recipe, host, engine, image, gpus, gpu_words, mount, env, env_file, docker_args, speculative_config"
    remedy = f"Templates see {names}, arguments, listen, rank."
    return Problem(f"template: {error}", remedy, file=file, line=line, rule="BD060")
