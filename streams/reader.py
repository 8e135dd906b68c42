"""Reading by a consumer that somebody else made: it gives what it was made for, from anywhere.

Two lives of one learner may read by it at once, and each sets it back under the other's hands. So
it allows one request at a time, a request is made just after it was set back to the last record
that is known, and must give that record first: whatever another life does in between then shows
in the numbers or in the first record, and nothing is passed over in silence.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from streams.codec import digest_of
from streams.connection import Wire
from streams.errors import ServerUnreachable
from streams.known_end import altered
from streams.link import Link, Mailbox, Message, Silent
from streams.pull import ASK, Pulled, numbers_of
from streams.times import FOLLOW_SECONDS, READ_SECONDS, READER_PAUSE_SECONDS_MAX, RESET_SECONDS

WAITING_MAX = 1  # requests that a reader takes at once: part of what makes it sound
READ_TRIES = 5

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer's place."""

    wire: Wire
    stream: str
    name: str


async def follow(
    reader: Reader, on_open: Callable[[int], Awaitable[None]]
) -> AsyncGenerator[Pulled, None]:
    """All that a reader gives, from the stream's first record on, in order, none twice.

    The first record must be one that this reader gives. Raises Declined (no such reader),
    PermissionDenied, ChainBroken for a stream that was altered, and Trouble once the wire is
    closed.
    """
    cursor, held = 0, b""
    while True:
        try:
            link = await reader.wire.link(None)
            mailbox = await _ask(link, reader, max(cursor, 1), ASK, FOLLOW_SECONDS)
            try:
                await on_open(cursor)
                async for pulled in _given(mailbox, max(cursor, 1)):
                    if pulled.sequence > cursor:
                        cursor, held = pulled.sequence, pulled.payload
                        yield pulled
                    elif pulled.sequence == cursor and pulled.payload != held:
                        expected, found = digest_of(held), digest_of(pulled.payload)
                        raise altered(reader.stream, cursor, expected, found)
            finally:
                await link.hang_up(mailbox)
        except ServerUnreachable:  # of two lives neither shall always be the quicker one
            await asyncio.sleep(random.uniform(0.0, READER_PAUSE_SECONDS_MAX))


async def read(reader: Reader, after: int, limit: int) -> list[Pulled]:
    """What a reader gives of the records after a sequence, up to `after + limit`.

    Raises Silent when another life reads by it at the same time, again and again.
    """
    for attempt in range(READ_TRIES):
        try:
            return await _read(await reader.wire.link(), reader, after, limit)
        except Silent:
            if attempt + 1 == READ_TRIES:
                raise
        await asyncio.sleep(0.05 * attempt)
    raise AssertionError("a read ends in records or an error")


async def _read(link: Link, reader: Reader, after: int, limit: int) -> list[Pulled]:
    waiting = await _set_back(link, reader, after + 1)
    wanted = min(waiting, limit)
    found: list[Pulled] = []
    if not wanted:
        return found
    mailbox = await _request(link, reader, wanted, READ_SECONDS)
    try:
        for number in range(1, wanted + 1):
            message = await mailbox.take(READ_SECONDS)
            if message is None or _is_status(message.subject, mailbox):
                raise Silent(f"{reader.name} does not give what it has")
            sequence, counted, pending = numbers_of(message.reply)
            if counted != number or pending < waiting - number:  # it only grows by what is new
                raise Silent(f"another life reads by {reader.name}")
            if sequence > after + limit:
                break
            found.append(Pulled(sequence, message.subject, message.data))
        return found
    finally:
        await link.hang_up(mailbox)


async def _ask(link: Link, reader: Reader, first: int, batch: int, seconds: float) -> Mailbox:
    await _set_back(link, reader, first)
    return await _request(link, reader, batch, seconds)


async def _set_back(link: Link, reader: Reader, first: int) -> int:
    """Sets a reader back to a sequence; how many messages it then has to give.

    Where there is no such reader nobody answers; then it is asked about, which is answered.
    """
    name = f"{reader.stream}.{reader.name}"
    try:
        answer = await link.api(f"CONSUMER.RESET.{name}", {"seq": first}, RESET_SECONDS)
    except Silent:
        await link.api(f"CONSUMER.INFO.{name}")
        raise
    return int(answer.get("num_pending", 0))


async def _request(link: Link, reader: Reader, batch: int, seconds: float) -> Mailbox:
    subject = f"{link.door.api}.CONSUMER.MSG.NEXT.{reader.stream}.{reader.name}"
    mailbox = await link.listen(f"{link.client.new_inbox()}.*", batch + 1)
    mailbox.waits_for.add(subject.lower())
    body = {
        "batch": batch,
        "expires": int(seconds * _SECOND),  # no heartbeats: with them a refusal is not told
    }
    reply = mailbox.subject.replace("*", "1")
    await link.publish(Message(subject, json.dumps(body).encode()), reply)
    return mailbox


async def _given(mailbox: Mailbox, first: int) -> AsyncGenerator[Pulled, None]:
    """What one request brings, until it has expired; Silent once something is not as it must be."""
    taken = 0
    while taken < ASK:
        message = await mailbox.take(FOLLOW_SECONDS + READ_SECONDS)
        if message is None:
            raise Silent("a request was lost")
        if _is_status(message.subject, mailbox):
            if (message.headers or {}).get("Status") == "408":
                return
            raise Silent("another life's request stands before ours")
        sequence, number, _ = numbers_of(message.reply)
        taken += 1
        if number != taken or (taken == 1 and sequence != first):
            raise Silent("another life reads by this reader, too")
        yield Pulled(sequence, message.subject, message.data)


def _is_status(subject: str, mailbox: Mailbox) -> bool:
    return subject.startswith(mailbox.subject.removesuffix("*"))
