"""A port of this machine that leads to a server on a host, through an SSH session that is renewed when it is lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from beamdeploy.errors import FAILED, HostError, InputError, Problem
from beamdeploy.exchange import reached
from beamdeploy.remote import Session
from beamdeploy.served import Served

Say = Callable[[str, str], None]
"""Progress: (phase, detail)."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_CONNECT = 10.0
_BACKLOG = 128


class Link:
    """A way to a port of the host for many threads; a lost session is opened again, with longer and longer pauses."""

    def __init__(self, open_again: Callable[[], Session], session: Session, served: Served, say: Say) -> None:
        self._open_again = open_again
        self._session = session
        self._published = served.recipe.container
        self._say = say
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def channel(self) -> socket.socket:
        """A connected socket. ConnectionRefusedError: nothing listens there. HostError (FAILED): no forwarding."""
        while True:
            session = self._session
            try:
                return session.channel(self._published.port, reached(self._published.address), timeout=_CONNECT)
            except ConnectionRefusedError:
                raise
            except OSError as error:
                self._renew(session, str(error))
            except HostError as error:
                if error.exit == FAILED:
                    raise
                self._renew(session, error.problems[0].what)

    def close(self) -> None:
        """End the session; a thread that waits for a new one gives up."""
        self._closed.set()
        self._session.close()

    def _renew(self, lost: Session, why: str) -> None:
        """Another session in place of the lost one; the first thread opens it, the others wait for that."""
        with self._lock:
            if self._session is not lost:
                return
            lost.close()
            pause = _FIRST_PAUSE
            while not self._opened(why):
                if self._closed.wait(pause):
                    raise ConnectionAbortedError("the tunnel was closed")
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _opened(self, why: str) -> bool:
        if self._closed.is_set():
            raise ConnectionAbortedError("the tunnel was closed")
        self._say("reconnect", why)
        try:
            self._session = self._open_again()
        except HostError as error:
            self._say("reconnect", error.problems[0].what)
            return False
        self._say("connected", "again")
        return True


@dataclass(frozen=True)
class Tunnel:
    """An open tunnel. `port`: on 127.0.0.1 of this machine."""

    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def tunnel(link: Link, listener: socket.socket, say: Say) -> Iterator[Tunnel]:
    """Forward every connection to the listener while the context lasts."""
    threading.Thread(target=_accept, args=(link, listener, say), name="tunnel", daemon=True).start()
    try:
        yield Tunnel(listener.getsockname()[1])
    finally:
        # a thread that waits in accept() is not woken by close() alone
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        link.close()


def listen(port: int | None, preferred: int) -> socket.socket:
    """A listener on 127.0.0.1: `port`, else the preferred one, else a free one. InputError: `port` cannot be had."""
    for wanted in (preferred, 0) if port is None else (port,):
        try:
            return socket.create_server(("127.0.0.1", wanted), backlog=_BACKLOG)
        except OSError as error:
            why = error.strerror or str(error)
    raise InputError([Problem(f"--port {port} cannot be opened on 127.0.0.1: {why}", "Give another, or 0 for any.")])


def check(link: Link, served: Served) -> Problem | None:
    """A warning when nothing listens on the host yet. HostError: sshd forbids forwarding."""
    try:
        link.channel().close()
    except ConnectionRefusedError:
        what = f"nothing listens on {served.place} of the host yet"
        return Problem(what, "The tunnel waits for it; beamdeploy status says what runs.", level="warning")
    return None


def _accept(link: Link, listener: socket.socket, say: Say) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # closed
        threading.Thread(target=_forward, args=(link, client, say), name="forward", daemon=True).start()


def _forward(link: Link, client: socket.socket, say: Say) -> None:
    """One connection, until both sides have ended."""
    with client:
        try:
            server = link.channel()
        except ConnectionAbortedError:
            return
        except OSError as error:
            say("refused", str(error))
            return
        except HostError as error:
            say("refused", error.problems[0].what)
            return
        with server:
            back = threading.Thread(target=_pump, args=(server, client), name="back", daemon=True)
            back.start()
            _pump(client, server)
            back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """All that comes, then the end of it. One side that breaks ends the other."""
    try:
        source.settimeout(None)
        while received := source.recv(1 << 16):
            sink.sendall(received)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
