"""What beamdeploy runs on the hosts, as they are now."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from beamdeploy import errors, secrets
from beamdeploy.apikey import key
from beamdeploy.endpoint import Answer, get
from beamdeploy.engines import facts_of, names
from beamdeploy.errors import BeamdeployError, HostError, Problem
from beamdeploy.health import completion, gpus_inside
from beamdeploy.imprint import edits, rotated
from beamdeploy.inventory import Host
from beamdeploy.kept import Kept
from beamdeploy.label import Deployed, read_labels
from beamdeploy.look import Question, look
from beamdeploy.look.facts import Container, Facts
from beamdeploy.outcome import HostReport, Report
from beamdeploy.preflight import KEPT, PREVIOUS, own
from beamdeploy.ranks import rank_of
from beamdeploy.recap import shared
from beamdeploy.remote import Looker, Session
from beamdeploy.render import Spec
from beamdeploy.run import to_look, told


@dataclass(frozen=True)
class Deployment:
    """One of our containers. `drifted`: None without a recipe.

    `ready`: "ready", "loading", "wrong model" or "down"; "key refused": it answers, and not with the key that is here;
    "label unreadable": it runs, and what its label says of it is lost; "follows": a rank that runs, of which only its
    head is asked; with a deep look also "GPUs lost" or "no completion". `rank`: "rank 1 of 2", of several nodes.
    `gpus`, `seconds`: of a deep look, what the container sees and how long a small completion took.
    """

    name: str
    container: str
    state: str
    since: str
    digest: str
    image: str
    endpoint: str
    model: str
    ready: str
    drifted: bool | None
    restarts: int = 0
    gpus: int | None = None
    seconds: float | None = None
    rank: str = ""


@dataclass(frozen=True)
class Looked:
    """A host as it is. `notes`: what its session had to tell, and what a deep look found."""

    deployments: tuple[Deployment, ...]
    facts: Facts
    notes: tuple[Problem, ...]


def status(kept: Kept, name: str | None, specs: Mapping[str, Spec], *, deep: bool = False) -> Report:
    """All deployments, or that of one name. `specs`: host → what the recipe would be there, for drift.

    `deep`: each running container is asked for its GPUs, and each ready server for a small completion.
    """

    def work(session: Session) -> Looked:
        shallow = looked(to_look(session), name, specs.get(session.host.name), need_gpus=deep)
        return _deeply(session, shallow) if deep else shallow

    results = kept.each(work)
    reports = tuple(_report(host, results[host], name) for host in kept.hosts)
    return shared(Report("Status", errors.worst(report.exit for report in reports), reports))


def looked(looker: Looker, name: str | None, spec: Spec | None, *, need_gpus: bool = False) -> Looked:
    """A host and its deployments, by a look that changes nothing."""
    asked = Question(name=name, docker=looker.host.docker_words, need_gpus=need_gpus)
    if spec is not None:
        folders, host = spec.recipe.folders, spec.host
        asked = replace(asked, model_dir=host.model_dir, folders=folders, state=host.state_folder)
    facts = look(looker, asked)
    found = deployments(looker, facts, name, spec.digest if spec else None)
    if spec is None:
        return Looked(found, facts, told(looker))
    facts, untold = _with_secrets(looker, spec, facts) if found else (facts, ())
    current = own(spec.recipe.name, facts.containers)
    if rotated(current, facts):
        found = tuple(replace(each, drifted=True) for each in found)
    return Looked(found, facts, (*told(looker), *_by_hand(looker.host.name, spec.recipe.name, facts), *untold))


def _with_secrets(looker: Looker, spec: Spec, facts: Facts) -> tuple[Facts, tuple[Problem, ...]]:
    """With whether the secrets are those that the host has; why that cannot be told, where one is missing."""
    if not spec.recipe.container.secrets:
        return facts, ()
    try:
        text = secrets.given(spec.recipe, os.environ)
        return replace(facts, secrets=secrets.compare(looker, spec.recipe, text)), ()
    except BeamdeployError as error:
        if error.exit == errors.UNREACHABLE:
            raise
        what = f"whether the secrets of {spec.recipe.name} have changed cannot be told: {error.problems[0].what}"
        return facts, (Problem(what, error.problems[0].remedy, looker.host.name, level="info"),)


def _by_hand(host: str, name: str, facts: Facts) -> tuple[Problem, ...]:
    remedy = "beamdeploy drift shows old and new; destroy and apply bring it there."
    return tuple(
        Problem(
            f"{edit.path} of {name} was changed by another hand: {edit.old} → {edit.new}", remedy, host, level="warning"
        )
        for edit in edits(own(name, facts.containers), facts)
    )


def _deeply(session: Session, shallow: Looked) -> Looked:
    examined = [_deep(session, session.host, shallow.facts, each) for each in shallow.deployments]
    problems = (problem for _, own in examined for problem in own)
    return replace(shallow, deployments=tuple(each for each, _ in examined), notes=(*shallow.notes, *problems))


def deployments(looker: Looker, facts: Facts, name: str | None, digest: str | None) -> tuple[Deployment, ...]:
    """The deployments among the containers of a look; each running one is asked whether it is ready."""
    ours = [(each, read_labels(each.labels)) for each in facts.containers]
    return tuple(
        _deployment(looker, container, deployed, digest)
        for container, deployed in ours
        if deployed is not None and name in (None, deployed.name) and not container.name.endswith((PREVIOUS, KEPT))
    )


def recipe_of(facts: Facts, deployment: Deployment) -> Mapping[str, Any]:
    """The recipe that a deployment was made from, as its labels have it; empty where they cannot be read."""
    labels = next(each.labels for each in facts.containers if each.id == deployment.container)
    deployed = read_labels(labels)
    return deployed.recipe if deployed else {}


def _deep(session: Session, host: Host, facts: Facts, found: Deployment) -> tuple[Deployment, tuple[Problem, ...]]:
    """A deployment with what a deep look adds, and what is wrong with it."""
    if found.state != "running":
        return found, ()
    where = f"{host.name}: {found.name}"
    inside = gpus_inside(session, host.docker_words, found.container, facts.gpus)
    found = replace(found, gpus=inside.gpus)
    if inside.problem:
        return replace(found, ready="GPUs lost"), (inside.problem.at(where),)
    if found.ready != "ready":
        return found, ()
    answered = completion(session, recipe_of(facts, found))
    if answered.problem:
        return replace(found, ready="no completion"), (answered.problem.at(where),)
    return replace(found, seconds=answered.seconds), ()


def _deployment(looker: Looker, container: Container, deployed: Deployed, digest: str | None) -> Deployment:
    recipe = deployed.recipe
    publish = str(recipe.get("container", {}).get("publish", ""))
    model = str(recipe.get("model", {}).get("served_name", ""))
    rank = rank_of(deployed.settings)
    follower = rank is not None and rank.number > 0
    return Deployment(
        name=deployed.name,
        container=container.id,
        state=container.state,
        since=container.started_at,
        digest=deployed.digest,
        image=container.image,
        endpoint=f"http://{publish}/v1" if publish and not follower else "",
        model=model,
        ready=_follows(container) if follower else _readiness(looker, container, recipe, publish, model),
        rank=rank.said if rank else "",
        drifted=None if digest is None else digest != deployed.digest,
        restarts=container.restart_count,
    )


def _follows(container: Container) -> str:
    return "follows" if container.state == "running" else "down"


_REFUSED = (401, 403)
DOUBTS = {
    "key refused": (
        "it answers, and refuses the key that lies on this host, or there is none that can be sent",
        "Give the key that it was started with under container.secrets, and apply.",
    ),
    "label unreadable": (
        "it runs, and its label beamdeploy.spec cannot be read: nothing more can be told of it",
        "Apply its recipe: the container is made anew, with a label.",
    ),
}
"""What is neither ready nor known to be loading → (why, remedy)."""


def _readiness(looker: Looker, container: Container, recipe: Mapping[str, Any], publish: str, model: str) -> str:
    engine = recipe.get("engine", {})
    if container.state == "running" and not recipe:
        return "label unreadable"
    if container.state != "running" or not publish or engine.get("name") not in names():
        return "down"
    address, _, port = publish.rpartition(":")
    path, needed = facts_of(engine).ready, _key(looker, recipe)
    answered = get(looker, address, int(port), path, key=needed if path.startswith("/v1/") else "")
    if answered.status == 200 and path != "/v1/models":
        answered = get(looker, address, int(port), "/v1/models", key=needed)
    elif answered.status not in (200, *_REFUSED):
        return "loading"
    if answered.status in _REFUSED:
        return "key refused"
    return "ready" if _lists(answered, model) else "wrong model"


def _key(looker: Looker, recipe: Mapping[str, Any]) -> str:
    """The key of the server; "" also where it cannot be had: the server then says whether it needs one."""
    try:
        return key(looker, recipe)
    except HostError as error:
        if error.exit == errors.UNREACHABLE:
            raise
        return ""


def _lists(answer: Answer, model: str) -> bool:
    try:
        return answer.status == 200 and any(entry["id"] == model for entry in json.loads(answer.body)["data"])
    except (ValueError, KeyError, TypeError):
        return False


def _report(host: str, result: Looked | HostError, name: str | None) -> HostReport:
    if isinstance(result, HostError):
        outcome = "unreachable" if result.exit == errors.UNREACHABLE else "failed"
        return HostReport(host, outcome, result.exit, result.problems[0].what.splitlines()[0], problems=result.problems)
    found = result.deployments
    if result.facts.docker is None:
        problems = (*result.notes, *(problem.at(host) for problem in result.facts.blockers))
        return HostReport(host, "unknown", errors.FAILED, "docker could not be asked", problems=problems)
    details = {"deployments": [asdict(each) for each in found]}
    aside = tuple(_aside(host, result.facts, name, found))
    if not found and aside:
        what = "; ".join(each.what for each in aside)
        return HostReport(host, "not ready", errors.NOT_READY, what, details, (*result.notes, *aside))
    if not found:
        what = f"no deployment named {name}" if name else "nothing runs here"
        return HostReport(host, "nothing", errors.NOT_READY if name else errors.DONE, what, details, result.notes)
    ready = all(each.ready in ("ready", "follows") for each in found)
    follows = all(each.ready == "follows" for each in found)
    outcome = "follows" if follows else "ready" if ready else "not ready"
    summary = "; ".join(_said(each) for each in found)
    exit_code = errors.DONE if ready else errors.NOT_READY
    return HostReport(
        host, outcome, exit_code, summary, details, (*result.notes, *_doubts(host, found), *_drift(host, found))
    )


def _aside(host: str, facts: Facts, name: str | None, found: tuple[Deployment, ...]) -> Iterator[Problem]:
    """What an apply that was cut short between two servers has left: the old one, stopped, under another name."""
    for container in facts.containers:
        deployed = read_labels(container.labels)
        if deployed is None or name not in (None, deployed.name) or container.name != deployed.name + PREVIOUS:
            continue
        if not any(each.name == deployed.name for each in found):
            what = f"no {deployed.name} runs: the server before stands aside as {container.name} ({container.state})"
            remedy = (
                "An apply was cut short. `beamdeploy apply` with its recipe completes it; to bring the old one back by "
                f"hand: docker rename {container.name} {deployed.name} && docker start {deployed.name}"
            )
            yield Problem(what, remedy, host)


def _said(each: Deployment) -> str:
    drift = {None: "", True: ", drifted", False: ", as the recipe"}[each.drifted]
    deep = f", sees {each.gpus} GPUs" if each.gpus else ""
    deep += f", completes in {each.seconds:g} s" if each.seconds is not None else ""
    since = f"{each.name} {each.digest[7:19]} {each.state} since {each.since[:19]}"
    rank = f", {each.rank}" if each.rank else ""
    where = f", {each.endpoint}" if each.endpoint else ""
    return f"{since}{rank}, {each.ready}{drift}{deep}{where}"


def _doubts(host: str, found: tuple[Deployment, ...]) -> Iterator[Problem]:
    for each in found:
        if each.ready in DOUBTS:
            yield Problem(f"{each.name}: {DOUBTS[each.ready][0]}", DOUBTS[each.ready][1], host)


def _drift(host: str, found: tuple[Deployment, ...]) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            f"{each.name} is not what the recipe says",
            "beamdeploy plan shows which settings differ; beamdeploy apply brings it there.",
            host,
            level="warning",
        )
        for each in found
        if each.drifted
    )
