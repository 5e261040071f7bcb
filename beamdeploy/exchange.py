"""One HTTP exchange with a server on a host: any body, every status, and a stream as it comes."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from socket import socket

from beamdeploy.apikey import header
from beamdeploy.errors import FAILED, HostError, Problem
from beamdeploy.remote import Session

_ANY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
_LONGEST_LINE = 1 << 20
_MOST_BYTES = 32 << 20
_MOST_IN_A_WORD = 100_000
_CONNECT = 10.0
_ENDS = "beamdeploy-ends "
_WRITTEN = f"\n{_ENDS}%{{http_code}} %{{content_type}}"


@dataclass(frozen=True)
class Request:
    """What is sent to a path: a GET, or a POST of these bytes as JSON."""

    path: str
    body: bytes | None = None


@dataclass(frozen=True)
class Heard:
    """What came back. `status` None: no HTTP answer, for the `reason`. Times are seconds since the request was sent.

    `events`: when each `data:` of a stream came, and what it held. `body`: everything else, as text. `unsent`: there
    was no way to send it.
    """

    status: int | None = None
    kind: str = ""
    body: str = ""
    events: tuple[tuple[float, str], ...] = ()
    seconds: float = 0.0
    reason: str = ""
    unsent: bool = False


OnEvent = Callable[[str], None]
Carry = Callable[[Request, float, OnEvent | None], Heard]
"""(request, seconds of silence that end it, what gets each event as it comes) → what came back."""


def reached(address: str) -> str:
    """Where a server that is published on `address` is reached on its own host."""
    return _ANY.get(address, address).strip("[]")


def carrier(session: Session, address: str, port: int, key: str = "") -> Carry:
    """A way to the server over the session; by the host's curl where sshd forbids forwarding and no key is sent."""
    over = channel_carrier(session, address, port, key)

    def carry(request: Request, timeout: float, on_event: OnEvent | None = None) -> Heard:
        try:
            return over(request, timeout, on_event)
        except HostError as error:
            # a key would be seen among the processes of the host
            if error.exit != FAILED or key:
                raise
            return _by_curl(session, f"http://{_ANY.get(address, address)}:{port}", request, timeout, on_event, error)

    return carry


def channel_carrier(session: Session, address: str, port: int, key: str = "") -> Carry:
    """The same over channels only, which any thread may use. HostError: forwarding is forbidden."""

    def carry(request: Request, timeout: float, on_event: OnEvent | None = None) -> Heard:
        def connect() -> socket:
            return session.channel(port, reached(address), timeout=_CONNECT)

        return exchange(connect, request, timeout, on_event, key=key)

    return carry


def exchange(
    connect: Callable[[], socket], request: Request, timeout: float, on_event: OnEvent | None = None, *, key: str = ""
) -> Heard:
    """Connect, send and hear it out. What `on_event` raises ends the exchange and is passed on."""
    try:
        sock = connect()
    except OSError as error:
        return Heard(reason=f"nothing answers there ({error.strerror or error})")
    connection = http.client.HTTPConnection("localhost", timeout=timeout)
    connection.sock = sock
    started = time.monotonic()
    try:
        sock.settimeout(timeout)
        _send(connection, request, key)
        return _heard(connection.getresponse(), started, on_event)
    except TimeoutError:
        return Heard(seconds=_since(started), reason=f"no answer within {timeout:g} s")
    except (OSError, http.client.HTTPException, EOFError) as error:
        return Heard(seconds=_since(started), reason=f"no HTTP answer ({str(error) or type(error).__name__})")
    finally:
        connection.close()


def _send(connection: http.client.HTTPConnection, request: Request, key: str) -> None:
    headers = {"Connection": "close", **header(key)}
    if request.body is None:
        connection.request("GET", request.path, headers=headers)
        return
    # a server that refuses a long body may answer and hang up before it has read it all: its answer is read
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.request("POST", request.path, request.body, {**headers, "Content-Type": "application/json"})


def _heard(response: http.client.HTTPResponse, started: float, on_event: OnEvent | None) -> Heard:
    kind = response.getheader("Content-Type") or ""
    if "event-stream" not in kind:
        body = response.read(_MOST_BYTES).decode("utf-8", "replace")
        return Heard(response.status, kind, body, seconds=_since(started))
    lines = ((_since(started), line) for line in _lines(response))
    return _streamed(response.status, kind, lines, on_event, started)


def _lines(response: http.client.HTTPResponse) -> Iterator[str]:
    read = 0
    while (line := response.readline(_LONGEST_LINE)) and read < _MOST_BYTES:
        read += len(line)
        yield line.decode("utf-8", "replace")


def _streamed(
    status: int, kind: str, lines: Iterator[tuple[float, str]], on_event: OnEvent | None, started: float
) -> Heard:
    """The events of a stream; one that breaks off is what came of it, with the reason."""
    events: list[tuple[float, str]] = []
    reason = ""
    try:
        for at, line in lines:
            if line.startswith("data:"):
                events.append((at, line[5:].strip()))
                if on_event is not None:
                    on_event(events[-1][1])
    except TimeoutError:
        reason = f"the stream fell silent after {len(events)} events"
    except (OSError, http.client.HTTPException, EOFError) as error:
        reason = f"the stream broke off after {len(events)} events ({str(error) or type(error).__name__})"
    return Heard(status, kind, events=tuple(events), seconds=_since(started), reason=reason)


def _since(started: float) -> float:
    return time.monotonic() - started


def _by_curl(
    session: Session, url: str, request: Request, timeout: float, on_event: OnEvent | None, forbidden: HostError
) -> Heard:
    """By a tool of the host. A body that is no single word of a command line is not sent."""
    posted = (request.body or b"").decode()
    if len(posted) > _MOST_IN_A_WORD:
        why = "too long for curl on the host, and sshd forbids forwarding (AllowTcpForwarding)"
        return Heard(reason=why, unsent=True)
    limit = str(max(1, round(timeout)))
    curl = ("curl", "--silent", "--show-error", "--no-buffer", "--max-time", limit, "--write-out", _WRITTEN)
    sent = ("--header", "Content-Type: application/json", "--data-raw", posted) if request.body is not None else ()
    started, lines = time.monotonic(), list[tuple[float, str]]()

    def line(text: str) -> None:
        lines.append((_since(started), text))
        if on_event is not None and text.startswith("data:"):
            on_event(text[5:].strip())

    result = session.follow((*curl, *sent, url + request.path), line, timeout=round(timeout) + 5)
    if result.exit == 127:
        told = forbidden.problems[0]
        raise HostError(Problem(told.what, f"{told.remedy} Or install curl there.", told.where))
    return _of_curl(tuple(lines), _since(started))


def _of_curl(lines: tuple[tuple[float, str], ...], seconds: float) -> Heard:
    """The body's lines (empty ones are not handed over), then status and kind."""
    ends = next((at for at in range(len(lines) - 1, -1, -1) if lines[at][1].startswith(_ENDS)), None)
    status, _, kind = ("000 " if ends is None else lines[ends][1].removeprefix(_ENDS)).partition(" ")
    if status == "000" or ends is None:
        said = " ".join(text for _, text in lines if not text.startswith(_ENDS))
        return Heard(seconds=seconds, reason=said[:200] or "curl got no answer")
    body = lines[:ends]
    if "event-stream" in kind:
        return _streamed(int(status), kind, iter(body), None, time.monotonic() - seconds)
    return Heard(int(status), kind, "\n".join(text for _, text in body), seconds=seconds)
