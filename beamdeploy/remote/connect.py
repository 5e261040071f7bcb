"""From a host of the inventory to an open, authenticated SSH connection, through bastions where there are any."""

from __future__ import annotations

import errno
import importlib
import logging
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from beamdeploy.errors import UNREACHABLE, HostError, Problem
from beamdeploy.inventory import Host
from beamdeploy.remote.dialling import NoHostName, connected
from beamdeploy.remote.gates import Gates
from beamdeploy.remote.keys import KeyAuth
from beamdeploy.remote.known_hosts import HostKeyCheck, algorithms, known_keys
from beamdeploy.remote.ssh import SshSession
from beamdeploy.remote.ssh_config import Target, config_lines, parse_hop, resolve

KEEPALIVE = 15
CHANNEL_TIMEOUT = 15
TRIES = 4
DEEPEST = 8


def connect(host: Host, *, accept_new: bool, timeout: int, gates: Gates) -> SshSession:
    """An open session; dropped connections are tried again, refusals are not. HostError (exit UNREACHABLE)."""
    # the import costs 200 ms, which the network's own waits hide
    imports = threading.Thread(target=importlib.import_module, args=("fabric",), name="import fabric")
    imports.start()
    target = resolve(host, config_lines(host))
    notes: list[str] = []
    way = _Way(host, accept_new, timeout, notes.append, imports.join)
    bastion = target.proxy_jump[0] if target.proxy_jump else None
    try:
        return _opened(way, target, bastion, gates, notes)
    except HostError as error:
        gates.failed(bastion, error)
        raise


def _opened(way: _Way, target: Target, bastion: str | None, gates: Gates, notes: list[str]) -> SshSession:
    host = way.host
    for pause in pauses():
        try:
            with gates.through(bastion, host.name):
                links = tuple(way.links(target, f"{host.name}: connect", ()))
            return SshSession(host, links, tuple(notes))
        except _Failure as failure:
            if pause is None or not failure.dropped:
                raise HostError(failure.problem, exit=UNREACHABLE) from failure.__cause__
        # not inside the gate: others may pass meanwhile
        time.sleep(pause)
    raise AssertionError("the last pause is None")


def pauses() -> Iterator[float | None]:
    """Seconds before the next try, growing and varied so that many hosts do not come back at once; None: give up."""
    for number in range(TRIES - 1):
        yield 0.4 * 2.5**number * random.uniform(0.5, 1.5)
    yield None


class _Failure(Exception):
    """One try failed; `dropped`: the other side hung up before it said anything, so that another try may do."""

    def __init__(self, problem: Problem, *, dropped: bool) -> None:
        super().__init__(problem.what)
        self.problem = problem
        self.dropped = dropped


@dataclass(frozen=True)
class Link:
    """A Fabric connection and the socket below it, which is a channel of the bastion where there is one."""

    connection: Any
    socket: Any

    def close(self) -> None:
        """Without the shutdown, paramiko's thread sees the end only at its next look, 0.1 s later."""
        if isinstance(self.socket, socket.socket):
            _quietly(lambda: self.socket.shutdown(socket.SHUT_RDWR))
        _quietly(self.connection.client.close)
        _quietly(self.socket.close)


def _quietly(close: Callable[[], None]) -> None:
    # an error: the other side was faster
    with suppress(OSError, EOFError):
        close()


@dataclass(frozen=True)
class _Way:
    """What all links of one way to a host share."""

    host: Host
    accept_new: bool
    timeout: int
    note: Callable[[str], None]
    imported: Callable[[], None]

    def links(self, target: Target, where: str, inner: tuple[str, ...]) -> Iterator[Link]:
        """The links to a target, the nearest first; `inner`: the targets beyond this one."""
        if len(inner) > DEEPEST:
            raise HostError(Problem(f"the bastions go in circles: {', '.join(inner)}", where=where), exit=UNREACHABLE)
        if not target.proxy_jump:
            yield self._open(target, where, lambda: dial(target, self.timeout))
            return
        bastion = self._bastion(target)
        before: list[Link] = []
        try:
            for link in self.links(bastion, f"{self.host.name}: connect: bastion {bastion}", (str(target), *inner)):
                before.append(link)
            gate = before[-1].connection.transport
            last = self._open(target, where, lambda: _through(gate, target, self.timeout))
        except BaseException:
            for link in reversed(before):
                link.close()
            raise
        yield from (*before, last)

    def _bastion(self, target: Target) -> Target:
        """The last bastion before a target; one that the inventory names is opened with the inventory's key."""
        user, address, port = parse_hop(target.proxy_jump[-1])
        key = self.host.identity_file if self.host.proxy_jump else None
        host = Host(name=address, user=user, port=port, known_hosts=self.host.known_hosts, identity_file=key)
        bastion = resolve(host, config_lines(host))
        return replace(bastion, proxy_jump=target.proxy_jump[:-1] or bastion.proxy_jump)

    def _open(self, target: Target, where: str, reach: Callable[[], Any]) -> Link:
        """One link. _Failure; HostError: host key or authentication, which no second try mends."""
        start = time.monotonic()
        try:
            sock = reach()
            self.imported()
            return self._authenticate(target, where, sock)
        except HostError as error:
            raise HostError(error.problems[0], exit=error.exit, final=True) from error
        except (OSError, EOFError, _ssh_exception()) as error:
            # paramiko says silence in the words of a hang-up, or as "No existing session"
            late = isinstance(error, _ssh_exception()) and time.monotonic() - start >= self.timeout
            problem = explain(TimeoutError() if late else error, target, where, self.timeout)
            raise _Failure(problem, dropped=was_dropped(error) and not late) from error

    def _authenticate(self, target: Target, where: str, sock: Any) -> Link:
        from fabric import Config, Connection
        from paramiko import SSHConfig, Transport

        # without a handler of its own, paramiko's tracebacks would go to stderr
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
        keys = known_keys(target.host_key_name, target.known_hosts)

        def transport(sock: Any, **options: Any) -> Transport:
            made = Transport(sock, **options)
            wanted = made.get_security_options()
            wanted.key_types = algorithms(keys, wanted.key_types)
            return made

        connection = Connection(
            target.hostname,
            user=target.user,
            port=target.port,
            connect_timeout=self.timeout,
            # lazy, and an ssh configuration of our own: no ~/.fabric.*, /etc/fabric.* or second reading of ~/.ssh
            config=Config(lazy=True, ssh_config=SSHConfig()),
            # a new mapping a connection: Fabric writes into it
            connect_kwargs={
                "sock": _prompt(sock),
                "transport_factory": transport,
                "auth_strategy": KeyAuth(target, where),
                "banner_timeout": self.timeout,
                "auth_timeout": self.timeout,
                "channel_timeout": CHANNEL_TIMEOUT,
            },
        )
        connection.client.set_missing_host_key_policy(HostKeyCheck(target, where, keys, self.accept_new, self.note))
        link = Link(connection, sock)
        try:
            connection.open()
        except BaseException:
            link.close()
            raise
        connection.transport.set_keepalive(KEEPALIVE)
        return link


def _ssh_exception() -> type[Exception]:
    # Every thread begins with fabric: paramiko's modules import each other in circles, and two threads that enter them
    # at different places at once see them half made.
    importlib.import_module("fabric")
    from paramiko import SSHException

    return SSHException


def dial(target: Target, timeout: int) -> socket.socket:
    """A connected socket to a target, or to its ProxyCommand. OSError."""
    if target.proxy_command is not None:
        return _through_command(target.proxy_command)
    sock = connected(target.hostname, target.port, timeout)
    # Nagle's algorithm costs a command 45 ms, measured with Paramiko on loopback
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # paramiko's keepalive asks and never looks whether an answer came: let the kernel see that the peer vanished
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2 * KEEPALIVE * 1000)
    return sock


@dataclass(frozen=True)
class _Prompt:
    """A TCP socket that acknowledges what it received at once.

    sshd holds its next words back until its last ones are acknowledged, and the kernel takes 40 ms for that: the first
    command of a connection on loopback took 45 ms, and takes 5.
    """

    socket: socket.socket

    def recv(self, size: int) -> bytes:
        received = self.socket.recv(size)
        if received:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return received

    def __getattr__(self, name: str) -> Any:
        return getattr(self.socket, name)


def _prompt(sock: Any) -> Any:
    is_tcp = isinstance(sock, socket.socket) and sock.family != socket.AF_UNIX
    return _Prompt(sock) if is_tcp and hasattr(socket, "TCP_QUICKACK") else sock


def _through_command(command: str) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    # it ends when our end closes; somebody has to ask for its status, or it stays a zombie
    threading.Thread(target=process.wait, name="ProxyCommand", daemon=True).start()
    return ours


def _through(gate: Any, target: Target, timeout: int) -> Any:
    return gate.open_channel("direct-tcpip", (target.hostname, target.port), ("127.0.0.1", 0), timeout=timeout)


def was_dropped(error: Exception) -> bool:
    """The other side hung up before the host key was seen: too many connections at once, in most cases."""
    from paramiko import ChannelException

    if isinstance(error, ChannelException):
        return error.code == 2  # "Connect failed", as a crowded bastion says
    text = str(error)
    hung_up = isinstance(error, ConnectionResetError | BrokenPipeError | EOFError)
    return hung_up or "protocol banner" in text or "reset by peer" in text


def explain(error: Exception, target: Target, where: str, timeout: int) -> Problem:
    """What prevented a connection, and what to do."""
    what, remedy = _reason(error, target, timeout)
    return Problem(f"{target}: {what}", remedy, where=where)


def _reason(error: Exception, target: Target, timeout: int) -> tuple[str, str]:
    from paramiko import ChannelException

    place = f"port {target.port} of {target.hostname}"
    if isinstance(error, NoHostName):
        return (
            f"the name {target.hostname!r} is no host name",
            "correct `address` in the inventory, or HostName in the ssh configuration",
        )
    if isinstance(error, socket.gaierror):
        remedy = "set `address` in the inventory, or HostName for this alias in the ssh configuration"
        return f"the name {target.hostname!r} does not resolve (after the ssh configuration)", remedy
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on {place}", "check `port`, and that sshd runs there"
    if isinstance(error, TimeoutError):
        return f"no answer from {place} within {timeout} s", "check `address`, firewalls, and that the host is up"
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"no route to {target.hostname}", "check `address`, the network or VPN, and that the host is up"
    if isinstance(error, ChannelException) and error.code == 1:
        return f"the bastion forbids to go on to {place}", "set AllowTcpForwarding yes in the bastion's sshd_config"
    if isinstance(error, ChannelException):
        return f"the bastion cannot reach {place} ({error.text})", "check that the host is up, as seen from the bastion"
    if was_dropped(error):
        remedy = (
            "too many connections at once (sshd's MaxStartups), a firewall, or no SSH server: lower the number of forks"
        )
        return f"{place} hung up before it identified itself, {TRIES} times", remedy
    return f"{str(error) or type(error).__name__}", "try `ssh -v` to the same host"
