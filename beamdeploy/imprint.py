"""What a deployment was like when it was ready, so that what changed by another hand is seen later."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from beamdeploy.label import Change
from beamdeploy.look.facts import Container, Facts, Past, Weights

_UNKNOWN = "?"


def past_of(container: Container, facts: Facts, took: Mapping[str, float]) -> Past:
    """The imprint of a container that is ready now. `took`: kind of step → seconds."""
    return Past(
        outcome="ready",
        container=container.id,
        started_at=container.started_at,
        restarts=container.restart_count,
        limits=dict(container.limits),
        weights={folder: mark(found) for folder, found in facts.weights.items() if found is not None},
        took=dict(took),
    )


def restarted(container: Container, facts: Facts) -> Past | None:
    """The imprint of a container that we have started again ourselves; all else that was noted of it still holds.

    None: nothing was noted.
    """
    noted = next((each for each in reversed(facts.past) if each.container == container.id), None)
    if noted is None:
        return None
    return replace(
        noted, outcome="restored", took={}, started_at=container.started_at, restarts=container.restart_count
    )


def edits(container: Container | None, facts: Facts) -> tuple[Change, ...]:
    """What is not as it was when the container was last ready, and no recipe says; nothing where nothing was noted."""
    if container is None:
        return ()
    noted = next((each for each in reversed(facts.past) if each.container == container.id), None)
    return tuple(_edits(noted, container, facts)) if noted is not None else ()


def rotated(container: Container | None, facts: Facts) -> tuple[Change, ...]:
    """Whether the container was made with other secrets than are wanted now; their values are nobody's business."""
    secrets = facts.secrets
    if secrets is None or container is None or (secrets.state == "same" and secrets.used_by == container.id):
        return ()
    return (Change("container.secrets", "as this container got them", "changed since"),)


def served(container: Container, facts: Facts) -> bool:
    """Whether this container is known to have been ready once."""
    return any(past.container == container.id and past.outcome == "ready" for past in facts.past)


def usual_seconds(facts: Facts, *kinds: str) -> float | None:
    """How long these steps took together on this host, the median of the last runs; None: it has done none."""
    known = sorted(sum(past.took[kind] for kind in kinds) for past in facts.past if set(kinds) <= set(past.took))
    return known[len(known) // 2] if known else None


def usual_phases(facts: Facts) -> Mapping[str, float]:
    """The phases of the last start here that was followed (`Past.phases`); empty: there was none."""
    return next((past.phases for past in reversed(facts.past) if past.phases), {})


def mark(weights: Weights) -> str:
    """A short name for what lies in a folder: names, sizes, link targets and the small texts."""
    files = sorted((file.name, file.size, file.target or "") for file in weights.files)
    text = repr((files, sorted(weights.texts.items()), sorted((weights.index or {}).items())))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _edits(noted: Past, container: Container, facts: Facts) -> Iterator[Change]:
    for name, now in container.limits.items():
        before = noted.limits.get(name, _UNKNOWN)
        if before not in (_UNKNOWN, now):
            yield Change(f"docker.{name}", before, now)
    if container.restart_count != noted.restarts:
        yield Change("docker.restarts", noted.restarts, container.restart_count)
    elif container.started_at != noted.started_at:
        yield Change("docker.started_at", noted.started_at[:19], container.started_at[:19])
    for folder, found in facts.weights.items():
        before, now = noted.weights.get(folder, _UNKNOWN), mark(found) if found is not None else "gone"
        if before not in (_UNKNOWN, now):
            yield Change(f"weights.{folder}", before, now)
