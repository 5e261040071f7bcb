"""A paramiko channel as a real socket.

http.client closes its socket as soon as it has a file of it; a channel then throws away what is still to come, and
its file cannot stream. A socket pair with a thread a direction has a socket's own semantics.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import Any


def as_socket(channel: Any) -> socket.socket:
    """A socket that is connected to what the channel is connected to; closing it closes the channel."""
    ours, theirs = socket.socketpair()
    join(channel, theirs)
    return ours


def join(channel: Any, sock: socket.socket) -> None:
    """What comes from either goes to the other, until one is closed; in threads of their own."""
    for pump in (_to_host, _from_host):
        threading.Thread(target=pump, args=(channel, sock), name=pump.__name__, daemon=True).start()


def join_sockets(one: socket.socket, other: socket.socket) -> None:
    """The same for two sockets."""
    for source, sink in ((one, other), (other, one)):
        threading.Thread(target=_copy, args=(source, sink), name="copy", daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    # an error: either side went, which the other is told by the end
    with suppress(OSError):
        while sent := source.recv(1 << 16):
            sink.sendall(sent)
    for one in (source, sink):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RD if one is source else socket.SHUT_WR)


def _from_host(channel: Any, sock: socket.socket) -> None:
    try:
        while received := channel.recv(1 << 16):
            sock.sendall(received)
        sock.shutdown(socket.SHUT_WR)
    except (OSError, EOFError):
        _close(channel)


def _to_host(channel: Any, sock: socket.socket) -> None:
    with sock:
        # an error: the host's side went first
        with suppress(OSError, EOFError):
            while sent := sock.recv(1 << 16):
                channel.sendall(sent)
            if not _hung_up(sock):
                channel.shutdown_write()
                _wait_for_hang_up(sock)
        _close(channel)


def _close(channel: Any) -> None:
    # closing says so to the host, which may be gone
    with suppress(OSError, EOFError):
        channel.close()


def _hung_up(sock: socket.socket) -> bool:
    """The other end is closed, not only shut for writing."""
    return _poll(sock, 0)


def _wait_for_hang_up(sock: socket.socket) -> None:
    while not _poll(sock, None):
        continue


def _poll(sock: socket.socket, timeout: int | None) -> bool:
    poll = select.poll()
    poll.register(sock, 0)
    return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(timeout))
