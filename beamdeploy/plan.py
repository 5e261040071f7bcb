"""Spec + facts → `Plan`: the steps that are needed, each with its reason. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from beamdeploy.errors import Problem
from beamdeploy.imprint import edits, rotated, served, usual_seconds
from beamdeploy.inventory import Host
from beamdeploy.label import Change, changes, read_labels
from beamdeploy.look.facts import Container, Facts
from beamdeploy.preflight import PREVIOUS, image_there, kept, name_problems, own, preflight, previous, run_word
from beamdeploy.probe import SECONDS as PROBE_TIMEOUT
from beamdeploy.probe import probe_words
from beamdeploy.probe.cuda import SECONDS as CUDA_TIMEOUT
from beamdeploy.probe.cuda import cuda_words
from beamdeploy.render import Spec
from beamdeploy.weights.staging import human

PULL_TIMEOUT = 4 * 3600
COMMAND_TIMEOUT = 120


@dataclass(frozen=True)
class Step:
    """One thing to do. `words`: the command; `container`: the id that was looked at; `timeout` in seconds.

    `kind`: pull, write secrets, probe, try GPUs, stop, set aside, remove, wait for GPUs, run, start, settle.
    """

    kind: str
    reason: str
    words: tuple[str, ...] = ()
    container: str | None = None
    timeout: int = COMMAND_TIMEOUT
    cost: str = ""


@dataclass(frozen=True)
class Plan:
    """What is to be done on one host. `outcome`: unchanged, create, replace, start, settle, destroy, blocked.

    `fallback`: the container that is started again if the new one fails. `notes`: problems that do not block.
    `edits`: what another hand changed since the server was ready, which no recipe says and no step mends.
    `costs`: path of a change → what it costs. `before`: the words that the container was made from, without labels.
    """

    host: str
    outcome: str
    steps: tuple[Step, ...] = ()
    changes: tuple[Change, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    fallback: str | None = None
    edits: tuple[Change, ...] = ()
    costs: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    current: Container | None = field(default=None, compare=False, repr=False)
    """The container that was looked at."""

    @property
    def writes(self) -> bool:
        """Whether carrying it out changes the host."""
        return any(step.kind != "settle" for step in self.steps)

    @property
    def interrupts(self) -> bool:
        """Whether a running server is stopped."""
        return any(step.kind == "stop" for step in self.steps)


def plan_apply(spec: Spec, facts: Facts) -> Plan:
    """What brings the host to the spec."""
    found = preflight(spec, facts)
    blocking = tuple(problem for problem in found if problem.level == "error")
    notes = tuple(problem for problem in found if problem.level != "error")
    host = spec.host.name
    current = own(spec.recipe.name, facts.containers)
    differing = (*_changes(spec, current), *rotated(current, facts))
    if blocking:
        return Plan(host, "blocked", changes=differing, problems=blocking, notes=notes)
    aside = previous(spec.recipe.name, facts.containers)
    outcome, steps, fallback = _steps(_runnable(spec, facts), facts, current, aside)
    costs = {each.path: _cost(each.path, spec, facts) for each in differing}
    return Plan(
        host,
        outcome,
        steps,
        differing,
        notes=notes,
        fallback=fallback,
        edits=edits(current, facts),
        costs=costs,
        before=_words_of(current) if steps else (),
        current=current,
    )


def plan_destroy(host: Host, name: str, facts: Facts, stop_timeout: int) -> Plan:
    """What takes the deployment `name` off the host."""
    blocking = facts.blockers or tuple(name_problems(name, facts.containers))
    if blocking:
        return Plan(host.name, "blocked", problems=tuple(problem.at(host.name) for problem in blocking))
    ours = [each for each in (find(name, facts.containers) for find in (own, previous, kept)) if each is not None]
    steps = tuple(step for container in ours for step in _removal(host, container, stop_timeout))
    return Plan(host.name, "destroy" if steps else "unchanged", steps)


def is_ready(spec: Spec, facts: Facts) -> bool:
    """Whether the look was told that the engine is ready and serves the recipe's model; a follower is not asked."""
    if not spec.answers:
        return True
    ready, models = facts.answers.get(spec.engine.ready), facts.answers.get("/v1/models")
    return (
        ready is not None
        and ready.status == 200
        and models is not None
        and models.status == 200
        and f'"{spec.recipe.model.served_name}"' in models.body
    )


def _runnable(spec: Spec, facts: Facts) -> Spec:
    """The spec in words that run the image which is there; what identifies it stays as it is."""
    image = image_there(spec, facts)
    if image is None or run_word(spec.image, image) == spec.image.word:
        return spec
    word = spec.image.word
    return replace(spec, words=tuple(run_word(spec.image, image) if each == word else each for each in spec.words))


def _steps(
    spec: Spec, facts: Facts, current: Container | None, aside: Container | None
) -> tuple[str, tuple[Step, ...], str | None]:
    """Outcome, steps and the id of the fallback."""
    tidy = _tidy(spec, aside)
    if current is None:
        reason = f"there is no container named {spec.recipe.name}"
        return (
            "create",
            (*_first(spec, facts, None), _run(spec, reason), settle_step(spec), *tidy),
            aside.id if aside else None,
        )
    if not same(spec, current) or rotated(current, facts) or current.state in ("created", "dead", "removing"):
        return _replacement(spec, facts, current, aside)
    if current.running and is_ready(spec, facts):
        return ("replace", tidy, None) if tidy else ("unchanged", (), None)
    if current.state in ("running", "restarting"):
        return (
            "settle",
            (settle_step(spec, current, "it runs and is not ready yet"), *tidy),
            aside.id if aside else None,
        )
    return "start", (_start(spec, current), settle_step(spec, current), *tidy), aside.id if aside else None


def same(spec: Spec, container: Container) -> bool:
    """Whether the container was made from the same words."""
    deployed = read_labels(container.labels)
    return deployed is not None and deployed.digest == spec.digest


def _replacement(
    spec: Spec, facts: Facts, current: Container, aside: Container | None
) -> tuple[str, tuple[Step, ...], str | None]:
    """The old one is stopped last of all and kept aside until the new one has answered."""
    docker = spec.host.docker_words
    first = _first(spec, facts, current)
    run = _run(spec, "the settings differ")
    if aside is not None or not (current.running or served(current, facts)):
        # it has never served, or is the half-started heir of the one kept aside: that one stays the fallback
        removal = _removal(spec.host, current, spec.stop_timeout)
        steps = (*first, *removal, wait_step(spec), run, settle_step(spec), *_tidy(spec, aside))
        return "replace", steps, aside.id if aside else None
    name = spec.recipe.name + PREVIOUS
    keep = Step("set aside", "kept until the new one answers", (*docker, "rename", current.id, name), current.id)
    discard = Step("remove", "the new one answers", (*docker, "rm", current.id), current.id)
    return (
        "replace",
        (*first, *_stopped(spec, facts, current), keep, wait_step(spec), run, settle_step(spec), discard),
        current.id,
    )


def _stopped(spec: Spec, facts: Facts, current: Container) -> tuple[Step, ...]:
    """The stop of what still runs. One that has ended served once: it is kept aside all the same."""
    if not current.running:
        return ()
    grace, cost = deployed_stop_timeout(spec, current), "no server until the new one is ready"
    stop = stop_step(spec.host, current, grace, "the GPUs hold one server at a time", cost)
    return (replace(stop, cost=f"{stop.cost}{_minutes(facts)}"),)


def _minutes(facts: Facts) -> str:
    """How long that is by this host's own history; nothing where it has none."""
    seconds = usual_seconds(facts, "run", "settle")
    if seconds is None:
        return ""
    return (
        f", about {seconds:.0f} s by this host's history"
        if seconds < 90
        else (f", about {seconds / 60:.0f} min by this host's history")
    )


def _cost(path: str, spec: Spec, facts: Facts) -> str:
    """What a change of this setting costs: each is a word of the command, so each takes a restart; some take more."""
    restart = f"restart{_minutes(facts)}"
    if path == "image" and image_there(spec, facts) is None:
        return f"a download, then a {restart}"
    folder = {"model.weights.path": 0, "speculative.drafter.path": 1}.get(path)
    if folder is None or folder >= len(spec.recipe.folders):
        return restart
    locked = spec.weights.get(spec.recipe.folders[folder])
    size = f", {human(sum(file.size for file in locked.files.values()))}" if locked else ""
    return f"weights staged{size}, and a {restart}"


def deployed_stop_timeout(spec: Spec, container: Container) -> int:
    """The grace that the running deployment was made with."""
    deployed = read_labels(container.labels)
    given = deployed.recipe.get("container", {}).get("stop_timeout") if deployed else None
    return given if isinstance(given, int) else spec.stop_timeout


def _changes(spec: Spec, current: Container | None) -> tuple[Change, ...]:
    deployed = read_labels(current.labels) if current else None
    if deployed is None or deployed.digest == spec.digest:
        return ()
    found = changes(deployed.settings, spec.settings)
    return found or (Change("template", " ".join(deployed.words), " ".join(spec.words)),)


def _words_of(current: Container | None) -> tuple[str, ...]:
    deployed = read_labels(current.labels) if current else None
    return deployed.words if deployed else ()


def _first(spec: Spec, facts: Facts, current: Container | None) -> tuple[Step, ...]:
    """What can fail without harm to what serves."""
    held = facts.secrets
    reason = "" if held is None or held.state == "same" else f"the env file on the host is {held.state}"
    secrets = (Step("write secrets", reason),) if reason else ()
    return (*_pull(spec, facts), *secrets, *_probe(spec, current), _try_gpus(spec, current))


def _pull(spec: Spec, facts: Facts) -> tuple[Step, ...]:
    if image_there(spec, facts) is not None:
        return ()
    words = (*spec.host.docker_words, "pull", spec.image.word)
    return (Step("pull", f"the image {spec.image.word} is not on the host", words, None, PULL_TIMEOUT, "a download"),)


def _probe(spec: Spec, current: Container | None) -> tuple[Step, ...]:
    """In seconds, and before a load as before a stop: what the image refuses would else show after twenty minutes."""
    words = probe_words(spec)
    deployed = read_labels(current.labels) if current else None
    same = deployed is not None and deployed.settings.get("image") == spec.settings.get("image")
    which = "the same" if same else "the new" if deployed else "the"
    reason = f"whether {which} image knows these parsers and takes these flags"
    return (Step("probe", reason, words, timeout=PROBE_TIMEOUT, cost="seconds, without GPUs"),) if words else ()


def _try_gpus(spec: Spec, current: Container | None) -> Step:
    """Where ours runs the GPUs are not used, only asked for: that takes no memory and disturbs nobody."""
    runs = current is not None and current.running
    words = cuda_words(spec, contexts=not runs)
    cost = "seconds, beside the old server and without GPU memory" if runs else "seconds"
    return Step("try GPUs", "whether CUDA starts in it on these GPUs", words, timeout=CUDA_TIMEOUT, cost=cost)


def _run(spec: Spec, reason: str) -> Step:
    return Step("run", reason, (*spec.host.docker_words, *spec.words[1:]), cost="loading the model")


def _start(spec: Spec, current: Container) -> Step:
    reason = f"the container is {current.state} (exit code {current.exit_code})"
    verb = "unpause" if current.state == "paused" else "start"
    return Step("start", reason, (*spec.host.docker_words, verb, current.id), current.id, cost="loading the model")


def settle_step(spec: Spec, container: Container | None = None, reason: str = "until it answers a request") -> Step:
    """Until the server answers, or of a follower its head does."""
    return Step("settle", reason, container=container.id if container else None, timeout=spec.recipe.ready.timeout)


def wait_step(spec: Spec) -> Step:
    """Until nothing holds memory of the GPUs."""
    return Step("wait for GPUs", "the old server's memory must be free first")


def _tidy(spec: Spec, aside: Container | None) -> tuple[Step, ...]:
    if aside is None:
        return ()
    words = (*spec.host.docker_words, "rm", "--force", aside.id)
    return (Step("remove", "left over from an earlier apply", words, aside.id),)


def stop_step(host: Host, container: Container, grace: int, reason: str, cost: str = "") -> Step:
    """The stop of a container, with its grace."""
    words = (*host.docker_words, "stop", "-t", str(grace), container.id)
    return Step("stop", reason, words, container.id, grace + 60, cost)


def _removal(host: Host, container: Container, grace: int) -> Iterator[Step]:
    if container.running:
        yield stop_step(host, container, grace, f"{container.name} runs")
    yield Step(
        "remove", f"{container.name} is no longer wanted", (*host.docker_words, "rm", container.id), container.id
    )
