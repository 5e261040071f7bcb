"""Why a deployment does not serve: from a pasted log, or from a look at hosts, their containers and logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from beamdeploy import errors
from beamdeploy.diagnose import explain, guess_engine
from beamdeploy.errors import HostError, Problem
from beamdeploy.fleet import AS_USUAL, Forks, each
from beamdeploy.health import completion, gpus_inside
from beamdeploy.inventory import Host
from beamdeploy.look import Question, look
from beamdeploy.look.facts import Facts
from beamdeploy.outcome import HostReport, Report
from beamdeploy.preflight import preflight
from beamdeploy.ready import ended_problem
from beamdeploy.remote import Session, open_session
from beamdeploy.remote.gates import Gates
from beamdeploy.render import Spec
from beamdeploy.startup import advance, begin, log_lines
from beamdeploy.status import DOUBTS, Deployment, deployments, recipe_of
from beamdeploy.survey import question
from beamdeploy.watch import log_text, running


@dataclass(frozen=True)
class Finding:
    """One deployment. `phase`: how far its start is, "" once it is ready or has ended; `exit`: what it alone gives."""

    name: str
    container: str
    state: str
    ready: str
    exit: int
    phase: str = ""
    gpus: int | None = None
    seconds: float | None = None
    problems: tuple[Problem, ...] = field(default=())


def doctor_log(text: str, engine: str | None, file: str | None) -> Report:
    """The first cause in a pasted log. `file`: where it stands, for the place of the line; None: nowhere."""
    known = engine or guess_engine(tuple(log_lines(text)))
    found = explain(text, known)
    details = {"engine": known, "diagnosis": asdict(found) if found else None}
    if found is None:
        note = Problem("nothing in this log tells of a failure", where=file or "log", level="info")
        return Report("Doctor", errors.DONE, problems=(note,), details=details)
    placed = replace(found.problem, file=file, line=found.line or None, rule=found.id, where="log")
    return Report("Doctor", errors.FAILED, problems=(placed,), details=details)


def doctor(
    hosts: Iterable[Host], name: str | None, specs: Mapping[str, Spec], *, accept_new: bool, forks: Forks = AS_USUAL
) -> Report:
    """Look at each host, and examine its deployments or that of one name. `specs`: of a recipe, by host."""
    by_name = {host.name: host for host in hosts}
    gates = Gates(forks.through_a_bastion)

    def work(host: str) -> HostReport:
        with open_session(by_name[host], accept_new=accept_new, gates=gates) as session:
            return _examined(session, by_name[host], name, specs.get(host))

    results = each(by_name, work, at_once=forks.hosts)
    reports = tuple(_report(host, results[host]) for host in by_name)
    return Report("Doctor", errors.worst(report.exit for report in reports), reports)


def examine(session: Session, host: Host, facts: Facts, deployment: Deployment, recipe: Mapping[str, Any]) -> Finding:
    """One deployment: why it ended, how far it is, or whether it sees its GPUs and completes a request."""
    docker = host.docker_words
    found = running(session, docker, deployment.container)
    engine = str(recipe.get("engine", {}).get("name", ""))
    finding = Finding(deployment.name, deployment.container, found.status, deployment.ready, errors.DONE)
    if found.ended or found.status in ("restarting", "created"):
        problem = ended_problem(log_text(session, docker, deployment.container, found.since), engine, found)
        what = f"it is {found.status} (exit code {found.exit_code}): {problem.what}"
        return replace(finding, exit=errors.FAILED, problems=(replace(problem, what=what),))
    inside = gpus_inside(session, docker, deployment.container, facts.gpus)
    lost = (inside.problem,) if inside.problem else ()
    finding = replace(finding, gpus=inside.gpus, exit=errors.FAILED if lost else errors.DONE, problems=lost)
    if deployment.ready in ("ready", "follows"):
        return _asked(session, recipe, finding)
    if deployment.ready in DOUBTS:
        exit = errors.worst((finding.exit, errors.NOT_READY))
        return replace(finding, exit=exit, problems=(*finding.problems, Problem(*DOUBTS[deployment.ready])))
    return _loading(log_text(session, docker, deployment.container, found.since), engine, finding)


def _asked(session: Session, recipe: Mapping[str, Any], finding: Finding) -> Finding:
    answered = completion(session, recipe)
    if answered.problem is None:
        return replace(finding, seconds=answered.seconds)
    exit = errors.worst((finding.exit, errors.NOT_READY))
    return replace(finding, exit=exit, problems=(*finding.problems, answered.problem))


def _loading(text: str, engine: str, finding: Finding) -> Finding:
    """A server that runs and is not ready: what its log tells."""
    state = advance(begin(engine, 0), text, 0)
    cause = explain(text, engine)
    if cause is not None:
        problem = cause.problem
    elif finding.ready == "wrong model":
        what = "its address answers, but lists another model"
        problem = Problem(what, "Another server may hold the port, or model.served_name differs: beamdeploy status.")
    else:
        problem = Problem(f"it is loading: {state.said}", "Wait; beamdeploy logs -f shows it.", level="info")
    exit = errors.worst((finding.exit, errors.NOT_READY))
    return replace(finding, phase=state.said, exit=exit, problems=(*finding.problems, problem))


def _examined(session: Session, host: Host, name: str | None, spec: Spec | None) -> HostReport:
    asked = question(spec) if spec else Question(name=name, docker=host.docker_words, need_gpus=True)
    facts = look(session, asked)
    in_the_way = tuple(problem.at(host.name) for problem in facts.blockers)
    if facts.docker is None:
        return HostReport(host.name, "unknown", errors.FAILED, "docker could not be asked", problems=in_the_way)
    if spec is not None:
        in_the_way = preflight(spec, facts)
    findings = tuple(
        examine(session, host, facts, each, recipe_of(facts, each)) for each in deployments(session, facts, name, None)
    )
    return _host_report(host.name, findings, in_the_way, name, named=name is not None and spec is None)


def _host_report(
    host: str, findings: tuple[Finding, ...], in_the_way: tuple[Problem, ...], name: str | None, *, named: bool
) -> HostReport:
    """`named`: a deployment was asked for by its name alone, so it should be there."""
    own = tuple(
        replace(problem, where=f"{host}: {finding.name}") for finding in findings for problem in finding.problems
    )
    blocked = any(problem.level == "error" for problem in in_the_way)
    absent = errors.NOT_READY if named and not findings else errors.DONE
    exit = errors.worst((*(finding.exit for finding in findings), errors.FAILED if blocked else errors.DONE, absent))
    details = {"deployments": [{**asdict(each), "problems": [p.what for p in each.problems]} for each in findings]}
    nothing = f"no deployment named {name}" if name else "nothing runs here"
    summary = "; ".join(map(_said, findings)) or nothing
    outcome = {errors.DONE: "ok", errors.NOT_READY: "not ready"}.get(exit, "failed")
    return HostReport(host, outcome, exit, summary, details, (*own, *in_the_way))


def _said(finding: Finding) -> str:
    gpus = f", sees {finding.gpus} GPUs" if finding.gpus else ""
    answers = f", completes in {finding.seconds:g} s" if finding.seconds is not None else ""
    return f"{finding.name} {finding.state}, {finding.phase or finding.ready}{gpus}{answers}"


def _report(host: str, result: HostReport | HostError) -> HostReport:
    if isinstance(result, HostReport):
        return result
    outcome = "unreachable" if result.exit == errors.UNREACHABLE else "failed"
    return HostReport(host, outcome, result.exit, result.problems[0].what.splitlines()[0], problems=result.problems)
