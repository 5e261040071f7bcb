"""Who may log in to a sandbox, and what a channel there is for: a command, or a way to a port."""

from __future__ import annotations

import hmac
import socket
import threading

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_CONNECT_FAILED,
    OPEN_SUCCEEDED,
)

from beamdeploy.sandbox import commands, place, ports

REPLY_SECONDS = 2.0
"""So long a command waits for the answer to its request; a client need not ask for one."""


class Connection(paramiko.Transport):
    """A connection that tells when its own thread has answered a request, which paramiko has no call for."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.waiting: list[threading.Event] = []

    def _send_user_message(self, message: paramiko.Message) -> None:
        super()._send_user_message(message)  # type: ignore[misc]  # as paramiko's own channels call it
        if threading.current_thread() is self:
            while self.waiting:
                self.waiting.pop().set()


class Login(paramiko.ServerInterface):
    """One connection: a user with the sandbox's key; commands and ways to ports as they are asked for.

    `refused`: nobody may log in, as while a host goes down.
    """

    def __init__(self, folder: str, user_key: bytes, *, refused: bool = False) -> None:
        self.folder = folder
        self.user_key = user_key
        self.refused = refused
        self.ways: dict[int, socket.socket] = {}
        self.channels: tuple[paramiko.Channel, ...] = ()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        ours = username == place.LOGIN and hmac.compare_digest(key.asbytes(), self.user_key)
        return AUTH_SUCCESSFUL if ours and not self.refused else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED if kind == "session" else OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        # a short command must not end, and close its channel, before the answer that it was started
        answered = threading.Event()
        transport = channel.get_transport()
        assert isinstance(transport, Connection)
        transport.waiting.append(answered)
        threading.Thread(target=self._run, args=(channel, command, answered), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: bytes, answered: threading.Event) -> None:
        answered.wait(REPLY_SECONDS)
        commands.run(self.folder, channel, command)

    def check_channel_env_request(self, channel: paramiko.Channel, name: bytes, value: bytes) -> bool:
        return False

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        listener = ports.at(self.folder, *destination)
        if listener is None:
            return OPEN_FAILED_CONNECT_FAILED
        ours, theirs = socket.socketpair()
        if listener.real is not None:
            try:
                theirs.close()
                ours.close()
                ours = socket.create_connection(("127.0.0.1", listener.real), 5)
            except OSError:
                # as Docker's proxy does while nothing listens in the container: it accepts, and hangs up
                ours, theirs = socket.socketpair()
        theirs.close()
        self.ways[chanid] = ours
        return OPEN_SUCCEEDED

    def opened(self, channel: paramiko.Channel) -> None:
        """A channel is open; one to a port starts to carry."""
        # paramiko closes a channel that nobody holds, and the request for its command may still be on its way
        self.channels = (*(each for each in self.channels if not each.closed), channel)
        way = self.ways.pop(channel.get_id(), None)
        if way is None:
            return
        way.settimeout(None)
        for carry in (_there, _back):
            threading.Thread(target=carry, args=(channel, way), daemon=True).start()


def _there(channel: paramiko.Channel, way: socket.socket) -> None:
    try:
        while received := channel.recv(1 << 16):
            way.sendall(received)
        way.shutdown(socket.SHUT_WR)
    except (OSError, EOFError):
        channel.close()


def _back(channel: paramiko.Channel, way: socket.socket) -> None:
    try:
        while received := way.recv(1 << 16):
            channel.sendall(received)
    except (OSError, EOFError):
        pass
    finally:
        # the port hung up: nothing can be said to it any more
        channel.close()
        way.close()
