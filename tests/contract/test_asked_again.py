"""A question to JetStream whose hearer dies is heard by its successor; an order is given once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from streams.jetstream import Connection, connect
from streams.link import Link, Mailbox, Message, Silent
from streams.nats_server import NatsServer

CALL = "TEST.ECHO"


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[Connection, Link, Mailbox]]:
    """One who asks, and the link and the mailbox of one who may answer."""
    asker, hearer = await connect(url, "asker"), await connect(url, "hearer")
    try:
        link = await hearer.wire.link()
        heard = await link.listen(f"$JS.API.{CALL}", 10)
        await link.client.flush()
        yield asker, link, heard
    finally:
        await asker.close()
        await hearer.close()


def test_a_question_is_asked_again_until_it_is_answered(nats_server: NatsServer) -> None:
    async def story() -> None:
        async with two(nats_server.url) as (asker, link, heard):
            asking = asyncio.create_task(asker.wire.ask(CALL, {"seq": 1}))
            first, again = await heard.take(5), await heard.take(5)
            assert (again.data, again.reply) == (b'{"seq": 1}', first.reply)
            await link.publish(Message(first.reply, b'{"answer": 7}'))
            assert await asking == {"answer": 7}

    asyncio.run(story())


def test_an_order_is_given_once(nats_server: NatsServer) -> None:
    async def story() -> None:
        async with two(nats_server.url) as (asker, _, heard):
            with pytest.raises(Silent, match="within 1 s"):
                await asker.wire.api(CALL, seconds=1.2)
            assert await heard.take(1) is not None
            assert await heard.take(0.1) is None

    asyncio.run(story())
