"""What every body of the calls promises: an answer of whoever is named, or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.calls import CALL_BYTES_MAX, Answerer, Calls
from tests.contract.records import Ground, Record, until


@asynccontextmanager
async def answering(calls: Calls, name: str, answerer: Answerer) -> AsyncIterator[None]:
    """Somebody of this name answers, and is heard by now."""
    task = asyncio.create_task(calls.answer(name, answerer))

    async def is_there() -> bool:
        return await calls.call(name, b"there?") is not None

    await until(is_there)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def test_whoever_is_named_answers(ground: Ground) -> None:
    async def story(record: Record) -> None:
        one = answering(record.calls, "m1", lambda asked: b"one: " + asked)
        two = answering(record.calls, "m2", lambda asked: b"two: " + asked)
        async with one, two:
            assert await record.calls.call("m1", b"x") == b"one: x"
            assert await record.calls.call("m2", b"x") == b"two: x"
            many = [record.calls.call("m1", str(number).encode()) for number in range(50)]
            assert await asyncio.gather(*many) == [f"one: {n}".encode() for n in range(50)]

    ground.tell(story)


def test_where_nobody_answers_there_is_no_answer(ground: Ground) -> None:
    async def story(record: Record) -> None:
        assert await record.calls.call("m1", b"x") is None
        async with answering(record.calls, "m1", lambda asked: asked):
            assert await record.calls.call("m1", b"x") == b"x"
        assert await record.calls.call("m1", b"x") is None

    ground.tell(story)


def test_a_long_question_and_a_long_answer_pass(ground: Ground) -> None:
    async def story(record: Record) -> None:
        question = bytes(CALL_BYTES_MAX)
        async with answering(record.calls, "m1", lambda asked: asked):
            assert await record.calls.call("m1", question) == question

    ground.tell(story)
