"""`ss -Hltnp` in a sandbox: its own port table."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from beamdeploy.sandbox.ports import listeners


def main(folder: str, words: Sequence[str]) -> int:
    """The exit code."""
    for each in listeners(folder):
        address = f"[{each.address}]" if ":" in each.address else each.address
        user = f'users:(("{each.program}",pid={each.pid},fd=4))'
        peer = "[::]:*" if ":" in each.address else "0.0.0.0:*"
        sys.stdout.write(f"LISTEN 0      4096   {address}:{each.port}   {peer}    {user}\n")
    return 0
