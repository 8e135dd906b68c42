"""Reading a stream as it grows: a pull consumer of our own, made anew wherever it was lost.

Knows streams and sequences; not what lies in them. The consumer keeps no state worth having (in
memory, no acknowledgements): the reader's cursor is the truth.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from streams.connection import Wire
from streams.errors import ServerUnreachable, Trouble
from streams.link import Link, Mailbox, Message, Silent
from streams.times import (
    EXPIRES_SECONDS,
    HEARTBEAT_SECONDS,
    INACTIVE_SECONDS,
    PULL_PAUSE_SECONDS_MAX,
    SILENCE_SECONDS_MAX,
)

ASK = 500  # records a request; two requests are kept open
MAILBOX_MESSAGES_MAX = 4 * ASK  # what two requests can bring, and statuses


@dataclass(frozen=True, slots=True)
class Pulled:
    """A message as it lies in a stream."""

    sequence: int
    subject: str
    payload: bytes


async def pull(
    wire: Wire,
    stream: str,
    after: int,
    filters: Sequence[str] = (),
    on_open: Callable[[], Awaitable[None]] | None = None,
    region: str = "",
) -> AsyncGenerator[Pulled, None]:
    """Messages after a sequence as they come, in order, none twice, without end.

    Rides over lost connections and restarted servers. The consumer's own numbering shows whether
    anything was lost on the way, also for a filtered reader; then the consumer is made anew at
    the cursor. `on_open` is awaited whenever that has happened, before anything is yielded: a
    stream that was made again, or lost its end, shows there only. `region`: whose JetStream domain
    the stream is in, where it is not the server's own. Raises Declined (stream not
    found), PermissionDenied, and Trouble once the wire is closed.
    """
    cursor, pause_seconds = after, 0.0
    while True:
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds + 0.02, PULL_PAUSE_SECONDS_MAX)
        consumer = await _open(wire, stream, region, _settings(cursor, filters))
        if consumer is None:
            continue
        try:
            if on_open is not None:
                await on_open()
            while (pulled := await consumer.take()) is not None:
                assert pulled.sequence > cursor
                cursor, pause_seconds = pulled.sequence, 0.0
                yield pulled
        except ServerUnreachable:
            continue
        finally:
            await consumer.drop()


class _Consumer:
    """One consumer on one link, with two requests open."""

    def __init__(self, link: Link, api: str, place: str, mailbox: Mailbox) -> None:
        self._link = link
        self._next = f"{api}.CONSUMER.MSG.NEXT.{place}"
        self._delete = f"{api}.CONSUMER.DELETE.{place}"
        self._inbox = mailbox.subject.removesuffix(".*")
        self._mailbox = mailbox
        mailbox.waits_for.add(self._next.lower())
        self._owed = 0  # messages that the open requests may still bring
        self._asks = 0
        self._taken = 0

    async def take(self) -> Pulled | None:
        """The next message; None when this consumer is of no more use."""
        while True:
            while self._owed <= ASK:
                await self._ask()
            message = await self._mailbox.take(SILENCE_SECONDS_MAX)
            if message is None:
                return None
            if not message.subject.startswith(self._inbox):  # a status comes on our own subject
                return self._counted(message)
            if not self._goes_on(message):
                return None

    async def drop(self) -> None:
        """Lets the server forget the consumer now; it would do so by itself later."""
        try:
            await self._link.hang_up(self._mailbox)
            if not self._link.ended.is_set():
                await self._link.publish(Message(self._delete, b""))
        except Trouble:
            return

    async def _ask(self) -> None:
        body = {
            "batch": ASK,
            "expires": EXPIRES_SECONDS.nanoseconds,
            "idle_heartbeat": HEARTBEAT_SECONDS.nanoseconds,
        }
        self._asks += 1
        self._owed += ASK
        await self._link.publish(
            Message(self._next, json.dumps(body).encode()), f"{self._inbox}.{self._asks}"
        )

    def _goes_on(self, message: Msg) -> bool:
        """Whether the consumer lives on after this status (heartbeat, or a request that ended)."""
        headers = message.headers or {}
        status = headers.get("Status", "")
        if status == "100":
            return True
        pending = headers.get("Nats-Pending-Messages", "")
        if status == "408" and pending.isdigit():
            self._owed -= int(pending)
            return True
        return False  # 404, 409, 503: deleted, moved, shut down, unknown

    def _counted(self, message: Msg) -> Pulled | None:
        """The message, if it is the one that follows in the consumer's own numbering."""
        sequence, number, _ = numbers_of(message.reply)
        self._owed -= 1
        self._taken += 1
        if number != self._taken:
            return None
        return Pulled(sequence, message.subject, message.data)


def numbers_of(reply: str) -> tuple[int, int, int]:
    """Stream sequence, consumer sequence and messages left, from an acknowledgement subject.

    `$JS.ACK.stream.consumer.delivered.stream_seq.consumer_seq.time.pending`, or with a domain
    and an account hash before the stream, and perhaps a token at the end.
    """
    tokens = reply.split(".")
    first = 5 if len(tokens) == 9 else 7
    return int(tokens[first]), int(tokens[first + 1]), int(tokens[first + 3])


async def _open(wire: Wire, stream: str, region: str, settings: dict[str, Any]) -> _Consumer | None:
    """A new consumer with these settings; None if it could not be made just now."""
    link = await wire.link(None)
    name = settings["name"]
    try:
        mailbox = await link.listen(f"{link.client.new_inbox()}.*", MAILBOX_MESSAGES_MAX)
    except Silent:
        return None
    opened = False
    try:
        body = {"stream_name": stream, "config": settings}
        await link.ask(f"CONSUMER.CREATE.{stream}.{name}", body, region)
        opened = True
    except Silent:
        return None
    finally:
        if not opened:
            await link.hang_up(mailbox)
    return _Consumer(link, link.api_of(region), f"{stream}.{name}", mailbox)


def _settings(cursor: int, filters: Sequence[str]) -> dict[str, Any]:
    """A consumer that begins after the cursor."""
    config: dict[str, Any] = {
        "name": secrets.token_hex(8),
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": cursor + 1,
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": INACTIVE_SECONDS.nanoseconds,
    }
    if filters:
        config["filter_subjects"] = list(filters)
    return config
