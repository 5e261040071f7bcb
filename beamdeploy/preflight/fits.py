"""Whether the model fits into the memory of these GPUs: a warning, unless not even its weights can."""

from __future__ import annotations

from collections.abc import Iterator

from beamdeploy.fit import Fit, fit
from beamdeploy.look.facts import Facts
from beamdeploy.preflight.check import Check
from beamdeploy.render import Spec

_GIB = 2**30
_MIB = 2**20


def checks(spec: Spec, facts: Facts) -> Iterator[Check]:
    """By the smallest of the GPUs; nothing where memory or weights are not known."""
    sizes = [gpu.memory_total_mib for gpu in (facts.gpus.gpus if facts.gpus else ()) if gpu.index in spec.gpus]
    known = [size for size in sizes if size is not None]
    found = fit(spec.recipe, min(known) * _MIB, facts.weights) if known else None
    if found is not None:
        yield judged(found)


def judged(found: Fit) -> Check:
    """A fit as a check."""
    of = f"of {gib(found.usable)} usable on each GPU ({found.utilization:g} of {gib(found.memory)})"
    about = "" if found.exact else "about "
    if found.verdict == "weights":
        what = f"the weights alone take {about}{gib(found.weights + found.drafter)} {of}"
        return Check("fit", what, "block", "Use more GPUs, larger ones, or a smaller number format.")
    saw = f"{about}{gib(found.needed)} {of}"
    asked = f"{found.context} tokens x {found.sequences}"
    if found.verdict == "fits":
        return Check("fit", f"{saw} for {asked}")
    if found.verdict == "none":
        what = f"{saw}: not even one sequence of {found.context} tokens fits beside the weights"
        return Check("fit", what, "warn", f"Lower engine.max_model_len, or use more GPUs. {_most(found)}")
    what = f"{saw} for {asked}: so many cannot be served at once"
    return Check("fit", what, "warn", f"Requests will wait for memory. {_most(found)}")


def _most(found: Fit) -> str:
    if not found.most_context:
        return "Beside the weights there is no room for any cache."
    return (
        f"What would fit: {found.most_sequences} of {found.context} tokens, "
        f"or {found.sequences} of {found.most_context}."
    )


def gib(size: int) -> str:
    """ "68.5 GiB"."""
    return f"{size / _GIB:.1f} GiB"
