"""HTTP to a server on the host, over a channel of the host's own session: no local port, no route, no tool there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamdeploy.apikey import header
from beamdeploy.errors import HostError, Problem
from beamdeploy.remote import Looker, Result, Session

if TYPE_CHECKING:
    from http.client import HTTPConnection

_ANY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """What an HTTP question got: the status, or None with the reason why there was none."""

    status: int | None
    body: str = ""
    reason: str = ""


_BY_A_TOOL = """
if command -v curl >/dev/null; then
  exec curl --silent --show-error --max-time "$2" --write-out '\\n%{http_code}'@curl "$1"
fi
command -v wget >/dev/null || exit 127
wget -q -O - -T "$2"@wget "$1"
status=$?
case $status in 0) printf '\\n200' ;; 8) printf '\\n503' ;; *) exit $status ;; esac
"""
GET = _BY_A_TOOL.replace("@curl", "").replace("@wget", "")
"""GET $1 within $2 seconds, with the status as last line. wget ends with 8, and no body, for what is not 2xx."""
_POST = _BY_A_TOOL.replace("@curl", " --header 'Content-Type: application/json' --data-raw \"$3\"").replace(
    "@wget", " --header='Content-Type: application/json' --post-data=\"$3\""
)
"""POST $3 likewise. A script of its own: what only looks may send GET and nothing else."""


def get(session: Looker, address: str, port: int, path: str, *, timeout: float = 10, key: str = "") -> Answer:
    """GET `path` through the session; by a tool of the host where forwarding is forbidden. HostError: see `ask`."""
    return _asked(session, address, port, path, None, timeout, key)


def ask(
    session: Session,
    address: str,
    port: int,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    timeout: float = 10,
    key: str = "",
) -> Answer:
    """GET `path`, or POST `body` as JSON, through the session; by a tool of the host where forwarding is forbidden.

    HostError: the server forbids forwarding and has neither curl nor wget, or a `key` must be sent, which goes over
    channels alone. `address` is one of the host's own.
    """
    return _asked(session, address, port, path, body, timeout, key)


def _asked(
    session: Looker, address: str, port: int, path: str, body: Mapping[str, Any] | None, timeout: float, key: str
) -> Answer:
    try:
        return ask_over_channel(session, address, port, path, body=body, timeout=timeout, key=key)
    except HostError as error:
        # a key would be seen among the processes of the host
        if not _is_forbidden(error) or key:
            raise
        limit = max(1, round(timeout))
        url = f"http://{_reached(address)}:{port}{path}"
        script, words = (GET, ()) if body is None else (_POST, (json.dumps(body),))
        result = session.script(script, (url, str(limit), *words), timeout=limit + 5)
        if result.exit == 127:
            raise _without_tool(error) from error
        return _with_status(result, "the host's curl or wget got no answer")


def ask_over_channel(
    session: Looker,
    address: str,
    port: int,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    timeout: float = 10,
    key: str = "",
) -> Answer:
    """The same over a channel only; may be called beside a command that runs. HostError: forwarding is forbidden."""
    # here, where others wait for the host: its import costs 12 ms
    from http.client import HTTPConnection, HTTPException

    target = _reached(address).strip("[]")
    try:
        channel = session.channel(port, target, timeout=min(timeout, 10.0))
    except OSError as error:
        return Answer(None, reason=f"nothing answers on {target}:{port} ({error.strerror or error})")
    connection = HTTPConnection(target, port, timeout=timeout)
    connection.sock = channel
    try:
        channel.settimeout(timeout)
        _send(connection, path, body, key)
        response = connection.getresponse()
        return Answer(response.status, response.read(_MOST_BYTES).decode("utf-8", "replace"))
    except TimeoutError:
        return Answer(None, reason=f"{target}:{port} gave no answer within {timeout:g} s")
    except (OSError, HTTPException, EOFError) as error:
        return Answer(None, reason=f"{target}:{port} gave no HTTP answer ({str(error) or type(error).__name__})")
    finally:
        connection.close()


def _reached(address: str) -> str:
    """Where a server that is published on all addresses is reached on its own host."""
    return _ANY.get(address, address)


def _send(connection: HTTPConnection, path: str, body: Mapping[str, Any] | None, key: str) -> None:
    headers = {"Connection": "close", **header(key)}
    if body is None:
        connection.request("GET", path, headers=headers)
    else:
        headers["Content-Type"] = "application/json"
        connection.request("POST", path, json.dumps(body).encode(), headers)


def _is_forbidden(error: HostError) -> bool:
    return any("AllowTcpForwarding" in problem.what + problem.remedy for problem in error.problems)


def _without_tool(forbidden: HostError) -> HostError:
    problem = forbidden.problems[0]
    return HostError(Problem(problem.what, f"{problem.remedy} Or install curl or wget there.", problem.where))


def _with_status(result: Result, otherwise: str) -> Answer:
    """What a tool printed: the body, and the status as its last line."""
    text, _, status = result.out.rstrip("\n").rpartition("\n")
    if not result.ok or not status.isdigit() or status == "000":
        return Answer(None, reason=result.err.strip() or otherwise)
    return Answer(int(status), text)
