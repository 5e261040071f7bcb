"""A TCP connection to a port of a name, where a name that can be none is an error like any other."""

from __future__ import annotations

import socket


class NoHostName(socket.gaierror):
    """The name cannot be one: an empty label, or one of more than 63 letters."""


def connected(address: str, port: int, timeout: float) -> socket.socket:
    """A connected socket. OSError, NoHostName among them."""
    try:
        return socket.create_connection((address, port), timeout)
    except UnicodeError as error:  # so Python's own encoding of names refuses it, before any resolver is asked
        raise NoHostName(socket.EAI_NONAME, f"the name {address!r} is no host name") from error
