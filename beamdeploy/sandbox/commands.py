"""A command of an SSH channel as a real process: its own group, pipes to the channel, and its end told as sshd does."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from typing import IO

import paramiko
from paramiko.common import cMSG_CHANNEL_REQUEST

from beamdeploy.sandbox import groups, place

CHUNK = 1 << 15


def run(folder: str, channel: paramiko.Channel, command: bytes) -> None:
    """Run a command by /bin/sh and carry what it reads and says; the channel's end is its end."""
    lock = os.path.join(folder, place.JOBS, f"{os.urandom(8).hex()}.lock")
    try:
        process = groups.start(
            ("/bin/sh", "-c", os.fsdecode(command)),
            lock,
            env=environment(folder),
            cwd=os.path.join(folder, place.HOME),
            stdin=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        _end(channel, 126, f"sandbox: {error}\n")
        return
    try:
        _carry(channel, process, lock)
    finally:
        with suppress(OSError):
            os.unlink(lock)


def environment(folder: str) -> dict[str, str]:
    """What a login to the sandbox has: its own programs first, the machine's own after them."""
    own = os.path.join(folder, place.BIN)
    path = os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    return {
        "PATH": f"{own}:{path}",
        "HOME": os.path.join(folder, place.HOME),
        "TMPDIR": os.path.join(folder, place.TMP),
        # /run/lock is the machine's, and one for all its sandboxes
        "BEAMDEPLOY_LOCK_DIR": os.path.join(folder, place.LOCKS),
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/sh",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }


def _carry(channel: paramiko.Channel, process: subprocess.Popen[bytes], lock: str) -> None:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    carriers = [
        threading.Thread(target=_out, args=(process.stdout, channel.sendall), daemon=True),
        threading.Thread(target=_out, args=(process.stderr, channel.sendall_stderr), daemon=True),
    ]
    over = threading.Event()
    for carrier in (*carriers, threading.Thread(target=_in, args=(channel, process.stdin, lock, over), daemon=True)):
        carrier.start()
    code = process.wait()
    for carrier in carriers:
        carrier.join()
    over.set()
    process.stdout.close()
    process.stderr.close()
    _end(channel, code)


def _out(pipe: IO[bytes], send: object) -> None:
    """Carry one stream. A client that is gone does not stop the process from ending."""
    assert callable(send)
    listening = True
    while said := os.read(pipe.fileno(), CHUNK):
        if listening:
            try:
                send(said)
            except (OSError, EOFError, paramiko.SSHException):
                listening = False


def _in(channel: paramiko.Channel, pipe: IO[bytes], lock: str, over: threading.Event) -> None:
    """Carry stdin to its end; when the whole channel closes, the group is hung up."""
    with suppress(OSError, EOFError), pipe:
        while received := channel.recv(CHUNK):
            pipe.write(received)
    while not over.wait(0.1):
        if channel.closed or not channel.get_transport().is_active():
            groups.kill(lock, signal.SIGHUP)
            groups.kill(lock, signal.SIGCONT)
            return


def _end(channel: paramiko.Channel, code: int, text: str = "") -> None:
    """Tell how the command ended, and close."""
    with suppress(OSError, EOFError, paramiko.SSHException):
        if text:
            channel.sendall_stderr(text.encode())
        if code >= 0:
            channel.send_exit_status(code)
        else:
            _send_exit_signal(channel, -code)
        channel.shutdown_write()
    channel.close()


def _send_exit_signal(channel: paramiko.Channel, number: int) -> None:
    """RFC 4254, 6.10; paramiko has no call for it."""
    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("exit-signal")
    message.add_boolean(False)
    message.add_string(signal.Signals(number).name.removeprefix("SIG"))
    message.add_boolean(False)
    message.add_string("")
    message.add_string("")
    channel.get_transport()._send_user_message(message)  # type: ignore[attr-defined]  # as send_exit_status does
