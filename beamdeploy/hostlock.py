"""One run at a time for a deployment on a host: a kernel lock that ends with the connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from beamdeploy.errors import FAILED, LOCKED, HostError, Problem
from beamdeploy.remote import Held, Session

BEAT = 10.0
"""Seconds between two heartbeats; the host gives up after 30 without one."""
_TRY_AGAIN = 2.0

# The file belongs to whoever came first and is shared by all users of the host. In a sticky folder the kernel refuses
# to open another user's file with O_CREAT (fs.protected_regular), so only `[ -e ]` makes it and `9<` and dd do not.
# BEAMDEPLOY_LOCK_DIR is for hosts without /run/lock.
_SCRIPT = """
name=$1; owner=$2
file=${BEAMDEPLOY_LOCK_DIR:-/run/lock}/beamdeploy-$name.lock
[ -e "$file" ] || (umask 0; : > "$file") || { echo "error cannot write $file"; exit; }
exec 9<"$file" || { echo "error cannot read $file"; exit; }
command -v flock >/dev/null || { echo "error there is no flock (util-linux) on the host"; exit; }
if ! flock -n 9; then read -r holder <&9; echo "busy $holder"; exit; fi
printf '%s\\n' "$owner" | dd of="$file" conv=nocreat 2>/dev/null
echo held
while [ -n "$(timeout 30 head -n 1)" ]; do :; done
"""


@contextmanager
def locked(session: Session, name: str, owner: str, *, wait: float, say: Callable[[str, str], None]) -> Iterator[None]:
    """Hold the lock of the deployment `name`. HostError (LOCKED): another run has it for longer than `wait` seconds."""
    held = _taken(session, name, owner, time.monotonic() + wait, say)
    stop = threading.Event()
    beats = threading.Thread(target=_beat, args=(held, stop), name="heartbeat", daemon=True)
    beats.start()
    try:
        yield
    finally:
        stop.set()
        held.close()


def _taken(session: Session, name: str, owner: str, until: float, say: Callable[[str, str], None]) -> Held:
    while True:
        held = session.hold(_SCRIPT, (name, owner), timeout=60)
        word, _, rest = held.said.partition(" ")
        if word == "held":
            return held
        held.close()
        if word != "busy":
            remedy = "The lock keeps two runs apart: make /run/lock writable, or install util-linux."
            raise HostError(
                Problem(f"no lock can be taken: {rest or held.said}", remedy, session.host.name), exit=FAILED
            )
        if time.monotonic() >= until:
            raise HostError(_busy(name, rest, session.host.name), exit=LOCKED)
        say("lock", f"waiting for {rest}")
        time.sleep(_TRY_AGAIN)


def _beat(held: Held, stop: threading.Event) -> None:
    while not stop.wait(BEAT):
        # an error: the connection is lost, which the next command says better
        with suppress(OSError, EOFError):
            held.beat()


def _busy(name: str, holder: str, host: str) -> Problem:
    return Problem(
        f"another run works on {name}: {holder or 'it does not say whose'}",
        "Wait for it, or say --lock-wait SECONDS. The lock ends with that run's connection.",
        f"{host}: lock",
    )
