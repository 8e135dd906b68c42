"""What becomes of an append when its answer is lost, on the tape in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from streams.codec import seal
from streams.envelope import Envelope
from streams.errors import Trouble
from streams.events import Event
from streams.memory import MemoryTape
from streams.tape import Outcome, Refused, Stored, Unknown, append_surely
from tests.builders import RUN, joined, offered, opened, tape_of, took_over

TAPE = tape_of([opened(), took_over(), joined(), offered()])


class LossyTape(MemoryTape):
    """A tape on a bad line: `losses` says of each append if the batch or its answer is lost."""

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(RUN)
        self.losses = list(losses)
        self.appends = 0

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        self.appends += 1
        match self.losses.pop(0) if self.losses else "":
            case "batch":
                return Unknown("the line is dead")
            case "answer":
                await super().append(batch)
                return Unknown("no answer")
            case _:
                return await super().append(batch)


class DeafTape(MemoryTape):
    """A tape whose server answers nothing."""

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        return Unknown("no answer")

    async def read(self, after: int, limit: int = 1) -> list[Envelope]:
        raise Trouble("nobody there")


def fork(event: Event) -> Envelope:
    """A second record for position 3, by another writer."""
    return seal(3, TAPE[2].previous, 2, "syncer-2", None, 0.0, event)


def test_a_batch_stands_on_the_tape_whole() -> None:
    async def story() -> None:
        tape = MemoryTape(RUN)
        assert await append_surely(tape, TAPE) == Stored(4)
        assert await tape.read(0) == list(TAPE)
        assert await tape.read(1, 2) == list(TAPE[1:3])
        assert await tape.last() == 4

    asyncio.run(story())


def test_a_batch_at_the_wrong_position_leaves_nothing() -> None:
    async def story() -> None:
        tape = MemoryTape(RUN)
        assert isinstance(await tape.append(TAPE[1:]), Refused)
        assert await tape.last() == 0

    asyncio.run(story())


def test_a_lost_answer_is_settled_by_reading() -> None:
    async def story() -> None:
        tape = LossyTape(["answer"])
        assert await append_surely(tape, TAPE) == Stored(4)
        assert tape.appends == 1
        assert await tape.read(0) == list(TAPE)

    asyncio.run(story())


def test_a_lost_batch_is_sent_again_in_the_same_bytes() -> None:
    async def story() -> None:
        tape = LossyTape(["batch", "batch", "answer"])
        assert await append_surely(tape, TAPE) == Stored(4)
        assert tape.appends == 3
        assert await tape.read(0) == list(TAPE)

    asyncio.run(story())


@pytest.mark.parametrize("losses", [[], ["batch"], ["answer"]])
def test_anothers_record_at_my_position_refuses_me(losses: list[str]) -> None:
    async def story() -> None:
        tape = LossyTape([])
        await append_surely(tape, [*TAPE[:2], fork(joined("b"))])
        tape.losses = list(losses)
        outcome = await append_surely(tape, TAPE[2:])
        assert outcome == Refused("position 3 holds another's record")
        assert await tape.last() == 3

    asyncio.run(story())


def test_the_same_batch_again_is_stored_once() -> None:
    async def story() -> None:
        tape = MemoryTape(RUN)
        await append_surely(tape, TAPE)
        assert await append_surely(tape, TAPE) == Stored(4)
        assert await tape.last() == 4

    asyncio.run(story())


def test_an_unsettled_append_ends_in_trouble_and_names_the_position() -> None:
    async def story() -> None:
        with pytest.raises(Trouble, match="run trial: an append at position 1 is unsettled"):
            await append_surely(DeafTape(RUN), TAPE, patience_seconds=0.1)

    asyncio.run(story())


def test_a_follower_sees_what_is_there_and_what_comes() -> None:
    async def story() -> None:
        tape = MemoryTape(RUN)
        await append_surely(tape, TAPE[:2])
        seen = []

        async def follow() -> None:
            async for envelope in tape.follow(1):
                seen.append(envelope)
                if envelope.position == 4:
                    return

        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            tasks.create_task(follow())
            tasks.create_task(append_surely(tape, TAPE[2:]))
        assert seen == list(TAPE[1:])

    asyncio.run(story())


def test_a_learners_follower_is_spared_the_facts_of_others() -> None:
    async def story() -> None:
        tape = MemoryTape(RUN)
        await append_surely(tape, TAPE)
        follower = tape.follow(0, learner="b")
        async with asyncio.timeout(5):
            seen = [await anext(follower), await anext(follower)]
        await follower.aclose()
        assert [envelope.event.kind for envelope in seen] == ["run_opened", "syncer_took_over"]

    asyncio.run(story())
