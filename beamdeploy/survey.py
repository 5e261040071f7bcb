"""Look at all hosts of a run at once and plan each."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from beamdeploy import secrets
from beamdeploy.apikey import key
from beamdeploy.endpoint import get
from beamdeploy.errors import HostError
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.look import Question, look
from beamdeploy.remote import Looker, Session
from beamdeploy.render import Spec
from beamdeploy.run import Run, to_look, told

if TYPE_CHECKING:
    from beamdeploy.look.facts import Facts
    from beamdeploy.plan import Plan


@dataclass(frozen=True)
class Options:
    """How a run is made, beside its specs. `lock_wait` in seconds; `serial`: hosts a wave ("2", "25%"), None: all.

    `canary`: the first host is a wave of its own. `max_fail`: so many hosts may fail before the next wave is left out.
    `keep_failed`: see `act.Manner`. `diff`: a plan also shows the words of the command, old and new.
    """

    accept_new: bool = False
    skip_blocked: bool = False
    lock_wait: float = 0
    serial: str | None = None
    canary: bool = False
    max_fail: int = 0
    forks: Forks = AS_USUAL
    keep_failed: bool = False
    diff: bool = False
    action: str = "apply"


@dataclass(frozen=True)
class Seen:
    """One host, looked at and planned; with nothing to carry the plan out."""

    spec: Spec
    plan: Plan


@dataclass(frozen=True)
class Planned:
    """The same with the open session, for what carries the plan out."""

    spec: Spec
    plan: Plan
    session: Session
    secrets: str = field(default="", repr=False)


T = TypeVar("T", Seen, Planned)


def look_at_all(specs: tuple[Spec, ...], options: Options, run: Run) -> dict[str, Planned | HostError]:
    """Host → what was found and planned there, or why it could not be asked."""
    by_name = {spec.host.name: spec for spec in specs}
    return each(by_name, lambda name: looked(by_name[name], options, run), at_once=options.forks.hosts)


def only_look_at_all(specs: tuple[Spec, ...], options: Options, run: Run) -> dict[str, Seen | HostError]:
    """The same through sessions on which nothing can be changed."""
    by_name = {spec.host.name: spec for spec in specs}

    def work(name: str) -> Seen:
        looker = run.opened_to_look(by_name[name].host, accept_new=options.accept_new)
        return Seen(by_name[name], _planned(looker, by_name[name], _secrets(by_name[name]), run))

    return each(by_name, work, at_once=options.forks.hosts)


def together(found: Mapping[str, T | HostError], specs: Iterable[Spec]) -> dict[str, T | HostError]:
    """The same with the plans of hosts that serve together joined."""
    specs = tuple(specs)
    if all(spec.rank is None for spec in specs):
        return dict(found)
    from beamdeploy.joined import joined

    by_name, left = {spec.host.name: spec for spec in specs}, dict(found)
    for hosts in deployments(by_name.values()):
        there = {
            host: each for host in hosts if not isinstance(each := found.get(host), HostError) and each is not None
        }
        absent = {host: _absent(found.get(host)) for host in hosts if host not in there}
        plans = joined(by_name, {host: each.plan for host, each in there.items()}, absent)
        left |= {host: replace(each, plan=plans[host]) for host, each in there.items()}
    return left


def deployments(specs: Iterable[Spec]) -> tuple[tuple[str, ...], ...]:
    """The hosts of each deployment, by rank; a host that serves alone is one of its own."""
    return tuple(dict.fromkeys(spec.rank.hosts if spec.rank else (spec.host.name,) for spec in specs))


def _absent(error: object) -> str:
    if isinstance(error, HostError):
        return "cannot be asked"
    return "is not among the chosen hosts"


def looked(spec: Spec, options: Options, run: Run) -> Planned:
    """One host, connected, looked at and planned. HostError: it cannot be."""
    session = run.opened(spec.host, accept_new=options.accept_new)
    text = _secrets(spec)
    return Planned(spec, _planned(to_look(session), spec, text, run), session, text)


def _planned(looker: Looker, spec: Spec, text: str, run: Run) -> Plan:
    run.say(spec.host.name, "look", "")
    # what judges the facts is imported while the host answers
    imports = threading.Thread(target=import_module, args=("beamdeploy.plan",), name="import plan")
    imports.start()
    facts = facts_of(looker, spec, text)
    imports.join()
    from beamdeploy.plan import plan_apply

    made = plan_apply(spec, facts)
    return replace(made, notes=(*told(looker), *made.notes))


def _secrets(spec: Spec) -> str:
    return secrets.given(spec.recipe, os.environ)


def facts_of(looker: Looker, spec: Spec, text: str) -> Facts:
    """One look. For a recipe with secrets one question more, since these travel by stdin alone."""
    facts = look(looker, question(spec))
    if not spec.recipe.container.secrets:
        return facts
    return replace(_with_key(looker, spec, facts), secrets=secrets.compare(looker, spec.recipe, text))


def _with_key(looker: Looker, spec: Spec, facts: Facts) -> Facts:
    """With the model list of a server that tells it only to who has its key."""
    asked = facts.answers.get("/v1/models")
    needed = key(looker, spec.recipe.source) if asked is not None and asked.status in (401, 403) else ""
    if not needed:
        return facts
    published = spec.recipe.container
    answer = get(looker, published.address, published.port, "/v1/models", key=needed)
    return replace(facts, answers={**facts.answers, "/v1/models": answer})


def question(spec: Spec) -> Question:
    """What must be known of a host before its plan."""
    recipe = spec.recipe
    address, port = recipe.container.address, recipe.container.port
    return Question(
        name=recipe.name,
        images=(spec.image.word, *spec.image.ids),
        model_dir=spec.host.model_dir,
        folders=recipe.folders,
        ports=(port, *spec.rank_ports),
        docker=spec.host.docker_words,
        need_gpus=True,
        state=spec.host.state_folder,
        http=((address, port, spec.engine.ready), (address, port, "/v1/models")) if spec.answers else (),
        addresses=spec.rank is not None,
    )
