"""How the tape is read through a shut door: by a learner's readers, and record by record."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import aclosing
from pathlib import Path

import pytest

from decodiloco.archive.keeper import archive
from decodiloco.archive.restore import restore
from decodiloco.keys import read_roster
from decodiloco.store.open_store import open_store
from streams.codec import seal
from streams.errors import ChainBroken, PermissionDenied, ServerUnreachable, StreamMissing
from streams.jetstream import Connection
from streams.link import API_SECONDS, Message
from streams.nats_server import NatsServer
from streams.provision import provision
from streams.tape import Stored, Tape, append_surely
from tests.builders import joined, opened, round_opened, tape_of
from tests.contract.doors import INCLUDED, Doors, shut


def test_a_learner_without_a_reader_is_told_how_to_get_one(tmp_path: Path) -> None:
    async def story(doors: Doors) -> None:
        async with doors.enter("operator", "learner-a") as (operator, a):
            await provision(operator, doors.run, ["home"])
            tape = a.tape(doors.run)
            for asking in (tape.read(0, 1), anext(tape.follow(0, "a"))):
                with pytest.raises(StreamMissing, match="decodiloco keys --apply"):
                    await asking

    with shut(tmp_path) as doors:
        asyncio.run(story(doors))


async def write(tape: Tape, run: str, stop: int, pause_seconds: float = 0.0) -> None:
    """Three facts, one of them learner b's, then rounds, one by one."""
    facts = tape_of([opened(run), joined("a"), joined("b")], run)
    await tape.append(facts)
    previous = facts[-1].digest
    for position in range(4, stop):
        event = round_opened(round=position)
        envelope = seal(position, previous, 0, "s1", None, 0.0, event)
        previous = envelope.digest
        await tape.append([envelope])
        await asyncio.sleep(pause_seconds)


async def positions(tape: Tape, stop: int) -> list[int]:
    found = []
    async for envelope in tape.follow(0, "a"):
        found.append(envelope.position)
        if envelope.position == stop - 1:
            break
    return found


def test_two_lives_that_read_at_once_both_miss_nothing(tmp_path: Path) -> None:
    async def story(doors: Doors) -> None:
        await doors.open()
        async with doors.enter("syncer-s1", "learner-a", "learner-a") as (syncer, *two):
            async with asyncio.timeout(15), asyncio.TaskGroup() as group:
                group.create_task(write(syncer.tape(doors.run), doors.run, 24))
                lives = [group.create_task(positions(one.tape(doors.run), 24)) for one in two]
                for _ in range(20):
                    await two[0].tape(doors.run).read(0)
            for life in lives:
                assert life.result() == [1, 2, *range(4, 24)]

    with shut(tmp_path) as doors:
        asyncio.run(story(doors))


def test_a_reader_that_is_set_back_and_emptied_by_another_life_misses_nothing(
    tmp_path: Path,
) -> None:
    """The other life is not ours: it sets the reader anywhere, and takes from it as it likes."""
    draws = random.Random(4)

    async def meddle(other: Connection, stop: int) -> None:
        link = await other.wire.link()
        await link.listen("_INBOX_learner_a.other.*", 10)
        while True:
            reset = "api.shut.CONSUMER.RESET.TAPE_shut.learner_a"
            body = json.dumps({"seq": draws.randrange(1, stop)}).encode()
            await link.publish(Message(reset, body), "_INBOX_learner_a.none.1")
            if draws.random() < 0.7:
                body = json.dumps({"batch": draws.randrange(1, 4), "expires": 30_000_000}).encode()
                take = "api.shut.CONSUMER.MSG.NEXT.TAPE_shut.learner_a"
                await link.publish(Message(take, body), "_INBOX_learner_a.other.1")
            await asyncio.sleep(draws.choice((0.001, 0.02, 0.1)))

    async def story(doors: Doors) -> None:
        await doors.open()
        names = ("syncer-s1", "learner-a", "learner-a")
        async with doors.enter(*names) as (syncer, other, *lives):
            tape, stop = syncer.tape(doors.run), 80
            meddling = asyncio.create_task(meddle(other, stop))
            try:
                async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                    group.create_task(write(tape, doors.run, stop, pause_seconds=0.01))
                    found = [
                        group.create_task(positions(one.tape(doors.run), stop)) for one in lives
                    ]
                for one in found:
                    assert one.result() == [1, 2, *range(4, stop)]
                async with asyncio.timeout(20):
                    for _ in range(10):
                        again = await positions(lives[0].tape(doors.run), stop)
                        assert again == [1, 2, *range(4, stop)]
            finally:
                meddling.cancel()

    with shut(tmp_path) as doors:
        asyncio.run(story(doors))


def test_a_reader_goes_on_where_it_was_after_its_server_was_killed(tmp_path: Path) -> None:
    async def story(doors: Doors) -> None:
        await doors.open()
        async with doors.enter("syncer-s1", "learner-a") as (syncer, a):
            tape, run = syncer.tape(doors.run), doors.run
            facts = tape_of([opened(run), joined("a"), joined("b"), round_opened()], run)
            await tape.append(facts[:2])
            followed = a.tape(run).follow(0, "a")
            async with asyncio.timeout(15), aclosing(followed):
                assert [(await anext(followed)).position for _ in range(2)] == [1, 2]
                doors.server.kill()
                server = await asyncio.to_thread(
                    NatsServer.start, tmp_path / "nats", doors=INCLUDED
                )
                try:
                    assert await append_surely(tape, facts[2:]) == Stored(4)
                    assert (await anext(followed)).position == 4
                finally:
                    server.stop()

    with shut(tmp_path) as doors:
        asyncio.run(story(doors))


def test_a_polled_tape_rides_over_an_outage_that_outlasts_every_request(tmp_path: Path) -> None:
    async def story(doors: Doors) -> None:
        await doors.open()
        async with doors.enter("syncer-s1", "viewer") as (syncer, viewer):
            tape, run = syncer.tape(doors.run), doors.run
            facts = tape_of([opened(run), joined("a")], run)
            await tape.append(facts[:1])
            async with asyncio.timeout(30), aclosing(viewer.tape(run).follow(0)) as followed:
                assert (await anext(followed)).position == 1
                waiting = asyncio.ensure_future(anext(followed))
                link = await viewer.wire.link()
                doors.server.kill()
                await link.ended.wait()
                with pytest.raises(ServerUnreachable):
                    await viewer.wire.link(API_SECONDS + 1)
                server = await asyncio.to_thread(
                    NatsServer.start, tmp_path / "nats", doors=INCLUDED
                )
                try:
                    assert await append_surely(tape, facts[1:]) == Stored(2)
                    assert (await waiting).position == 2
                finally:
                    server.stop()

    with shut(tmp_path) as doors:
        asyncio.run(story(doors))


@pytest.mark.parametrize("who", ["viewer", "evaluator"])
def test_a_polled_tape_that_ends_before_what_was_read_is_told(tmp_path: Path, who: str) -> None:
    async def story(doors: Doors) -> None:
        await doors.open()
        async with (
            doors.enter(who) as (connection,),
            asyncio.timeout(15),
            aclosing(connection.tape(doors.run).follow(9)) as followed,
        ):
            with pytest.raises(ChainBroken, match="lost acknowledged records"):
                await anext(followed)

    with shut(tmp_path) as doors:
        asyncio.run(story(doors))


@pytest.mark.parametrize("how", ["emptied", "other facts", "its readers alone", "gone"])
def test_a_learner_with_a_key_notices_that_its_tape_is_not_what_it_was(
    tmp_path: Path, how: str
) -> None:
    async def story(doors: Doors) -> None:
        await doors.open()
        async with doors.enter("syncer-s1", "learner-a", "operator") as (syncer, a, operator):
            run = doors.run
            facts = [opened(run), joined("a"), round_opened(), round_opened(round=1)]
            await syncer.tape(run).append(tape_of(facts, run))
            async with asyncio.timeout(25), aclosing(a.tape(run).follow(0, "a")) as followed:
                assert [(await anext(followed)).position for _ in range(4)] == [1, 2, 3, 4]
                waiting = asyncio.ensure_future(anext(followed))
                if how == "its readers alone":
                    await operator.wire.api(f"CONSUMER.DELETE.TAPE_{run}.learner_a")
                else:
                    await operator.wire.api(f"STREAM.DELETE.TAPE_{run}")
                if how in ("emptied", "other facts"):
                    await doors.open()
                if how == "other facts":
                    facts[3:] = [round_opened(round=7), round_opened(round=8)]
                    await syncer.tape(run).append(tape_of(facts, run))
                expected = {
                    "emptied": (ChainBroken, "position 4.*has lost acknowledged records"),
                    "other facts": (ChainBroken, "position 4.*was made again or altered"),
                    "its readers alone": (StreamMissing, "has no reader for learner a"),
                    "gone": (StreamMissing, f"run {run} has no tape"),
                }
                with pytest.raises(expected[how][0], match=expected[how][1]):
                    await waiting

    with shut(tmp_path) as doors:
        asyncio.run(story(doors))


def test_a_restored_tape_gives_its_learners_their_readers_back(tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())

    async def story(doors: Doors) -> None:
        await doors.open()
        run = doors.run
        async with doors.enter("syncer-s1", "learner-a", "operator") as (syncer, a, operator):
            first = opened(run, config_digest=doors.config.run.digest)
            tape = tape_of([first, joined("a"), joined("b"), round_opened()], run)
            await syncer.tape(run).append(tape)
            await archive(syncer.tape(run), store, asyncio.Event(), 0.0, once=True)
            await operator.wire.api(f"STREAM.DELETE.TAPE_{run}")
            ours = doors.config_of("syncer-s1", store=store.url)
            with pytest.raises(PermissionDenied):
                await restore(ours, ours.here.nats_door, [])
            roster = read_roster(doors.keys, run).values()
            learners = [each for each in roster if each.role == "learner"]

            theirs = doors.config_of("operator", store=store.url)
            found = await restore(theirs, theirs.here.nats_door, learners)

            assert (found.chain.position, found.chain.digest) == (4, tape[-1].digest)
            assert await positions(a.tape(run), 5) == [1, 2, 4]
            assert [one.digest for one in await syncer.tape(run).read(0)] == [
                one.digest for one in tape
            ]

    with shut(tmp_path) as doors:
        asyncio.run(story(doors))
