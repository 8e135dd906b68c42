"""What visitors share: a tape read to its end, or a plain word that it does not go so far."""

from __future__ import annotations

import asyncio

import pytest

from decodiloco.visit import records_to
from streams.envelope import Envelope
from streams.errors import ChainBroken
from streams.memory import MemoryTape
from streams.tape import BATCH_MAX, Tape
from tests.builders import RUN, opened, round_opened, tape_of

COUNT = BATCH_MAX + 5


async def filled() -> Tape:
    tape = MemoryTape(RUN)
    events = [opened(), *(round_opened(round=number) for number in range(COUNT - 1))]
    whole = tape_of(events)
    for start in range(0, COUNT, BATCH_MAX):
        await tape.append(whole[start : start + BATCH_MAX])
    return tape


async def read(tape: Tape, last: int, after: int = 0) -> list[Envelope]:
    return [record async for record in records_to(tape, last, after)]


def test_a_tape_is_read_to_a_position_and_from_one() -> None:
    async def story() -> None:
        tape = await filled()
        for after, last in ((0, COUNT), (3, COUNT), (0, 2), (COUNT, COUNT)):
            found = await read(tape, last, after)
            assert [one.position for one in found] == list(range(after + 1, last + 1))

    asyncio.run(story())


def test_a_tape_that_gives_less_than_it_said_is_no_endless_wait() -> None:
    async def story() -> None:
        async with asyncio.timeout(20):
            with pytest.raises(ChainBroken, match=f"position {COUNT + 1}: the tape of run {RUN}"):
                await read(await filled(), COUNT + 1)

    asyncio.run(story())
