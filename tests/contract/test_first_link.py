"""Of several servers one may hang: it takes a link and says nothing. The others are tried, too."""

from __future__ import annotations

import asyncio
import time

import pytest

from streams.errors import ServerUnreachable
from streams.jetstream import connect
from streams.nats_server import NatsServer
from streams.times import FIRST_SECONDS, OPEN_SECONDS


async def _says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def test_whoever_connects_finds_the_server_that_is_well_beside_one_that_hangs(
    nats_server: NatsServer,
) -> None:
    async def story() -> None:
        silent = await asyncio.start_server(_says_nothing, "127.0.0.1", 0)
        async with silent:
            port = silent.sockets[0].getsockname()[1]
            url = f"nats://127.0.0.1:{port},{nats_server.url}"
            for _ in range(3):  # whichever of the two is the first
                connection = await connect(url, "test")
                assert connection.wire.link_now() is not None
                await connection.close()

    asyncio.run(story())


def test_a_server_that_hangs_alone_is_named_in_time() -> None:
    async def story() -> None:
        silent = await asyncio.start_server(_says_nothing, "127.0.0.1", 0)
        async with silent:
            port = silent.sockets[0].getsockname()[1]
            begun = time.monotonic()
            with pytest.raises(ServerUnreachable, match=f"127.0.0.1:{port} .*no answer within"):
                await connect(f"nats://127.0.0.1:{port}", "test")
            assert time.monotonic() - begun < FIRST_SECONDS + 2 * OPEN_SECONDS

    asyncio.run(story())
