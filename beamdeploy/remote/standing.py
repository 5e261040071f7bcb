"""Whether a link stands still: what was sent is not acknowledged, as where a cable is out or a laptop sleeps."""

from __future__ import annotations

import socket
import struct
from typing import Any

# of Linux' struct tcp_info, <linux/tcp.h>: eight bytes, then words
_UNACKED, _SINCE_LAST_ACK_MS = 24, 56
_MOMENT_MS = 1000


def stands_still(sock: Any) -> bool:
    """Whether this side waits for the other's kernel; a host that works long does not. False: it cannot be told."""
    option = getattr(socket, "TCP_INFO", None)
    try:
        told = sock.getsockopt(socket.IPPROTO_TCP, option, 104) if option is not None else b""
        unacked, since = (struct.unpack_from("I", told, at)[0] for at in (_UNACKED, _SINCE_LAST_ACK_MS))
        return bool(unacked > 0 and since > _MOMENT_MS)
    except (OSError, struct.error, AttributeError):
        return False
