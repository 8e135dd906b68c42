"""Tape, inbox, pulse and calls in memory: the reference bodies of the ports.

One object may be used from several threads and event loops at once, as a server is.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator, Sequence, Sized
from contextlib import suppress

from streams.calls import CALL_BYTES_MAX, Answerer
from streams.codec import decode_envelope, encode_envelope, encode_event
from streams.envelope import Envelope, Source
from streams.events import Word, learner_of, speaker_of
from streams.inbox import Letter
from streams.pulse import LISTENER_BEATS_MAX, Beat, decode_beat, encode_beat
from streams.subjects import checked
from streams.tape import BATCH_MAX, Outcome, Refused, Stored

_Sleeper = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class MemoryTape:
    """A tape that lives as long as the process. Holds bytes, as every body does."""

    def __init__(self, run: str) -> None:
        self.run = checked(run, "run")
        self._records: list[bytes] = []
        self._bell = _Bell()

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        assert 1 <= len(batch) <= BATCH_MAX
        payloads = [encode_envelope(envelope) for envelope in batch]
        with self._bell.lock:
            if batch[0].position != len(self._records) + 1:
                return Refused(f"the tape ends at {len(self._records)}")
            self._records.extend(payloads)
            self._bell.ring()
        return Stored(batch[-1].position)

    async def read(self, after: int, limit: int = BATCH_MAX) -> list[Envelope]:
        return [decode_envelope(payload) for payload in self._records[after : after + limit]]

    async def follow(
        self, after: int, learner: str | None = None
    ) -> AsyncGenerator[Envelope, None]:
        position = after
        while True:
            await self._bell.heard(self._records, position)
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
        self._bell = _Bell()

    async def life(self) -> str:
        return self._life

    async def say(self, word: Word) -> int:
        return await self.say_raw(speaker_of(word), word.kind, encode_event(word))

    async def say_raw(self, speaker: str, kind: str, payload: bytes) -> int:
        """Leaves any bytes under an id and a kind, as a broken or hostile speaker might."""
        with self._bell.lock:
            self._letters.append((speaker, kind, payload))
            self._bell.ring()
            return len(self._letters)

    async def follow(self, after: int) -> AsyncGenerator[Letter, None]:
        sequence = after
        while True:
            await self._bell.heard(self._letters, sequence)
            while sequence < len(self._letters):
                speaker, kind, payload = self._letters[sequence]
                sequence += 1
                yield Letter(Source(self.region, self._life, sequence), speaker, kind, payload)

    async def close(self) -> None:
        """Nothing is held open."""


class MemoryPulse:
    """Heartbeats within the process."""

    def __init__(self, run: str) -> None:
        self.run = checked(run, "run")
        self._listeners: list[deque[Beat]] = []
        self._bell = _Bell()

    async def beat(self, beat: Beat) -> None:
        heard = decode_beat(beat.role, checked(beat.speaker, "speaker"), encode_beat(beat))
        assert heard is not None
        with self._bell.lock:
            for waiting in self._listeners:
                waiting.append(heard)
            self._bell.ring()

    async def listen(self) -> AsyncGenerator[Beat, None]:
        waiting: deque[Beat] = deque(maxlen=LISTENER_BEATS_MAX)
        with self._bell.lock:
            self._listeners.append(waiting)
        try:
            while True:
                await self._bell.heard(waiting, 0)
                yield waiting.popleft()
        finally:
            with self._bell.lock:
                self._listeners[:] = [one for one in self._listeners if one is not waiting]

    async def close(self) -> None:
        """Nothing is held open."""


class MemoryCalls:
    """Questions and answers within the process."""

    def __init__(self, run: str) -> None:
        self.run = checked(run, "run")
        self._answering: dict[str, tuple[asyncio.AbstractEventLoop, Answerer]] = {}

    async def call(self, name: str, question: bytes) -> bytes | None:
        assert len(question) <= CALL_BYTES_MAX
        asked = self._answering.get(checked(name, "merger"))
        if asked is None or asked[0].is_closed():
            return None

        async def answered() -> bytes:
            return asked[1](question)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answered(), asked[0]))

    async def answer(self, name: str, answerer: Answerer) -> None:
        mine = asyncio.get_running_loop(), answerer
        self._answering[checked(name, "merger")] = mine
        try:
            await asyncio.get_running_loop().create_future()  # until cancelled
        finally:
            if self._answering.get(name) is mine:
                del self._answering[name]


class _Bell:
    """Wakes followers in whatever thread and event loop they wait. Rung under its lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._sleepers: list[_Sleeper] = []

    def ring(self) -> None:
        sleepers, self._sleepers = self._sleepers, []
        for loop, sleeper in sleepers:
            with suppress(RuntimeError):  # a loop that has been closed: nobody waits there
                loop.call_soon_threadsafe(_wake, sleeper)

    async def heard(self, things: Sized, count: int) -> None:
        """Returns when there are more than `count` things; they are counted after each ring."""
        while True:
            with self.lock:
                if len(things) > count:
                    return
                loop = asyncio.get_running_loop()
                sleeper: asyncio.Future[None] = loop.create_future()
                self._sleepers.append((loop, sleeper))
            try:
                await sleeper
            finally:
                with self.lock:
                    self._sleepers = [one for one in self._sleepers if one[1] is not sleeper]


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
