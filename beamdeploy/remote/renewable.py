"""A `Session` whose connection can be changed for a new one while others go on holding it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from beamdeploy.remote import Held, Result, Session


class Renewable:
    """See `Session`. Whoever opened the connections closes them, too."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.host = session.host
        self.notes = session.notes

    @property
    def closed(self) -> bool:
        """See `Session.closed`."""
        return self._session.closed

    @property
    def stalled(self) -> bool:
        """See `Session.stalled`."""
        return self._session.stalled

    def renew(self, session: Session) -> None:
        """From now on use this one; the lost one is closed."""
        lost, self._session = self._session, session
        lost.close()

    def run(self, words: Sequence[str], *, timeout: int) -> Result:
        """See `Session.run`."""
        return self._session.run(words, timeout=timeout)

    def script(self, text: str, args: Sequence[str], *, timeout: int, stdin: bytes = b"") -> Result:
        """See `Session.script`."""
        return self._session.script(text, args, timeout=timeout, stdin=stdin)

    def follow(self, words: Sequence[str], line: Callable[[str], None], *, timeout: int) -> Result:
        """See `Session.follow`."""
        return self._session.follow(words, line, timeout=timeout)

    def hold(self, text: str, args: Sequence[str], *, timeout: int) -> Held:
        """See `Session.hold`."""
        return self._session.hold(text, args, timeout=timeout)

    def channel(self, port: int, address: str = "127.0.0.1", *, timeout: float = 10.0) -> socket.socket:
        """See `Session.channel`."""
        return self._session.channel(port, address, timeout=timeout)

    def listen(self, connect: Callable[[], socket.socket]) -> AbstractContextManager[int]:
        """See `Session.listen`."""
        return self._session.listen(connect)

    def close(self) -> None:
        """Close the newest one."""
        self._session.close()

    def __enter__(self) -> Renewable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
