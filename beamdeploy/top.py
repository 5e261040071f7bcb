"""GPUs and deployments of all hosts at this moment: one script a host, and the engines' own counts beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources

from beamdeploy import errors
from beamdeploy.endpoint import GET, get
from beamdeploy.engines.metrics import metrics_of, total
from beamdeploy.errors import HostError, Problem
from beamdeploy.kept import Kept
from beamdeploy.label import DIGEST, NAME, SPEC, read_labels
from beamdeploy.look import with_smi
from beamdeploy.look.gpus import containers_of
from beamdeploy.outcome import HostReport, Report
from beamdeploy.recap import shared
from beamdeploy.remote import Looker, Result, Session
from beamdeploy.remote.read_only import ReadOnly

_SECONDS = 60
_METRICS_SECONDS = 5.0


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory in MiB; `busy` in per cent; None: it does not say. `holders`: who computes on it, in words."""

    index: int
    name: str
    used: int | None
    total: int | None
    busy: int | None
    holders: tuple[str, ...]


@dataclass(frozen=True)
class Serving:
    """One running deployment. `running`, `waiting`: requests; None: its engine does not say."""

    name: str
    status: str
    endpoint: str
    running: int | None = None
    waiting: int | None = None


@dataclass(frozen=True)
class _Box:
    """A running container. `deployment`: its name; "" where it is none of ours."""

    id: str
    name: str
    status: str
    deployment: str
    engine: str
    publish: str


@dataclass(frozen=True)
class Seen:
    """One host. `problem`: what could not be asked, or ""."""

    gpus: tuple[Gpu, ...]
    serving: tuple[Serving, ...]
    problem: str = ""


class Top:
    """Looks again and again over kept sessions. From the second look on a host is asked everything at the same time."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._known: dict[str, tuple[_Box, ...]] = {}

    def look(self) -> Report:
        """All hosts now."""
        results = self._kept.each(self._host)
        reports = tuple(_report(host, results[host]) for host in self._kept.hosts)
        return shared(Report("Top", errors.worst(report.exit for report in reports), reports))

    def _host(self, session: Session) -> Seen:
        looker, name = ReadOnly(session, (script(), GET)), session.host.name
        known = self._known.get(name, ())
        with ThreadPoolExecutor(max_workers=len(known) + 1) as beside:
            asked = {box.id: beside.submit(_requests, looker, box) for box in known}
            result = looker.script(script(), session.host.docker_words, timeout=_SECONDS)
            boxes = tuple(_boxes(result.out))
            counts = {box.id: asked[box.id].result() if box.id in asked else _requests(looker, box) for box in boxes}
        self._known[name] = tuple(box for box in boxes if box.deployment)
        return seen(result, boxes, counts)


@cache
def script() -> str:
    """The text of the look: POSIX sh, read-only. Its arguments: the docker words."""
    return with_smi(resources.files("beamdeploy.look").joinpath("top.sh").read_text("utf-8"))


def seen(result: Result, boxes: Sequence[_Box], counts: Mapping[str, tuple[int | None, int | None]]) -> Seen:
    """A host out of what its script printed, and of what its engines count."""
    serving = tuple(
        Serving(box.deployment, box.status, f"http://{box.publish}/v1", *counts.get(box.id, (None, None)))
        for box in boxes
        if box.deployment
    )
    said = [*(line for line in _lines(result.out, "gpu ") if not _is_gpu(line)), result.err]
    return Seen(tuple(_gpus(result.out, boxes)), serving, " ".join(" ".join(said).split())[-300:])


def tables(report: Report) -> tuple[tuple[Sequence[str], Sequence[Sequence[str]]], ...]:
    """(head, rows) of the GPUs and of the deployments."""
    gpus = [row for host in report.hosts for row in _gpu_rows(host)]
    serving = [row for host in report.hosts for row in _serving_rows(host)]
    return (
        (("host", "GPU", "name", "MiB used", "of", "busy", "used by"), gpus),
        (("host", "deployment", "state", "endpoint", "running", "waiting"), serving),
    )


def _gpu_rows(host: HostReport) -> Iterator[tuple[str, ...]]:
    for gpu in host.details.get("gpus", ()):  # type: ignore[attr-defined]  # what _report put there
        numbers = (gpu["index"], gpu["name"], _told(gpu["used"]), _told(gpu["total"]), _told(gpu["busy"], " %"))
        yield (host.name, *map(str, numbers), ", ".join(gpu["holders"]))


def _serving_rows(host: HostReport) -> Iterator[tuple[str, ...]]:
    for each in host.details.get("deployments", ()):  # type: ignore[attr-defined]  # what _report put there
        counts = (_told(each["running"]), _told(each["waiting"]))
        yield (host.name, each["name"], each["status"], each["endpoint"], *counts)


def _told(number: int | None, unit: str = "") -> str:
    return "–" if number is None else f"{number}{unit}"


def _report(host: str, result: Seen | HostError) -> HostReport:
    if isinstance(result, HostError):
        outcome = "unreachable" if result.exit == errors.UNREACHABLE else "failed"
        return HostReport(host, outcome, result.exit, result.problems[0].what.splitlines()[0], problems=result.problems)
    details = {
        "gpus": [asdict(gpu) for gpu in result.gpus],
        "deployments": [asdict(each) for each in result.serving],
    }
    summary = f"{len(result.gpus)} GPUs, {len(result.serving)} deployments"
    problems = (Problem(result.problem, "", host, level="warning"),) if result.problem else ()
    return HostReport(host, "shown", errors.DONE, summary, details, problems)


def _boxes(out: str) -> Iterator[_Box]:
    for line in _lines(out, "box "):
        identifier, name, status, deployment, digest, spec = (*line.split("\t"), *[""] * 6)[:6]
        labels = {NAME: deployment, DIGEST: digest, SPEC: spec} if deployment else {}
        deployed = read_labels(labels)
        recipe = deployed.recipe if deployed else {}
        engine = str(recipe.get("engine", {}).get("name", ""))
        yield _Box(identifier, name, status, deployment, engine, str(recipe.get("container", {}).get("publish", "")))


def _gpus(out: str, boxes: Sequence[_Box]) -> Iterator[Gpu]:
    within, by_id = dict(containers_of(out)), {box.id: box for box in boxes}
    holders: dict[str, list[str]] = {}
    for line in _lines(out, "app "):
        pid, uuid, program = (*(cell.strip() for cell in line.split(",", 2)), "", "")[:3]
        box = by_id.get(within.get(int(pid), ""))
        holders.setdefault(uuid, []).append(_holder(pid, program, box))
    for line in _lines(out, "gpu "):
        if _is_gpu(line):
            index, uuid, *numbers, name = (cell.strip() for cell in line.split(",", 5))
            used, whole, busy = (int(number) if number.isdigit() else None for number in numbers)
            yield Gpu(int(index), name, used, whole, busy, tuple(holders.get(uuid, ())))


def _is_gpu(line: str) -> bool:
    """Whether it tells of a GPU, and not why nothing can be told."""
    cells = line.split(",", 5)
    return len(cells) == 6 and cells[0].strip().isdigit()


def _holder(pid: str, program: str, box: _Box | None) -> str:
    if box is None:
        return f"{program} (pid {pid}), not ours"
    return f"{box.deployment} (pid {pid})" if box.deployment else f"container {box.name} (pid {pid}), not ours"


def _lines(out: str, mark: str) -> Iterator[str]:
    yield from (line.removeprefix(mark) for line in out.splitlines() if line.startswith(mark))


def _requests(looker: Looker, box: _Box) -> tuple[int | None, int | None]:
    """How many requests its engine works on, and how many wait; None: it does not say."""
    metrics = metrics_of(box.engine) if box.engine else None
    address, _, port = box.publish.rpartition(":")
    if metrics is None or not metrics.running or not port.isdigit():
        return None, None
    page = get(looker, address, int(port), metrics.path, timeout=_METRICS_SECONDS)
    counts = (total(page.body, name) if page.status == 200 else None for name in (metrics.running, metrics.waiting))
    running, waiting = (None if count is None else int(count) for count in counts)
    return running, waiting
