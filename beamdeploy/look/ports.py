"""Who listens on the wanted TCP ports."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence

from beamdeploy.errors import Problem
from beamdeploy.look.facts import Listener
from beamdeploy.look.frames import Frame


def parse(found: Sequence[Frame], wanted: Sequence[int]) -> tuple[tuple[Listener, ...], tuple[Problem, ...]]:
    """Listeners on wanted ports; a problem where ports were wanted and none could be asked."""
    told = [frame for frame in found if frame.section in ("ports.ss", "ports.proc") and frame.exit == 0]
    listeners = [listener for frame in told for listener in _listeners(frame) if listener.port in wanted]
    if told or not wanted:
        return tuple(listeners), ()
    said = next((frame.err for frame in found if frame.section.startswith("ports.")), "") or "there is no ss"
    return (), (
        Problem(f"the listening ports could not be asked: {said.strip()}", "install iproute2 (`ss`)", rule="BD239"),
    )


def _listeners(frame: Frame) -> Iterator[Listener]:
    read = _ss if frame.section == "ports.ss" else _proc
    for line in frame.text.splitlines():
        listener = read(line)
        if listener is not None:
            yield listener


def _ss(line: str) -> Listener | None:
    cells = line.split(None, 5)
    if len(cells) < 5:
        return None
    address, _, port = cells[3].rpartition(":")
    user = re.search(r'\("([^"]*)",pid=(\d+)', cells[5] if len(cells) == 6 else "")
    # ss writes the interface of a link-local address, and "*" for both families
    plain = address.partition("%")[0].strip("[]")
    owner = (int(user[2]), user[1]) if user else (None, None)
    return Listener(plain, int(port), *owner) if port.isdigit() else None


def _proc(line: str) -> Listener | None:
    """A row of /proc/net/tcp or tcp6: the address as 32-bit words in the machine's (little) byte order."""
    cells = line.split()
    if len(cells) < 4:
        return None
    words, _, port = cells[1].partition(":")
    raw = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    return Listener(str(ipaddress.ip_address(raw)), int(port, 16))
