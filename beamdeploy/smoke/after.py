"""The checks that end an apply: those of the recipe's smoke section that its first proof has not made."""

from __future__ import annotations

from dataclasses import replace

from beamdeploy.errors import NOT_READY, HostError
from beamdeploy.recipe import Recipe
from beamdeploy.remote import Session
from beamdeploy.served import served_by
from beamdeploy.smoke import Outcome, Say, chosen, failures, smoke, summary

_PROVEN = ("models", "completion")
"""What settling has just seen with its own request."""


def prove(session: Session, recipe: Recipe, say: Say) -> tuple[Outcome, ...]:
    """Make the checks. HostError (NOT_READY): some failed, and all of them are said."""
    names = tuple(name for name in chosen(recipe.smoke.checks) if name not in _PROVEN)
    if not names:
        return ()
    served = served_by(recipe)
    outcomes = smoke(served.way(session), served, names, say)
    problems = failures(outcomes, f"{session.host.name}: smoke")
    if not problems:
        return outcomes
    several = "; ".join(problem.what.removeprefix("smoke: ") for problem in problems)
    what = f"the server answers and is not right ({summary(outcomes)}): {several}"
    raise HostError(replace(problems[0], what=what), exit=NOT_READY)
