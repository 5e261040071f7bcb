"""One run at a time for a deployment or a folder on a host: a kernel lock that ends with the connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from beamdeploy.errors import FAILED, LOCKED, HostError, Problem
from beamdeploy.remote import Held, Session

BEAT = 10.0
"""Seconds between two heartbeats; the host gives up after 30 without one."""
OUTLIVES = 40.0
"""Seconds after which the lock of a connection that just vanished has ended, with room to spare."""
_TRY_AGAIN = 2.0

# The file belongs to whoever came first and is shared by all users of the host. In a sticky folder the kernel refuses
# to open another user's file with O_CREAT (fs.protected_regular), so only `[ -e ]` makes it and `9<` and dd do not.
# BEAMDEPLOY_LOCK_DIR is for hosts without /run/lock. The file goes on naming its last holder: $3 asks to be told of one
# who came in between.
_SCRIPT = """
name=$1; owner=$2; again=$3
file=${BEAMDEPLOY_LOCK_DIR:-/run/lock}/beamdeploy-$name.lock
[ -e "$file" ] || (umask 0; : > "$file") || { echo "error cannot write $file"; exit; }
[ -r "$file" ] || { echo "error cannot read $file"; exit; }
exec 9<"$file"
command -v flock >/dev/null || { echo "error there is no flock (util-linux) on the host"; exit; }
if ! flock -n 9; then read -r holder <&9; echo "busy $holder"; exit; fi
read -r before <&9
case $before in "$owner" | "") ;; *) [ -z "$again" ] || { echo "other $before"; exit; } ;; esac
printf '%s\\n' "$owner" | dd of="$file" conv=nocreat 2>/dev/null
echo held
while [ -n "$(timeout 30 head -n 1)" ]; do :; done
"""
# A folder's lock lies beside the folder, so that all who reach it by whatever path or machine (NFS) meet there. It is
# opened for writing, which NFS asks of who locks alone. Its holder removes it at the end: who then has the lock of a
# file that is no longer the one of that name tries again.
_FOLDER_SCRIPT = """
folder=$1; owner=$2
parent=$(dirname -- "$folder"); file=$parent/.${folder##*/}.lock
command -v flock >/dev/null || { echo "error there is no flock (util-linux) on the host"; exit; }
mkdir -p -- "$parent" 2>/dev/null
while :; do
  [ -e "$file" ] || (umask 0; : > "$file") 2>/dev/null || { echo "error cannot write $file"; exit; }
  [ -w "$file" ] || { echo "error cannot write $file"; exit; }
  exec 9<>"$file"
  if ! flock -n 9; then
    read -r holder <&9 || { sleep 1; read -r holder <"$file"; }
    echo "busy $holder"
    exit
  fi
  [ "$(stat -L -c %i "$file" 2>/dev/null)" != "$(stat -L -c %i /proc/self/fd/9)" ] || break
done
printf '%s\\n' "$owner" > "$file"
echo held
while [ -n "$(timeout 30 head -n 1)" ]; do :; done
"""
_REMOVE = """rm -f -- "$(dirname -- "$1")/.${1##*/}.lock" """

Say = Callable[[str, str], None]


class HostLock:
    """The held lock of one deployment on one host. It ends with its connection; `retake` takes it over another."""

    def __init__(self, held: Held, name: str, owner: str) -> None:
        self._held = held
        self._name = name
        self._owner = owner
        self._ended = threading.Event()

    def retake(self, session: Session, say: Say) -> None:
        """Take it again after the connection was lost. HostError (LOCKED): another run has it, or had it meanwhile.

        Waits for the host to notice that the lost connection is gone.
        """
        self._held.close()
        until = time.monotonic() + OUTLIVES
        while True:
            held = session.hold(_SCRIPT, (self._name, self._owner, "again"), timeout=60)
            word, _, holder = held.said.partition(" ")
            if word == "held":
                self._held = held
                return
            held.close()
            if word not in ("busy", "other"):
                raise _unlockable(holder or held.said, session)
            if holder != self._owner or time.monotonic() >= until:
                raise HostError(_overtaken(self._name, holder, session.host.name), exit=LOCKED)
            say("lock", "waiting for the end of the lost connection")
            time.sleep(_TRY_AGAIN)

    def check(self, session: Session, say: Say) -> None:
        """Before a deed: a connection that stood still for long has lost the lock, and it is taken again.

        HostError (LOCKED): another run has it, or had it meanwhile; or the connection is lost.
        """
        # what the host said of the lock's end comes before this answer
        session.run(("true",), timeout=60)
        if self._held.ended:
            say("lock", "again: the connection stood still for so long that it ended")
            self.retake(session, say)

    def beat(self) -> None:
        """Tell the host now and then that this run lives, until it is released."""
        while not self._ended.wait(BEAT):
            # an error: the connection is lost, which the next command says better
            with suppress(OSError, EOFError):
                self._held.beat()

    def release(self) -> None:
        """Let it go."""
        self._ended.set()
        self._held.close()


@contextmanager
def locked(session: Session, name: str, owner: str, *, wait: float, say: Say) -> Iterator[HostLock]:
    """Hold the lock of the deployment `name`. HostError (LOCKED): another run has it for longer than `wait` seconds."""
    with _kept(_taken(session, (_SCRIPT, name, owner), name, wait, say), name, owner) as lock:
        yield lock


@contextmanager
def locked_folder(session: Session, folder: str, owner: str, *, wait: float, say: Say) -> Iterator[None]:
    """Hold the lock of a folder that is filled. HostError (LOCKED): as above, but what this same run holds is awaited.

    Two hosts of one run may share the folder: the second then finds it filled.
    """
    with _kept(_taken(session, (_FOLDER_SCRIPT, folder, owner), folder, wait, say), folder, owner):
        try:
            yield
        finally:
            # while it is held: afterwards it may be another's. A lost connection leaves it there, and it is taken again
            with suppress(HostError):
                session.script(_REMOVE, (folder,), timeout=60)


@contextmanager
def _kept(held: Held, name: str, owner: str) -> Iterator[HostLock]:
    lock = HostLock(held, name, owner)
    threading.Thread(target=lock.beat, name="heartbeat", daemon=True).start()
    try:
        yield lock
    finally:
        lock.release()


def _taken(session: Session, asked: tuple[str, str, str], what: str, wait: float, say: Say) -> Held:
    """`asked`: script, its lock, and who asks. `what` it is that must not be worked on twice."""
    script, *args = asked
    until = time.monotonic() + wait
    while True:
        held = session.hold(script, args, timeout=60)
        word, _, rest = held.said.partition(" ")
        if word == "held":
            return held
        held.close()
        if word != "busy":
            raise _unlockable(rest or held.said, session)
        if time.monotonic() >= until and rest.partition(" since ")[0] != asked[2].partition(" since ")[0]:
            raise HostError(_busy(what, rest, session.host.name), exit=LOCKED)
        say("lock", f"waiting for {rest}")
        time.sleep(_TRY_AGAIN)


def _unlockable(why: str, session: Session) -> HostError:
    remedy = "The lock keeps two runs apart: make its folder writable, or install util-linux."
    return HostError(Problem(f"no lock can be taken: {why}", remedy, session.host.name), exit=FAILED)


def _overtaken(name: str, holder: str, host: str) -> Problem:
    whose = holder or "it does not say whose"
    what = f"the connection was lost or stood still, and another run has worked on {name} since: {whose}"
    return Problem(what, "This run has left the server alone. beamdeploy status says what runs.", f"{host}: lock")


def _busy(name: str, holder: str, host: str) -> Problem:
    return Problem(
        f"another run works on {name}: {holder or 'it does not say whose'}",
        "Wait for it, or say --lock-wait SECONDS. The lock ends with that run's connection.",
        f"{host}: lock",
    )
