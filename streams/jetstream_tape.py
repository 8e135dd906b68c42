"""The tape on JetStream: our own thin layer on nats-py's core.

A stream's sequence is the position, so an append is an atomic batch (ADR-50) whose first message
names the sequence that must be the last. Knows nothing of what facts mean.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import NoReturn

from streams.codec import decode_envelope, encode_envelope
from streams.connection import Wire
from streams.envelope import Envelope
from streams.errors import ChainBroken, ServerUnreachable, StreamMissing, StreamUnfit, Trouble
from streams.known_end import KnownEnd, shorter
from streams.link import STREAM_NOT_FOUND, Declined, Message, Nobody, answer_of
from streams.pull import pull
from streams.subjects import checked, tape_filters, tape_stream, tape_subject
from streams.tape import BATCH_MAX, Outcome, Refused, Stored, Unknown
from streams.times import APPEND_SECONDS, LINK_SECONDS, SHORTER_SECONDS

APPEND_BYTES_PER_SECOND_MIN = 1_000_000
READS_AT_ONCE = 50
SHORTER_LOOKS = 4  # a leader that was deposed a moment ago may still answer, from its past
RESTORING = "restoring"  # in the stream's metadata, from its making to the last restored record

WRONG_LAST_SEQUENCE = 10071
MESSAGE_NOT_FOUND = 10037
STREAM_FULL = 10077
NO_ATOMIC_BATCHES = 10174
BATCH_INCOMPLETE = 10176


class JetStreamTape:
    """A run's tape as a stream: one subject a kind and learner, one sequence for all."""

    def __init__(self, wire: Wire, run: str) -> None:
        self.run = checked(run, "run")
        self._wire = wire
        self._stream = tape_stream(run)
        self._is_written_here = False

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        """As the port says. One batch may be in flight at a time, and that is the caller's duty.

        Raises StreamMissing, StreamUnfit, PermissionDenied, and Trouble for a full stream; and
        ChainBroken, before anything is sent, where another record stands than the batch follows.
        """
        assert 1 <= len(batch) <= BATCH_MAX
        for earlier, later in itertools.pairwise(batch):
            assert later.position == earlier.position + 1
            assert later.previous == earlier.digest
        messages = self._messages(batch)
        try:
            await self._check_written_here()
            await self._check_before(batch[0])
            link = await self._wire.link(LINK_SECONDS)
            reply = await link.request(*messages, seconds=_patience_seconds(messages))
            answer = answer_of(self._stream, reply)
        except Nobody as error:
            with suppress(ServerUnreachable):
                await self.last()  # raises StreamMissing if that is why
            return Unknown(str(error))
        except ServerUnreachable as error:
            return Unknown(str(error))
        except Declined as error:
            return self._refusal(error)
        if answer.get("seq") != batch[-1].position:
            raise ChainBroken(
                batch[-1].position, f"{self._stream} stored it at {answer.get('seq')} instead"
            )
        return Stored(batch[-1].position)

    async def read(self, after: int, limit: int = BATCH_MAX) -> list[Envelope]:
        """As the port says.

        Each record is asked for with STREAM.MSG.GET, which the stream's leader answers: a direct
        get may be answered by a replica that has not heard of our own last append yet. That is
        slower; for much, follow. Only a successful append proves the end of a tape: a leader
        that has just been deposed may still answer.
        """
        assert limit >= 1
        if limit > 1:
            limit = min(limit, await self.last() - after)
        records: list[Envelope] = []
        for first in range(after + 1, after + limit + 1, READS_AT_ONCE):
            positions = range(first, min(first + READS_AT_ONCE, after + limit + 1))
            answers = await asyncio.gather(*map(self._get, positions), return_exceptions=True)
            for record in answers:
                if isinstance(record, BaseException):
                    raise record
                if record is None:
                    return records
                records.append(record)
        return records

    async def follow(
        self, after: int, learner: str | None = None
    ) -> AsyncGenerator[Envelope, None]:
        """As the port says. Raises StreamMissing, PermissionDenied and Corrupt."""
        end = KnownEnd(self.run, self._stream, after)
        filters = tape_filters(self.run, learner) if learner is not None else []

        async def still_there() -> None:
            await self.check_end(end)

        try:
            async with aclosing(
                pull(self._wire, self._stream, after, filters, still_there)
            ) as pulled:
                async for message in pulled:
                    position = message.sequence
                    if learner is None and position != end.position + 1:
                        raise ChainBroken(end.position + 1, f"{self._stream} goes on at {position}")
                    yield end.take(envelope_at(message.payload, position))
        except Declined as error:
            self._missing(error)

    async def check_end(self, end: KnownEnd) -> None:
        """Raises ChainBroken for a stream without the last record that was read from it."""
        if end.position == 0:
            return
        for _ in range(SHORTER_LOOKS):
            there = await self._get(end.position)
            if there is not None:
                end.compare(there)
                return
            await asyncio.sleep(SHORTER_SECONDS)
        raise shorter(self._stream, end.position, await self.last())

    async def check_not_shorter(self, position: int) -> None:
        """The same, for whoever may only ask how long the stream is."""
        for _ in range(SHORTER_LOOKS):
            found = await self.last()
            if found >= position:
                return
            await asyncio.sleep(SHORTER_SECONDS)
        raise shorter(self._stream, position, found)

    async def last(self) -> int:
        """As the port says: the stream's leader answers.

        Raises StreamUnfit while the stream is being restored. Whoever means to write or to join
        asks for its end before, so that none takes a part of a tape for the whole.
        """
        try:
            info = await self._wire.ask(f"STREAM.INFO.{self._stream}")
        except Declined as error:
            self._missing(error)
        if (info["config"].get("metadata") or {}).get(RESTORING):
            raise StreamUnfit(
                f"{self._stream} is being restored from the archive: wait until `decodiloco "
                "restore` has ended; if it was stopped, run it again"
            )
        return int(info["state"]["last_seq"])

    async def close(self) -> None:
        """Nothing of its own is held open: the connection is the caller's."""

    def _messages(self, batch: Sequence[Envelope]) -> list[Message]:
        """One message, or the members of an atomic batch; no message id: the position is one.

        Nats-Expected-Last-Msg-Id is never sent: a wrong one freezes a replicated stream for good.
        """
        batch_id = secrets.token_hex(12)  # fresh for each attempt: the server may hold half of one
        messages = []
        for number, envelope in enumerate(batch, start=1):
            headers = {}
            if number == 1:
                headers["Nats-Expected-Last-Sequence"] = str(envelope.position - 1)
            if len(batch) > 1:
                headers["Nats-Batch-Id"] = batch_id
                headers["Nats-Batch-Sequence"] = str(number)
                if number == len(batch):
                    headers["Nats-Batch-Commit"] = "1"
            subject = tape_subject(self.run, envelope.event)
            messages.append(Message(subject, encode_envelope(envelope), headers))
        return messages

    def _refusal(self, error: Declined) -> Outcome:
        if error.code == WRONG_LAST_SEQUENCE:
            return Refused(error.description)
        if error.code == STREAM_FULL:
            raise Trouble(f"{self._stream} is full: give it more room (`nats stream edit`)")
        if error.code == NO_ATOMIC_BATCHES:
            raise StreamUnfit(
                f"{self._stream}: allow_atomic is off: a tape needs batches that are stored whole"
            )
        if error.code == BATCH_INCOMPLETE:
            return Unknown(error.description)
        raise error

    async def _check_written_here(self) -> None:
        """Raises StreamUnfit on a region's server: what it tells of the tape is a while ago."""
        if self._is_written_here or not (await self._wire.link(LINK_SECONDS)).client.domain:
            return
        try:
            info = await self._wire.ask(f"STREAM.INFO.{self._stream}")
        except Declined as error:
            self._missing(error)
        if info["config"].get("mirror"):
            raise StreamUnfit(
                f"{self._stream} at {self._wire.address} is a region's copy: whoever writes the "
                "tape must name the hub's servers with here.nats"
            )
        self._is_written_here = True

    async def _check_before(self, first: Envelope) -> None:
        """A batch follows the record that is there. Of a tape that is too short the server says."""
        position = first.position - 1
        if position == 0:
            return
        end = KnownEnd(self.run, self._stream, position, first.previous)
        there = await self._get(position)
        if there is not None:
            end.compare(there)
        elif await self.last() >= position:  # it was purged, or a deposed leader has answered
            await self.check_end(end)

    async def _get(self, position: int) -> Envelope | None:
        try:
            answer = await self._wire.ask(f"STREAM.MSG.GET.{self._stream}", {"seq": position})
        except Declined as error:
            if error.code == MESSAGE_NOT_FOUND:
                return None
            self._missing(error)
        return envelope_at(base64.b64decode(answer["message"].get("data", "")), position)

    def _missing(self, error: Declined) -> NoReturn:
        if error.code != STREAM_NOT_FOUND:
            raise error
        raise StreamMissing(
            f"run {self.run} has no tape at {self._wire.address}: "
            "open it with `decodiloco open`, or correct the run's name; if it had one, bring it "
            "back with `decodiloco restore`"
        ) from None


def _patience_seconds(messages: Sequence[Message]) -> float:
    """How long to wait for the answer to an append before looking what became of it.

    That is always safe, and with every server well never needed. When the stream's leader has
    died with the append in its hands, no answer will ever come.
    """
    size_bytes = sum(len(message.payload) for message in messages)
    return APPEND_SECONDS + size_bytes / APPEND_BYTES_PER_SECOND_MIN


def envelope_at(payload: bytes, position: int) -> Envelope:
    """The record in a message that lies at a position; ChainBroken if it says another one."""
    envelope = decode_envelope(payload)
    if envelope.position != position:
        raise ChainBroken(position, f"a record numbered {envelope.position} stands there")
    return envelope
