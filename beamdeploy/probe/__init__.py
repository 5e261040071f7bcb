"""Whether an image knows the parsers and takes the flags: asked in it, without GPUs, before anything is stopped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from beamdeploy.engines import place
from beamdeploy.engines.traits import traits
from beamdeploy.errors import Problem
from beamdeploy.render import Spec

if TYPE_CHECKING:
    from beamdeploy.remote import Session

SECONDS = 180
# Of the words of docker run, what only a server needs: how many words each takes besides itself.
_LEFT_OUT = {
    "--detach": 0,
    "-d": 0,
    "--name": 1,
    "--gpus": 1,
    "--device": 1,
    "-p": 1,
    "--publish": 1,
    "--label": 1,
    "--restart": 1,
    "--network": 1,
}
_PARSERS = {"tool_call": "tool-call", "reasoning": "reasoning"}


@dataclass(frozen=True)
class Probed:
    """What came of it. `problems` are errors where the image refuses, and a warning where it could not be asked."""

    problems: tuple[Problem, ...] = ()

    @property
    def refused(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.level == "error")


def probe_words(spec: Spec) -> tuple[str, ...]:
    """`docker run` of the probe: the server's own mounts, user and environment; none: the engine has no probe."""
    if spec.engine.probe is None or "--entrypoint" not in spec.words:
        return ()
    image, options = image_and_options(spec, gpus=False)
    code = base64.b64encode(_program(spec).encode()).decode()
    start = f"exec(__import__('base64').b64decode('{code}'))"
    alone = ("--rm", "--network", "none", "--entrypoint", spec.engine.python)
    return (*spec.host.docker_words, "run", *options, *alone, image, "-c", start, *engine_words(spec))


def image_and_options(spec: Spec, *, gpus: bool) -> tuple[str, tuple[str, ...]]:
    """The image, and the server's own options as far as a short container beside it may have them too."""
    words = spec.words
    at = words.index("--entrypoint") if "--entrypoint" in words else words.index(spec.image.word)
    left_out = {name: more for name, more in _LEFT_OUT.items() if not (gpus and name in ("--gpus", "--device"))}
    return words[at + 2] if words[at] == "--entrypoint" else words[at], tuple(_options(words[2:at], left_out))


def engine_words(spec: Spec) -> tuple[str, ...]:
    """The engine's words after `serve MODEL`."""
    return spec.words[spec.words.index("--entrypoint") + 5 :]


def ask(session: Session, spec: Spec, words: Sequence[str]) -> Probed:
    """Run the probe on the host, or take what it said of the same image and words before."""
    key = hashlib.sha256("".join(word + "\0" for word in words).encode()).hexdigest()[:16]
    image = words[words.index("--entrypoint") + 2]
    args = (spec.host.state_folder, key, image, *spec.host.docker_words, "--", *words)
    result = session.script(script(), args, timeout=SECONDS)
    told = last_object(result.out)
    if not result.ok or told is None:
        said = " ".join((result.err.strip() or result.out.strip() or "it said nothing").split())[-300:]
        return Probed((_not_asked(f"exit {result.exit}: {said}"),))
    return Probed(tuple(problems(spec, told)))


def problems(spec: Spec, told: Mapping[str, Any]) -> Iterator[Problem]:
    """What the image says, as problems of the recipe. Pure."""
    lacking = tuple(_parsers(spec, told))
    yield from lacking
    for program in ("engine", "gateway"):
        message = told.get(program)
        if isinstance(message, str) and not (lacking and "-parser" in message):
            yield _refused(spec, program, message)
    for one in told.get("unasked", ()):
        yield _not_asked(str(one))


def script() -> str:
    """The text that runs on the host: POSIX sh."""
    return resources.files(__name__).joinpath("probe.sh").read_text("utf-8")


def _program(spec: Spec) -> str:
    return (place(spec.engine.name) / str(spec.engine.probe)).read_text(encoding="utf-8")


def _options(words: Sequence[str], left_out: Mapping[str, int]) -> Iterator[str]:
    left = list(words)
    while left:
        word = left.pop(0)
        name = word.partition("=")[0]
        if name not in left_out:
            yield word
        elif "=" not in word:
            del left[: left_out[name]]


def _parsers(spec: Spec, told: Mapping[str, Any]) -> Iterator[Problem]:
    for kind, name in _PARSERS.items():
        wanted, known = getattr(spec.recipe.parsers, kind), told.get(kind)
        if wanted is not None and isinstance(known, list) and wanted not in known:
            what = f"parsers.{kind}: the image {spec.image.word} knows no {name} parser {wanted!r}"
            yield Problem(what, f"It knows: {', '.join(map(str, known))}.", where=f"parsers.{kind}", rule="BD266")


def _refused(spec: Spec, program: str, message: str) -> Problem:
    flag = next(iter(re.findall(r"--[a-z][a-z0-9-]*", message)), "")
    field = _field(spec, flag)
    what = f"{field + ': ' if field else ''}the {program} in the image {spec.image.word} refuses its words: {message}"
    return Problem(
        what, "Correct it in the recipe, or use the image that it was written for.", where=field, rule="BD266"
    )


def _field(spec: Spec, flag: str) -> str:
    """The recipe's field that gives this flag; "": none that is known."""
    known = traits(spec.recipe.engine.name)
    setting = known.setting_of(flag) if known and flag else None
    if setting is not None:
        return setting
    return f"engine.args.{flag.removeprefix('--')}" if flag.removeprefix("--") in spec.recipe.engine.args else ""


def _not_asked(why: str) -> Problem:
    what = f"the image could not be asked before the change whether it knows the recipe's flags: {why}"
    return Problem(what, "A flag that it refuses would show only when it starts.", rule="BD268", level="warning")


def last_object(text: str) -> Mapping[str, Any] | None:
    """The JSON object on the last line of what a program printed; None: there is none."""
    try:
        found = json.loads(text.strip().rpartition("\n")[2])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
