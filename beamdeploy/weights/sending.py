"""A server on the host that sends, for one copy; and the way to it from the host that receives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from beamdeploy.errors import HostError, Problem
from beamdeploy.remote import Held, Result, Session
from beamdeploy.weights.parts import Say, script, tail

BEAT = 10.0
UNREACHED = 41


@dataclass(frozen=True)
class Sender:
    """A server on `host` that one key may ask for one thing. `addresses`: those that it may be reached by."""

    host: Session
    port: str
    user: str
    key: str
    addresses: tuple[str, ...]


@contextmanager
def sender(source: Session, public: str, *args: str) -> Iterator[Sender]:
    """The server, for as long as it is wanted. `args`: what it sends. HostError: it cannot be."""
    work = f"{source.host.state_folder}/send"
    held = source.hold(script(), ("send", work, public, *args), timeout=60)
    word, _, rest = held.said.partition(" ")
    if word != "port":
        held.close()
        remedy = "Install openssh-server and rsync there, or stage from the hub or a folder of this machine."
        raise HostError(Problem(f"{source.host.name} cannot send: {rest or held.said}", remedy, source.host.name))
    stop = threading.Event()
    threading.Thread(target=_beat, args=(held, stop), daemon=True).start()
    port, user, kind, key, *addresses = rest.split()
    given = (source.host.address or source.host.name, *addresses)
    try:
        yield Sender(source, port, user, f"{kind} {key}", given)
    finally:
        stop.set()
        held.close()


def received(
    session: Session, at: Sender, ask: Callable[[Sequence[str]], Result], say: Say
) -> tuple[Result, str | None]:
    """What `ask` gives for the words that say where the sender is; and why that had to be through this machine.

    The host tries the way itself before anything is moved. Where there is none, both connections that are open
    anyway are joined here.
    """
    result = ask((at.port, at.user, at.key, " ".join(dict.fromkeys(at.addresses))))
    if result.exit != UNREACHED:
        return result, None
    why = f"{session.host.name} does not reach {at.host.host.name}: {tail(result.out) or 'it did not say why'}"
    say("stage", f"through this machine, since {why}")
    with session.listen(lambda: at.host.channel(int(at.port))) as port:
        return ask((str(port), at.user, at.key, "127.0.0.1")), why


def _beat(held: Held, stop: threading.Event) -> None:
    while not stop.wait(BEAT):
        with suppress(OSError, EOFError):
            held.beat()
