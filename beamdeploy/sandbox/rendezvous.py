"""Ranks of a stand-in that meet over TCP, go on together, and end as a set.

The head listens where its words say; each follower connects, names its rank and waits for the word to go on. A
connection that breaks without a farewell is a rank that died: the others die of it.
"""

from __future__ import annotations

import http.server
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_PATIENCE = 60.0
"""Seconds that a rank waits for the others."""
_GO, _FAREWELL = b"go\n", b"end\n"

Lost = Callable[[int], int]
"""Says that a rank died; the status to die with."""


@dataclass(frozen=True)
class Meeting:
    """Which of how many nodes this is, and where the head is."""

    number: int
    nodes: int
    address: str
    port: int


def meeting(engine: Mapping[str, object]) -> Meeting | None:
    """What the flags of any of the engines say; None: one node."""
    local, replicas = _whole(engine.get("data_parallel_size_local")), _whole(engine.get("data_parallel_size"))
    if local and replicas and replicas > local:
        number = (_whole(engine.get("data_parallel_start_rank")) or 0) // local
        port = _whole(engine.get("data_parallel_rpc_port")) or 0
        return Meeting(number, replicas // local, str(engine.get("data_parallel_address")), port)
    nodes = _whole(engine.get("nnodes")) or 1
    if nodes == 1:
        return None
    address, _, port_text = str(engine.get("dist_init_addr") or "").rpartition(":")
    number = _whole(engine.get("node_rank")) or 0
    if address:
        return Meeting(number, nodes, address, int(port_text))
    return Meeting(number, nodes, str(engine.get("master_addr")), _whole(engine.get("master_port")) or 29501)


def fault_of(fault: str, here: Meeting | None, environ: Mapping[str, str]) -> str:
    """The fault of this rank: with STANDIN_FAULT_RANK that of one rank alone."""
    chosen = environ.get("STANDIN_FAULT_RANK", "")
    return fault if not chosen or here is None or chosen == str(here.number) else ""


class Peers:
    """The connections to the other ranks: a follower has one, to its head."""

    def __init__(self, connections: Mapping[int, socket.socket]) -> None:
        self._connections = connections
        self.ended = threading.Event()
        """The head said farewell."""
        self._leaving = threading.Event()

    def watch(self, lost: Lost) -> None:
        """From now on the death of another rank is this one's."""
        for number, connection in self._connections.items():
            threading.Thread(target=self._listen, args=(number, connection, lost), daemon=True).start()

    def farewell(self) -> None:
        """Tell all that this rank ends as it should; what they do then is no death."""
        self._leaving.set()
        for connection in self._connections.values():
            try:
                connection.sendall(_FAREWELL)
            except OSError:
                continue

    def _listen(self, number: int, connection: socket.socket, lost: Lost) -> None:
        try:
            said = connection.recv(64)
        except OSError:
            said = b""
        if said == _FAREWELL and number == 0:
            self.ended.set()
            return
        if said != _FAREWELL and not self._leaving.is_set():
            status = lost(number)
            sys.stdout.flush()
            os._exit(status)


def met(here: Meeting) -> Peers:
    """All ranks, when all are there. OSError: some do not come, or the port is taken."""
    return _gathered(here) if here.number == 0 else _joined(here)


def _gathered(here: Meeting) -> Peers:
    found: dict[int, socket.socket] = {}
    with socket.create_server((here.address, here.port), backlog=here.nodes) as server:
        server.settimeout(_PATIENCE)
        while len(found) < here.nodes - 1:
            connection, _ = server.accept()
            connection.settimeout(_PATIENCE)
            said = connection.recv(64).decode().split()
            if said[:1] == ["rank"]:
                connection.settimeout(None)
                found[int(said[1])] = connection
    for connection in found.values():
        connection.sendall(_GO)
    return Peers(found)


def _joined(here: Meeting) -> Peers:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            connection = socket.create_connection((here.address, here.port), timeout=_PATIENCE)
            connection.sendall(f"rank {here.number}\n".encode())
            if connection.recv(len(_GO)) != _GO:
                raise ConnectionResetError("the head closed the connection")
            connection.settimeout(None)
            return Peers({0: connection})
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def follow(peers: Peers, *, until_signal: bool) -> int:
    """A follower's life after it has loaded: until its head ends, or a signal comes."""
    peers.ended.wait()
    if until_signal:
        threading.Event().wait()
    return 0


def answer_health(host: str, port: int) -> None:
    """What a follower serves: that it lives, and nothing else."""
    server = http.server.ThreadingHTTPServer((host, port), _Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()


class _Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
