"""One look at one host: a read-only script in one round trip, and HTTP questions beside it, become `Facts`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING

from beamdeploy.look.answers import get

if TYPE_CHECKING:
    from beamdeploy.look.facts import Facts
    from beamdeploy.remote import Looker

SECONDS = 120


@dataclass(frozen=True)
class Question:
    """What to look at.

    `name`: a container (it and its ".previous" are looked up beside all that carry our label); None: all of ours.
    `images`: "repo@sha256:…", "repo:tag" or "sha256:<id>". `folders` lie below `model_dir`. `ports`: TCP ports of
    which listeners and publishing containers are told. `docker`: the words that start docker; none: it is not asked.
    `state`: our state folder on the host, for what the last runs of `name` noted there.
    `http`: (address, port, path) to GET at the same time. `addresses`: which interface has which address.
    """

    name: str | None = None
    images: tuple[str, ...] = ()
    model_dir: str | None = None
    folders: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    docker: tuple[str, ...] = ("docker",)
    need_gpus: bool = True
    http: tuple[tuple[str, int, str], ...] = ()
    state: str | None = None
    addresses: bool = False


def look(session: Looker, question: Question) -> Facts:
    """Facts of the session's host. HostError: the connection is lost, or the answer is not whole."""
    nonce = secrets.token_hex(8)
    # each in a thread of its own: they take two round trips, as the script does
    with ThreadPoolExecutor(max_workers=max(1, len(question.http))) as beside:
        asked = {where[-1]: beside.submit(get, session, *where) for where in question.http}
        begin = time.time()
        result = session.script(script(), tuple(words(question, nonce)), timeout=SECONDS)
        end = time.time()
        # imported only now: `survey` fetches what judges the facts while the host answers
        from beamdeploy.look.parse import parse
        from beamdeploy.look.system import skew

        facts = parse(result.out, nonce, question.docker, question.folders, question.ports, err=result.err)
        clock = replace(facts.system, skew=skew(facts.system.clock, begin, end))
        return replace(facts, system=clock, answers={path: answer.result() for path, answer in asked.items()})


def script() -> str:
    """The text of the look: POSIX sh, read-only."""
    return with_smi(resources.files(__name__).joinpath("facts.sh").read_text("utf-8"))


def with_smi(text: str) -> str:
    """A script that may call `smi WORDS`: nvidia-smi, found also where the PATH of a session lacks it (else 127)."""
    return resources.files(__name__).joinpath("smi.sh").read_text("utf-8") + text


def words(question: Question, nonce: str) -> Iterator[str]:
    """The script's arguments."""
    yield f"nonce={nonce}"
    if question.name is not None:
        yield f"name={question.name}"
    if question.state is not None and question.name is not None:
        yield f"state={question.state}"
    if question.model_dir is not None:
        yield f"model_dir={question.model_dir}"
    if question.need_gpus:
        yield "gpus=1"
    if question.addresses:
        yield "addresses=1"
    yield from (f"docker={word}" for word in question.docker)
    yield from (f"image={image}" for image in question.images)
    yield from (f"folder={folder}" for folder in question.folders)
    yield from (f"port={port}" for port in question.ports)
