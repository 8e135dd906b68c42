"""Who writes while servers die; afterwards all that was acknowledged must be there, once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from streams.chain import Chain
from streams.codec import decode_word
from streams.errors import Trouble
from streams.inbox import Inbox
from streams.jetstream import Connection, connect
from streams.tape import BATCH_MAX
from tests.builders import offered
from tests.contract.nats_faults import Writer
from tests.contract.records import until

LIMIT_SECONDS = 60.0
T = TypeVar("T")


@dataclass
class Speaker:
    """Says words without end, and keeps what was acknowledged: sequence and number said."""

    inbox: Inbox
    acknowledged: list[tuple[int, int]] = field(default_factory=list)

    async def speak(self) -> None:
        for said in itertools.count(1):
            self.acknowledged.append((await self._arrives(said), said))

    async def _arrives(self, said: int) -> int:
        """As a learner's outbox does: the same word until it has arrived."""
        while True:
            try:
                return await self.inbox.say(offered("a", said=said))
            except Trouble:
                await asyncio.sleep(0.1)


@dataclass(frozen=True)
class Witnesses:
    """One writes facts to a run's tape, one says words to its inbox."""

    run: str
    writer: Writer
    speaker: Speaker

    async def see(self, holds: Callable[[], bool]) -> None:
        """Until something holds of what was acknowledged."""

        async def now() -> bool:
            return holds()

        await until(now, LIMIT_SECONDS)

    async def go_on(self, batches: int = 5) -> None:
        """Until some more batches and words are acknowledged."""
        facts = len(self.writer.acknowledged) + batches * self.writer.size
        words = len(self.speaker.acknowledged) + 1
        await self.see(
            lambda: (
                len(self.writer.acknowledged) >= facts and len(self.speaker.acknowledged) >= words
            )
        )


@asynccontextmanager
async def witnesses(connection: Connection, run: str, size: int) -> AsyncIterator[Witnesses]:
    """They are at work in the body, on streams that are there; whatever is in flight is dropped."""
    writer = Writer(run, connection.tape(run), size)
    speaker = Speaker(connection.inbox(run, "home"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(writer.write()), group.create_task(speaker.speak())]
        yield Witnesses(run, writer, speaker)
        for task in tasks:
            task.cancel()


async def nothing_is_lost(url: str, seen: Witnesses) -> None:
    """All that was acknowledged is there, once, in order, and the chain is whole."""
    connection = await connect(url, "checker")
    try:
        await _no_fact(connection, seen)
        await _no_word(connection, seen)
    finally:
        await connection.close()


async def _no_fact(connection: Connection, seen: Witnesses) -> None:
    tape, chain, found = connection.tape(seen.run), Chain(seen.run), []
    while records := await tape.read(chain.position, BATCH_MAX):
        for envelope in records:
            chain = chain.then(envelope)
        found += records
    written, size = seen.writer.acknowledged, seen.writer.size
    assert written and found[: len(written)] == written, "a fact was lost"
    assert len(found) - len(written) in (0, size), "at most one batch was in flight"
    assert await _taken(tape.follow(0), len(found)) == found


async def _no_word(connection: Connection, seen: Witnesses) -> None:
    words = seen.speaker.acknowledged
    letters = await _taken(connection.inbox(seen.run, "home").follow(0), words[-1][0])
    kept = [(letter.source.sequence, decode_word(letter.payload).said) for letter in letters]
    assert kept == [(number, number) for number in range(1, len(letters) + 1)], "each word once"
    assert words == kept, "a word was lost"


async def _taken(following: AsyncGenerator[T, None], count: int) -> list[T]:
    async with asyncio.timeout(LIMIT_SECONDS):
        taken = [await anext(following) for _ in range(count)]
    await following.aclose()
    return taken
