"""The SSH server of a sandbox: `python -m beamdeploy.sandbox.server FOLDER DESCRIPTOR` runs until it is ended.

It ends by itself when the folder is removed, or after twelve hours without a connection.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import paramiko

from beamdeploy.sandbox import keys, locks, place
from beamdeploy.sandbox.login import Connection, Login

TICK = 0.25


def main(words: Sequence[str]) -> int:
    """The exit code."""
    folder, report = words[0], int(words[1])
    # the shell that started it in the background made it ignore these, and so would all that it starts
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    if locks.take(os.path.join(folder, place.SERVER_LOCK)) is None:
        return 1
    listener = _listen(folder)
    port = int(listener.getsockname()[1])
    place.write(folder, place.SERVER, {"pid": os.getpid(), "port": port})
    os.write(report, str(port).encode())
    os.close(report)
    serve(folder, listener, stopping)
    return 0


def _listen(folder: str) -> socket.socket:
    """A listening socket: on the port of the server before, so that its known hosts stay true, or on any."""
    before = place.read(folder, place.SERVER) or {}
    for port in (before.get("port", 0), 0):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(64)
        except OSError:
            listener.close()
        else:
            return listener
    raise OSError("no port of 127.0.0.1 can be had")


def serve(folder: str, listener: socket.socket, stopping: threading.Event) -> None:
    """Take connections until the sandbox is over."""
    host_key = paramiko.Ed25519Key.from_private_key_file(os.path.join(folder, place.HOST_KEY))
    user_key = keys.public(Path(folder) / place.USER_KEY)
    transports: list[paramiko.Transport] = []
    refused = False
    listener.settimeout(TICK)
    while not stopping.is_set() and not place.is_over(folder, time.time()):
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            connection.settimeout(None)
            login = Login(folder, user_key, refused=refused)
            refused = False
            _welcome(connection, host_key, login, transports)
        transports[:] = [each for each in transports if each.is_active()]
        refused = _dropped(folder, transports) or refused
        if transports:
            _touch(folder)
    listener.close()
    for each in transports:
        each.close()


def _welcome(
    connection: socket.socket, host_key: paramiko.PKey, login: Login, transports: list[paramiko.Transport]
) -> None:
    # Nagle's algorithm would cost every command tens of milliseconds
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _touch(login.folder)
    transport = Connection(connection)
    transport.local_version = "SSH-2.0-beamdeploy_sandbox"
    transport.add_server_key(host_key)
    try:
        # the handshake goes on in the transport's own thread
        transport.start_server(event=threading.Event(), server=login)
    except (paramiko.SSHException, EOFError, OSError):
        transport.close()
        return
    transports.append(transport)
    threading.Thread(target=_channels, args=(transport, login), daemon=True).start()


def _channels(transport: paramiko.Transport, login: Login) -> None:
    """Hand every channel that opens to what its client asked for."""
    while transport.is_active():
        channel = transport.accept(1)
        if channel is not None:
            login.opened(channel)


def _dropped(folder: str, transports: Sequence[paramiko.Transport]) -> bool:
    """The fault of a lost connection: whether all that there are were closed, as when a host goes down."""
    path = os.path.join(folder, place.DROPPING)
    if not os.path.exists(path):
        return False
    os.unlink(path)
    for each in transports:
        each.close()
    return True


def _touch(folder: str) -> None:
    with suppress(FileNotFoundError):
        os.utime(os.path.join(folder, place.USED))


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # threads of connections are left where they are
    os._exit(status)
