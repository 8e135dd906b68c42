"""What every body of the tape promises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import islice

import pytest

from streams.chain import Chain
from streams.codec import seal
from streams.envelope import Envelope
from streams.events import Event
from streams.tape import BATCH_MAX, Refused, Stored, append_surely
from tests.builders import joined, offered, one_of_each, opened, round_opened, tape_of, took_over
from tests.contract.records import Ground, Record


async def take(following: AsyncGenerator[Envelope, None], count: int) -> list[Envelope]:
    """The next records of a follower that is already under way."""
    return [await anext(following) for _ in range(count)]


def long_tape(run: str, count: int) -> tuple[Envelope, ...]:
    events: list[Event] = [opened(run), took_over()]
    events += [round_opened(round=number) for number in range(count - 2)]
    return tape_of(events, run)[:count]


def test_an_empty_tape_ends_at_nothing(ground: Ground) -> None:
    async def story(record: Record) -> None:
        assert await record.tape.last() == 0
        assert await record.tape.read(0) == []

    ground.tell(story)


def test_every_kind_of_fact_comes_back_as_it_was_written(ground: Ground) -> None:
    async def story(record: Record) -> None:
        written = tape_of(one_of_each(), record.run)
        assert await record.tape.append(written) == Stored(len(written))
        read = await record.tape.read(0)
        assert read == list(written)
        assert [one.digest for one in read] == [one.digest for one in written]

    ground.tell(story)


def test_what_is_read_follows_in_the_chain(ground: Ground) -> None:
    async def story(record: Record) -> None:
        await record.tape.append(tape_of(one_of_each(), record.run))
        chain = Chain(record.run)
        for envelope in await record.tape.read(0):
            chain = chain.then(envelope)
        assert chain.position == await record.tape.last()

    ground.tell(story)


def test_single_facts_and_whole_batches_follow_each_other(ground: Ground) -> None:
    async def story(record: Record) -> None:
        written = long_tape(record.run, 1 + BATCH_MAX + 2)
        assert await record.tape.append(written[:1]) == Stored(1)
        assert await record.tape.append(written[1 : 1 + BATCH_MAX]) == Stored(1 + BATCH_MAX)
        assert await record.tape.append(written[1 + BATCH_MAX :]) == Stored(len(written))
        assert await record.tape.last() == len(written)

    ground.tell(story)


@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_at_a_taken_position_is_refused_whole(ground: Ground, size: int) -> None:
    async def story(record: Record) -> None:
        written = long_tape(record.run, 6)
        await record.tape.append(written[:3])
        late = tape_of([opened(record.run), joined(), joined("b"), joined("c")], record.run)
        outcome = await record.tape.append(late[1 : 1 + size])
        assert isinstance(outcome, Refused)
        assert await record.tape.read(0) == list(written[:3])

    ground.tell(story)


@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_that_leaves_a_gap_is_refused(ground: Ground, size: int) -> None:
    async def story(record: Record) -> None:
        written = long_tape(record.run, 6)
        await record.tape.append(written[:1])
        assert isinstance(await record.tape.append(written[2 : 2 + size]), Refused)
        assert await record.tape.last() == 1

    ground.tell(story)


@pytest.mark.parametrize("size", [1, 4])
def test_the_same_batch_sent_again_is_found_stored_and_not_stored_twice(
    ground: Ground, size: int
) -> None:
    async def story(record: Record) -> None:
        written = long_tape(record.run, size)
        assert await append_surely(record.tape, written) == Stored(size)
        assert await append_surely(record.tape, written) == Stored(size)
        assert await record.tape.last() == size

    ground.tell(story)


def test_of_two_who_want_to_take_over_one_wins(ground: Ground) -> None:
    async def story(record: Record) -> None:
        first = tape_of([opened(record.run)], record.run)
        await record.tape.append(first)
        claims = [
            seal(2, first[0].digest, 1, name, None, 2.0, took_over(name)) for name in ("x", "y")
        ]
        outcomes = await asyncio.gather(*(append_surely(record.tape, [one]) for one in claims))
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Refused", "Stored"]
        assert (await record.tape.read(1))[0] in claims
        assert await record.tape.last() == 2

    ground.tell(story)


def test_reading_begins_after_a_position_and_stops_at_a_limit(ground: Ground) -> None:
    async def story(record: Record) -> None:
        written = long_tape(record.run, 120)
        await record.tape.append(written)
        assert await record.tape.read(10, 3) == list(written[10:13])
        assert await record.tape.read(118) == list(written[118:])
        assert await record.tape.read(0, 1) == [written[0]]
        assert await record.tape.read(120) == []
        assert await record.tape.read(500, 1) == []

    ground.tell(story)


def test_a_follower_gets_what_was_there_and_what_comes(ground: Ground) -> None:
    async def story(record: Record) -> None:
        written = long_tape(record.run, 30)
        await record.tape.append(written[:10])
        async with aclosing(record.tape.follow(4)) as following:
            assert await take(following, 6) == list(written[4:10])
            coming = asyncio.create_task(take(following, 20))
            await record.tape.append(written[10:11])
            await record.tape.append(written[11:])
            assert await coming == list(written[10:])

    ground.tell(story)


def test_a_follower_may_begin_before_the_first_fact(ground: Ground) -> None:
    async def story(record: Record) -> None:
        async with aclosing(record.tape.follow(0)) as following:
            coming = asyncio.create_task(take(following, 2))
            written = long_tape(record.run, 2)
            await record.tape.append(written)
            assert await coming == list(written)

    ground.tell(story)


def test_a_long_tape_is_followed_without_a_gap(ground: Ground) -> None:
    async def story(record: Record) -> None:
        written = long_tape(record.run, 3000)
        for first in range(0, len(written), BATCH_MAX):
            await record.tape.append(written[first : first + BATCH_MAX])
        async with aclosing(record.tape.follow(0)) as following:
            assert await take(following, len(written)) == list(written)

    ground.tell(story)


def test_a_learner_reads_what_the_run_and_it_need(ground: Ground) -> None:
    async def story(record: Record) -> None:
        written = tape_of(
            (
                *(opened(record.run), joined("a"), joined("b"), round_opened()),
                *(offered("b"), offered("a"), offered("b"), round_opened(round=1)),
            ),
            record.run,
        )
        await record.tape.append(written)
        async with aclosing(record.tape.follow(0, learner="a")) as following:
            seen = await take(following, 5)
        assert [one.position for one in seen] == [1, 2, 4, 6, 8]
        async with aclosing(record.tape.follow(2, learner="b")) as following:
            seen = await take(following, 5)
        assert [one.position for one in seen] == [3, 4, 5, 7, 8]

    ground.tell(story)


def test_several_followers_read_the_same(ground: Ground) -> None:
    async def story(record: Record) -> None:
        written = long_tape(record.run, 50)

        async def reader() -> list[Envelope]:
            async with aclosing(record.tape.follow(0)) as following:
                return await take(following, 50)

        readers = [asyncio.create_task(reader()) for _ in range(4)]
        for envelope in written:
            await record.tape.append([envelope])
        assert await asyncio.gather(*readers) == [list(written)] * 4

    ground.tell(story)


def test_a_cancelled_follower_goes_at_once(ground: Ground) -> None:
    async def story(record: Record) -> None:
        following = record.tape.follow(0)
        waiting = asyncio.create_task(take(following, 1))
        await record.tape.append(long_tape(record.run, 1))
        assert len(await waiting) == 1
        waiting = asyncio.create_task(take(following, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await following.aclose()

    ground.tell(story)


def test_followers_in_other_threads_hear_of_an_append() -> None:
    """The tape in memory stands in for a server that all threads of a test share."""
    seen: dict[int, list[Envelope]] = {}

    async def story(record: Record) -> None:
        written = long_tape(record.run, 200)

        async def follow(number: int) -> None:
            async with aclosing(record.tape.follow(0)) as following:
                seen[number] = await take(following, len(written))

        threads = [
            threading.Thread(target=lambda number=n: asyncio.run(follow(number))) for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for envelope in islice(written, len(written)):
            await record.tape.append([envelope])
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert seen == {number: list(written) for number in range(3)}

    Ground(None).tell(story)
