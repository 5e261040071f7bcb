"""The check of the drafter: how many of its tokens the model accepts, from the engine's metrics."""

from __future__ import annotations

from beamdeploy.engines.metrics import accepted_and_drafted, metrics_of
from beamdeploy.exchange import Heard, Request
from beamdeploy.served import Served
from beamdeploy.smoke.answers import chat
from beamdeploy.smoke.check import Check, Verdict, failed, passed, skipped


def following(served: Served, heard: tuple[Heard, ...]) -> Request | None:
    """A completion, so that there is something to count, and the metrics after it."""
    metrics = metrics_of(served.engine.name)
    return (chat(served), Request(metrics.path) if metrics else None, None)[min(len(heard), 2)]


def judge_acceptance(served: Served, heard: tuple[Heard, ...]) -> Verdict:
    metrics = metrics_of(served.engine.name)
    if metrics is None or len(heard) < 2:
        return skipped(f"nothing is known of the metrics of {served.engine.name}")
    page = heard[1]
    counts = accepted_and_drafted(metrics, page.body) if page.status == 200 else None
    if counts is None:
        said = page.reason or f"HTTP {page.status}"
        return skipped(f"the engine gives no counts of its drafter at {metrics.path} ({said}); {metrics.remedy}")
    accepted, drafted = counts
    if not drafted:
        return failed("no token was drafted, though the recipe has a drafter", "See the log for the drafter's start.")
    if not accepted:
        return failed(f"0 of {drafted:.0f} drafted tokens were accepted", "The drafter does not fit the model.")
    return passed(f"{accepted:.0f} of {drafted:.0f} drafted tokens accepted ({accepted / drafted:.0%}) since the start")


def _no_drafter(served: Served) -> str:
    return "" if served.recipe.speculative else "the recipe has no speculative section"


CHECKS = (Check("acceptance", "drafted tokens are accepted", following, judge_acceptance, _no_drafter),)
