"""A connection that is closed while its server is away ends at once, whatever it was just doing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from streams.jetstream import Connection, connect
from streams.nats_server import NatsServer

CONNECTIONS = 40
CLOSE_SECONDS_MAX = 5.0


def test_closing_never_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    server = NatsServer.start(tmp_path / "nats")
    try:
        asyncio.run(_closed_at_all_moments(server))
    finally:
        server.stop()


async def _closed_at_all_moments(server: NatsServer) -> None:
    """The client swallows a cancellation while it connects: who was met there hung for ever."""
    connections = [await connect(server.url, f"c{number}") for number in range(CONNECTIONS)]
    await asyncio.to_thread(server.kill)
    await asyncio.gather(*(_close(one, 0.05 * place) for place, one in enumerate(connections)))


async def _close(connection: Connection, after_seconds: float) -> None:
    await asyncio.sleep(after_seconds)
    async with asyncio.timeout(CLOSE_SECONDS_MAX):
        await connection.close()
