"""Passes TCP connections on, each piece a while later: a long line, since netem is not everywhere.

`python -m tests.geo.delay MS LISTEN TARGET [LISTEN TARGET ...]`. SIGUSR1 turns the delay on (it is
at first), SIGUSR2 off. Throughput is not its business: pieces travel side by side.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress

PIECE_BYTES = 64 * 1024
PIECES_MAX = 4096  # on their way at once


class Line:
    """How long a piece takes now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self._long_seconds = seconds

    def lengthen(self) -> None:
        self.seconds = self._long_seconds

    def shorten(self) -> None:
        self.seconds = 0.0


async def one_way(line: Line, near: asyncio.StreamReader, far: asyncio.StreamWriter) -> None:
    """All that comes from one side goes to the other, in order and later; then the end does."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_MAX)

    async def send() -> None:
        while True:
            due_seconds, piece = await pieces.get()
            await asyncio.sleep(due_seconds - loop.time())
            if not piece:
                return
            far.write(piece)
            await far.drain()

    sending = asyncio.create_task(send())
    with suppress(OSError):
        while piece := await near.read(PIECE_BYTES):
            if sending.done():
                break
            await pieces.put((loop.time() + line.seconds, piece))
    if not sending.done():
        await pieces.put((loop.time() + line.seconds, b""))
    with suppress(OSError):
        await sending
    far.close()


async def serve(line: Line, listen: str, target: str) -> asyncio.Server:
    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(one_way(line, reader, far_writer), one_way(line, far_reader, writer))

    host, _, port = listen.rpartition(":")
    return await asyncio.start_server(passed, host, int(port))


async def main(words: list[str]) -> None:
    line = Line(float(words[0]) / 1000)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, line.lengthen)
    loop.add_signal_handler(signal.SIGUSR2, line.shorten)
    servers = [await serve(line, *pair) for pair in zip(words[1::2], words[2::2], strict=True)]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
