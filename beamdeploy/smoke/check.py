"""What a check is: pure functions that build its requests and judge what came back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from beamdeploy.completion import Said, said
from beamdeploy.exchange import Heard, Request
from beamdeploy.served import Served

PASS, FAIL, SKIP = "pass", "fail", "skip"


@dataclass(frozen=True)
class Verdict:
    """`verdict` is pass, fail or skip; `why`: what was seen, or what is wrong."""

    verdict: str
    why: str
    remedy: str = ""


@dataclass(frozen=True)
class Check:
    """One thing that a server must do.

    `next`: the request to make after what was heard so far; None: enough was heard. `judge`: of all that was heard.
    `unfit`: why it does not apply to this server, or "".
    """

    name: str
    what: str
    next: Callable[[Served, tuple[Heard, ...]], Request | None]
    judge: Callable[[Served, tuple[Heard, ...]], Verdict]
    unfit: Callable[[Served], str] = lambda served: ""


def passed(why: str) -> Verdict:
    return Verdict(PASS, why)


def failed(why: str, remedy: str = "") -> Verdict:
    return Verdict(FAIL, why, remedy)


def skipped(why: str) -> Verdict:
    return Verdict(SKIP, why)


def once(build: Callable[[Served], Request]) -> Callable[[Served, tuple[Heard, ...]], Request | None]:
    """The `next` of a check with one request."""
    return lambda served, heard: None if heard else build(served)


def then(
    first: Callable[[Served], Request], second: Callable[[Served, Heard], Request | None]
) -> Callable[[Served, tuple[Heard, ...]], Request | None]:
    """The `next` of a check whose second request follows from the first answer."""

    def following(served: Served, heard: tuple[Heard, ...]) -> Request | None:
        if not heard:
            return first(served)
        return second(served, heard[0]) if len(heard) == 1 else None

    return following


def answered(heard: Heard) -> Said | Verdict:
    """The completion of an exchange, or why there is none."""
    if heard.status is None:
        return failed(heard.reason, "The front may live while the engine hangs: beamdeploy logs.")
    if heard.status != 200:
        return failed(
            f"HTTP {heard.status}: {shortened(heard.body)}", "The request was a plain one; see the server's log."
        )
    found = said(heard)
    if found is None:
        return failed(f"no completion: {shortened(heard.body or ' '.join(data for _, data in heard.events))}")
    return found


def shortened(text: str, most: int = 300) -> str:
    """The beginning and the end of a text."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]} … {text[-most // 3 :]} ({len(text)} characters)"
