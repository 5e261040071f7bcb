"""HTTP questions over a channel of the same connection, asked while the script runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http.client import HTTPException, HTTPResponse
from socket import socket
from typing import TYPE_CHECKING

from beamdeploy.errors import HostError
from beamdeploy.look.facts import Answer

if TYPE_CHECKING:
    from beamdeploy.remote import Session

SECONDS = 5.0
LARGEST = 1 << 20


def get_all(session: Session, questions: Iterable[tuple[int, str]]) -> Mapping[str, Answer]:
    """What each path answered, by path."""
    return {path: get(session, port, path) for port, path in questions}


def get(session: Session, port: int, path: str) -> Answer:
    """GET path on 127.0.0.1:port as seen from the host; an Answer without status says why there is none."""
    try:
        connection = session.channel(port, timeout=SECONDS)
    except ConnectionRefusedError:
        return Answer(None, reason=f"nothing listens on port {port}")
    except HostError as error:
        return Answer(None, reason="; ".join(f"{p.what} ({p.remedy})" if p.remedy else p.what for p in error.problems))
    except OSError as error:
        return Answer(None, reason=str(error) or type(error).__name__)
    try:
        return _exchange(connection, port, path)
    except TimeoutError:
        return Answer(None, reason=f"port {port} accepted the connection and gave no answer in {SECONDS:g} s")
    except (OSError, HTTPException) as error:
        return Answer(None, reason=f"port {port} gave no HTTP answer: {str(error) or type(error).__name__}")
    finally:
        connection.close()


def _exchange(connection: socket, port: int, path: str) -> Answer:
    connection.settimeout(SECONDS)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    response = HTTPResponse(connection, method="GET")
    response.begin()
    body = response.read(LARGEST).decode("utf-8", "replace")
    return Answer(response.status, body)
