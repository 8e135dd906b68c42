"""The tape as those see it who live outside the run's account (`streams.permissions`).

A learner reads its own part by two consumers that were made for it: it can neither make one nor
choose what one gives. An evaluator and a viewer read all records, one request each, and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NoReturn

from streams import reader
from streams.connection import Wire
from streams.envelope import Envelope
from streams.errors import PermissionDenied, ServerUnreachable, StreamMissing
from streams.jetstream_tape import JetStreamTape, envelope_at
from streams.known_end import KnownEnd
from streams.link import Declined
from streams.permissions import Identity, readers_of
from streams.tape import BATCH_MAX, Outcome
from streams.times import LOOK_SECONDS

CONSUMER_NOT_FOUND = 10014


class _OutsideTape(JetStreamTape):
    """What those outside have in common: nobody of them writes."""

    def __init__(self, wire: Wire, run: str, identity: Identity) -> None:
        super().__init__(wire, run)
        self._identity = identity

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        """Raises PermissionDenied: whoever lives outside has no way to the tape's subjects."""
        raise PermissionDenied(
            self._wire.door.forbidden(self._wire.name, f"write the tape of run {self.run}")
        )


class PolledTape(_OutsideTape):
    """All of the tape, asked for record by record: for an evaluator or a viewer."""

    async def follow(
        self, after: int, learner: str | None = None
    ) -> AsyncGenerator[Envelope, None]:
        """As the port says, a moment later. Never filtered: whoever may read all may leave out."""
        assert learner is None, "a learner follows by its own reader"
        end = KnownEnd(self.run, self._stream, after)
        while True:
            try:
                records = await self.read(end.position)
                if not records:
                    await self.check_end(end)
            except ServerUnreachable:  # it comes back, and the wire mends itself
                records = []
            for record in records:
                yield end.take(record)
            if not records:
                await asyncio.sleep(LOOK_SECONDS)


class ReaderTape(_OutsideTape):
    """One learner's part of the tape, by the readers that were made for it."""

    def __init__(self, wire: Wire, run: str, identity: Identity) -> None:
        super().__init__(wire, run, identity)
        follows, reads = readers_of(identity)
        self._follows = reader.Reader(wire, self._stream, follows.name)
        self._reads = reader.Reader(wire, self._stream, reads.name)
        self._reading = asyncio.Lock()

    async def follow(
        self, after: int, learner: str | None = None
    ) -> AsyncGenerator[Envelope, None]:
        """As the port says, whatever learner is named: its readers give this one's part only."""
        end = KnownEnd(self.run, self._stream, 0)  # a reader gives everything from the first on
        try:
            async with aclosing(reader.follow(self._follows, self.check_not_shorter)) as pulled:
                async for message in pulled:
                    record = end.take(envelope_at(message.payload, message.sequence))
                    if record.position > after:
                        yield record
        except Declined as error:
            self._no_reader(error)

    async def read(self, after: int, limit: int = BATCH_MAX) -> list[Envelope]:
        """The learner's part of the records after a position, up to `after + limit`."""
        assert limit >= 1
        try:
            async with self._reading:
                found = await reader.read(self._reads, after, limit)
        except Declined as error:
            self._no_reader(error)
        return [envelope_at(message.payload, message.sequence) for message in found]

    def _no_reader(self, error: Declined) -> NoReturn:
        if error.code != CONSUMER_NOT_FOUND:
            self._missing(error)
        raise StreamMissing(
            f"run {self.run} has no reader for learner {self._identity.id} at "
            f"{self._wire.address}: its operator makes one with `decodiloco keys --apply`"
        ) from None
