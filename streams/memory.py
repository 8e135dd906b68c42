"""Tape and inbox in lists: the reference bodies of both ports."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence

from streams.codec import decode_envelope, encode_envelope, encode_event
from streams.envelope import Envelope, Source
from streams.events import Word, learner_of, speaker_of
from streams.inbox import Letter
from streams.subjects import checked
from streams.tape import BATCH_MAX, Outcome, Refused, Stored


class MemoryTape:
    """A tape that lives as long as the process. Holds bytes, as every body does."""

    def __init__(self, run: str) -> None:
        self.run = checked(run, "run")
        self._records: list[bytes] = []
        self._grown = asyncio.Condition()

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        assert 1 <= len(batch) <= BATCH_MAX
        if batch[0].position != len(self._records) + 1:
            return Refused(f"the tape ends at {len(self._records)}")
        async with self._grown:
            self._records.extend(encode_envelope(envelope) for envelope in batch)
            self._grown.notify_all()
        return Stored(len(self._records))

    async def read(self, after: int, limit: int = BATCH_MAX) -> list[Envelope]:
        return [decode_envelope(payload) for payload in self._records[after : after + limit]]

    async def follow(
        self, after: int, learner: str | None = None
    ) -> AsyncGenerator[Envelope, None]:
        position = after
        while True:
            async with self._grown:
                while len(self._records) <= position:
                    await self._grown.wait()
            while position < len(self._records):
                envelope = decode_envelope(self._records[position])
                position += 1
                if learner is None or learner_of(envelope.event) in (None, learner):
                    yield envelope

    async def last(self) -> int:
        return len(self._records)

    async def close(self) -> None:
        """Nothing is held open."""


class MemoryInbox:
    """An inbox that lives as long as the process."""

    def __init__(self, run: str, region: str = "home") -> None:
        self.run = checked(run, "run")
        self.region = checked(region, "region")
        self._life = secrets.token_hex(8)
        self._letters: list[tuple[str, str, bytes]] = []
        self._grown = asyncio.Condition()

    async def life(self) -> str:
        return self._life

    async def say(self, word: Word) -> int:
        return await self.say_raw(speaker_of(word), word.kind, encode_event(word))

    async def say_raw(self, speaker: str, kind: str, payload: bytes) -> int:
        """Leaves any bytes under an id and a kind, as a broken or hostile speaker might."""
        async with self._grown:
            self._letters.append((speaker, kind, payload))
            self._grown.notify_all()
        return len(self._letters)

    async def follow(self, after: int) -> AsyncGenerator[Letter, None]:
        sequence = after
        while True:
            async with self._grown:
                while len(self._letters) <= sequence:
                    await self._grown.wait()
            while sequence < len(self._letters):
                speaker, kind, payload = self._letters[sequence]
                sequence += 1
                yield Letter(Source(self.region, self._life, sequence), speaker, kind, payload)

    async def close(self) -> None:
        """Nothing is held open."""
