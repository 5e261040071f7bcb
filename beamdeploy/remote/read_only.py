"""A `Looker`: a way to a host on which nothing but known read-only scripts can run."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence

from beamdeploy.remote import Result, Session


class ReadOnly:
    """See `Looker`. It has no `run`, `follow` or `hold`; a script whose text is not one of `texts` is refused.

    The texts are constants of this package that take what varies as arguments, so that no word of a recipe or an
    inventory becomes a command here.
    """

    __slots__ = ("_channel", "_script", "_texts", "host", "notes")

    def __init__(self, session: Session, texts: Collection[str]) -> None:
        self.host = session.host
        self.notes = session.notes
        self._script = session.script
        self._channel = session.channel
        self._texts = frozenset(texts)

    def script(self, text: str, args: Sequence[str], *, timeout: int, stdin: bytes = b"") -> Result:
        """See `Session.script`. PermissionError: the script is none of those that only look."""
        if text not in self._texts:
            raise PermissionError(f"a look may not run this script: {text[:200]}")
        return self._script(text, args, timeout=timeout, stdin=stdin)

    def channel(self, port: int, address: str = "127.0.0.1", *, timeout: float = 10.0) -> socket.socket:
        """See `Session.channel`."""
        return self._channel(port, address, timeout=timeout)
