"""A TCP relay that delays: `python benchmarks/relay.py RTT-MS HOST:PORT...` prints the loopback port of each target.

A kernel without netem has no other way to a distant host. The relay stands for the line: what is sent takes half a
round trip, and a new connection waits one round trip more, as for SYN and its answer. It never limits throughput: any
amount may be under way. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress

CHUNK = 1 << 18


Pieces = asyncio.Queue[tuple[float, bytes]]


async def collect(reader: asyncio.StreamReader, under_way: Pieces, seconds: float) -> None:
    """Take all that comes, due `seconds` later; the end is an empty piece."""
    loop = asyncio.get_running_loop()
    received = b"-"
    while received:
        try:
            received = await reader.read(CHUNK)
        except OSError:
            received = b""
        under_way.put_nowait((loop.time() + seconds, received))


async def deliver(under_way: Pieces, writer: asyncio.StreamWriter) -> None:
    """Pass on each piece when it is due, and the end as well."""
    loop = asyncio.get_running_loop()
    while True:
        due, piece = await under_way.get()
        await asyncio.sleep(due - loop.time())
        if not piece or writer.is_closing():
            break
        writer.write(piece)
    writer.close()


async def connected(
    host: str, port: int, rtt: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One connection: the client would know of it only now, and the server half a round trip later."""
    await asyncio.sleep(rtt)
    up, down = Pieces(), Pieces()
    collecting = asyncio.create_task(collect(reader, up, rtt / 2))
    await asyncio.sleep(rtt / 2)
    try:
        far_reader, far_writer = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(collecting, collect(far_reader, down, rtt / 2), deliver(up, far_writer), deliver(down, writer))


async def serve(rtt: float, targets: Sequence[str]) -> None:
    """Listen for each target, print the ports in the order of the targets, and stay until standard input ends."""
    servers = [await _listen(rtt, *target.rsplit(":", 1)) for target in targets]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for server in servers:
        server.close()


async def _listen(rtt: float, host: str, port: str) -> asyncio.Server:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # those that are open at the end end with the relay, and asyncio would complain of each
        with suppress(asyncio.CancelledError):
            await connected(host, int(port), rtt, reader, writer)

    return await asyncio.start_server(accept, "127.0.0.1", 0)


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) / 1000, sys.argv[2:]))
