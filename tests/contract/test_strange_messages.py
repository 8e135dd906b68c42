"""Messages that no client of ours would send, over a bare socket: readers outlive them."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing

import pytest

from streams.jetstream import connect
from streams.nats_server import NatsServer
from streams.provision import provision
from streams.pulse import Beat

STRANGE = {
    "no utf-8 in the subject": (b"\xff\xfe.\xc3", None),
    "a form feed in the subject": (b"a\x0b\x0cb.k", None),
    "a zero byte in the subject": (b"a\x00.k", None),
    "a subject of thousands of bytes": (b"a" * 3900 + b".k", None),
    "no utf-8 in the headers": (b"a.k", b"NATS/1.0\r\n\xff: \xfe\r\n\r\n"),
    "headers that are none": (b"a.k", b"N"),
    "a status that is no text": (b"a.k", b"NATS/1.0 \xff\xff\xff\r\n\r\n"),
    "a status as if nobody listened": (b"a.k", b"NATS/1.0 503\r\n\r\n"),
}


def publish(server: NatsServer, subject: bytes, headers: bytes | None, payload: bytes) -> None:
    port = int(server.url.rpartition(":")[2])
    head = b"" if headers is None else headers
    sizes = str(len(head) + len(payload)).encode()
    verb = b"PUB " if headers is None else b"HPUB "
    if headers is not None:
        sizes = str(len(head)).encode() + b" " + sizes
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n')
        line.sendall(verb + subject + b" " + sizes + b"\r\n" + head + payload + b"\r\nPING\r\n")
        heard = b""
        while b"PONG" not in heard:
            heard += line.recv(65536)


@pytest.mark.parametrize("what", STRANGE)
def test_an_inbox_is_read_beyond_a_strange_message(nats_server: NatsServer, what: str) -> None:
    tokens, headers = STRANGE[what]
    run = f"strange{list(STRANGE).index(what)}"

    async def story() -> list[bytes]:
        connection = await connect(nats_server.url, "test")
        try:
            await provision(connection, run, ["home"])
            inbox = connection.inbox(run, "home")
            await inbox.say_raw("a", "k", b"before")
            subject = f"in.{run}.home.".encode() + tokens
            await asyncio.to_thread(publish, nats_server, subject, headers, b"strange")
            await inbox.say_raw("a", "k", b"after")
            read: list[bytes] = []
            async with asyncio.timeout(20), aclosing(inbox.follow(0)) as letters:
                async for letter in letters:
                    read.append(letter.payload)
                    if letter.payload == b"after":
                        break
            return read
        finally:
            await connection.close()

    assert asyncio.run(story()) == [b"before", b"strange", b"after"]


def test_a_pulse_is_heard_beyond_a_strange_beat(nats_server: NatsServer) -> None:
    async def story() -> None:
        connection = await connect(nats_server.url, "test")
        pulse = connection.pulse("strange")
        link = await connection.wire.link()
        async with asyncio.timeout(20), aclosing(pulse.listen()) as beats:
            coming = asyncio.ensure_future(anext(beats))
            number = 0
            while not coming.done():
                number += 1
                for tokens, headers in STRANGE.values():
                    subject = b"pulse.strange." + tokens
                    await asyncio.to_thread(publish, nats_server, subject, headers, b"\xc1")
                await pulse.beat(Beat("syncer", "one", {"fence": number}))
                await asyncio.wait({coming}, timeout=0.02)
            assert (await coming).speaker == "one"
        assert await connection.wire.link() is link, "the link lived through it"
        await connection.close()

    asyncio.run(story())
