"""Killed servers, cut lines, lost answers: what was acknowledged stands, once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from streams.chain import Chain
from streams.codec import encode_event, seal
from streams.envelope import Envelope
from streams.errors import ChainBroken, Corrupt, ServerUnreachable
from streams.inbox import Letter
from streams.jetstream import Connection, connect
from streams.link import Link, Message
from streams.nats_server import NatsServer
from streams.provision import provision
from streams.tape import Refused, Stored, Unknown, append_surely
from tests.builders import offered, opened, round_opened, tape_of, took_over
from tests.contract.nats_faults import Line, Writer, opened_run, port_of
from tests.contract.records import new_run, until


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[list[NatsServer]]:
    """A server that a test may kill; it puts the one that follows in its place."""
    servers = [NatsServer.start(tmp_path / "nats")]
    try:
        yield servers
    finally:
        servers[-1].kill()


async def restart(servers: list[NatsServer]) -> None:
    servers.append(await asyncio.to_thread(NatsServer.start, servers[-1].folder))


async def take(following: AsyncGenerator[Envelope, None], count: int) -> list[Envelope]:
    return [await anext(following) for _ in range(count)]


async def live_link(connection: Connection) -> Link:
    return await connection.wire.link(10)


def rounds(run: str, count: int) -> tuple[Envelope, ...]:
    return tape_of([opened(run), *(round_opened(round=n) for n in range(count - 1))], run)


@pytest.mark.parametrize("size", [1, 7])
def test_a_server_killed_under_load_loses_nothing_acknowledged_and_doubles_nothing(
    own_server: list[NatsServer], size: int
) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(own_server[0].url, run) as connection:
            writer = Writer(run, connection.tape(run), size)
            writing = asyncio.create_task(writer.write())
            following = connection.tape(run).follow(0)
            for _ in range(3):
                goal = len(writer.acknowledged) + 20 * size
                await until(lambda goal=goal: _true(len(writer.acknowledged) >= goal))
                own_server[-1].kill()
                await restart(own_server)
            goal = len(writer.acknowledged) + size
            await until(lambda: _true(len(writer.acknowledged) >= goal))
            writing.cancel()
            await asyncio.wait({writing})
            seen = await take(following, len(writer.acknowledged))
            await following.aclose()
            chain = Chain(run)
            for envelope in seen:
                chain = chain.then(envelope)
            assert [one.digest for one in seen] == [one.digest for one in writer.acknowledged]
            assert await connection.tape(run).last() <= chain.position + size

    asyncio.run(story())


async def _true(holds: bool) -> bool:
    return holds


def test_an_old_writer_is_refused_after_a_takeover(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with (
            opened_run(nats_server.url, run) as old,
            opened_run(nats_server.url, run) as new,
        ):
            start = tape_of([opened(run), took_over("old")], run)
            await old.tape(run).append(start)
            fence = seal(3, start[1].digest, 2, "new", None, 3.0, took_over("new", fence=2))
            late = [seal(3, start[1].digest, 1, "old", None, 3.0, round_opened())]
            for number in range(1, 50):
                position, parent = late[-1].position + 1, late[-1].digest
                event = round_opened(round=number)
                late.append(seal(position, parent, 1, "old", None, 4.0, event))
            assert await append_surely(new.tape(run), [fence]) == Stored(3)
            assert isinstance(await old.tape(run).append(late), Refused)
            assert isinstance(await append_surely(old.tape(run), late), Refused)
            assert isinstance(await append_surely(old.tape(run), late[:1]), Refused)
            assert await new.tape(run).read(0) == [*start, fence]

    asyncio.run(story())


@pytest.mark.parametrize("size", [1, 20])
def test_a_batch_whose_answer_is_lost_is_stored_once(nats_server: NatsServer, size: int) -> None:
    async def story() -> None:
        run = new_run()
        async with (
            opened_run(nats_server.url, run) as other,
            Line(port_of(nats_server.url)).open() as line,
        ):
            connection = await connect(line.url, "test")
            tape = connection.tape(run)
            batch = rounds(run, size)
            line.deaf = True
            sending = asyncio.create_task(tape.append(batch))
            await until(lambda: _ends_at(other, run, size))
            line.cut()
            assert isinstance(await sending, Unknown)
            line.deaf = False
            assert await append_surely(tape, batch) == Stored(size)
            assert await other.tape(run).read(0) == list(batch)
            await connection.close()

    asyncio.run(story())


async def _ends_at(connection: Connection, run: str, position: int) -> bool:
    return await connection.tape(run).last() == position


def test_a_word_whose_answer_is_lost_is_said_again_and_kept_once(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with (
            opened_run(nats_server.url, run) as other,
            Line(port_of(nats_server.url)).open() as line,
        ):
            connection = await connect(line.url, "test")
            line.deaf = True
            saying = asyncio.create_task(connection.inbox(run, "home").say(offered("a", said=1)))
            letters = other.inbox(run, "home").follow(0)
            first = await anext(letters)
            line.deaf = False
            line.cut()
            assert await saying == first.source.sequence == 1
            assert await other.inbox(run, "home").say(offered("a", said=2)) == 2
            assert (await anext(letters)).source.sequence == 2
            await letters.aclose()
            await connection.close()

    asyncio.run(story())


def test_the_watchdog_notices_a_line_that_has_fallen_silent(nats_server: NatsServer) -> None:
    """Nothing is closed and nothing fails: only the pings are not answered any more."""

    async def story() -> None:
        run = new_run()
        async with (
            opened_run(nats_server.url, run) as other,
            Line(port_of(nats_server.url)).open() as line,
        ):
            connection = await connect(line.url, "test")
            following = connection.tape(run).follow(0)
            waiting = asyncio.create_task(take(following, 2))
            batch = rounds(run, 2)
            await other.tape(run).append(batch[:1])
            line.deaf = True
            await until(lambda: _true(not connection.healthy()))
            line.deaf = False
            await other.tape(run).append(batch[1:])
            assert await waiting == list(batch)
            await until(lambda: _true(connection.healthy()))
            await following.aclose()
            await connection.close()

    asyncio.run(story())


def test_the_watchdog_replaces_a_client_whose_read_loop_has_died(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection:
            following = connection.tape(run).follow(0)
            waiting = asyncio.create_task(take(following, 1))
            zombie = await live_link(connection)
            reading: Any = zombie.client._reading_task
            reading.cancel()
            await asyncio.wait({reading})
            assert zombie.client.is_connected
            await until(lambda: _true(zombie.ended.is_set()))
            batch = rounds(run, 1)
            assert await append_surely(connection.tape(run), batch) == Stored(1)
            assert await waiting == list(batch)
            await following.aclose()

    asyncio.run(story())


def test_followers_and_words_ride_over_a_server_that_is_restarted(
    own_server: list[NatsServer],
) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(own_server[0].url, run) as connection:
            tape, inbox = connection.tape(run), connection.inbox(run, "home")
            batch = rounds(run, 4)
            await tape.append(batch[:2])
            following, letters = tape.follow(0), inbox.follow(0)
            assert await take(following, 2) == list(batch[:2])
            waiting = asyncio.create_task(take(following, 2))
            hearing = asyncio.create_task(_sequences(letters, 1))
            own_server[-1].stop()
            saying = asyncio.create_task(inbox.say(offered("a")))
            appending = asyncio.create_task(append_surely(tape, batch[2:]))
            await until(lambda: _true(not connection.healthy()))
            await restart(own_server)
            assert await saying == 1
            assert await appending == Stored(4)
            assert await waiting == list(batch[2:])
            assert await hearing == [1]
            await following.aclose()
            await letters.aclose()

    asyncio.run(story())


async def _sequences(letters: AsyncGenerator[Letter, None], count: int) -> list[int]:
    return [(await anext(letters)).source.sequence for _ in range(count)]


def test_a_server_that_was_paused_goes_on_where_it_stopped(own_server: list[NatsServer]) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(own_server[0].url, run) as connection:
            tape = connection.tape(run)
            batch = rounds(run, 3)
            await tape.append(batch[:1])
            following = tape.follow(0)
            waiting = asyncio.create_task(take(following, 3))
            link = await live_link(connection)
            os.kill(own_server[0].pid, signal.SIGSTOP)
            try:
                appending = asyncio.create_task(append_surely(tape, batch[1:]))
                await until(lambda: _true(link.ended.is_set()))
            finally:
                os.kill(own_server[0].pid, signal.SIGCONT)
            assert await appending == Stored(3)
            assert await waiting == list(batch)
            await following.aclose()

    asyncio.run(story())


def test_a_say_gives_up_in_time_when_no_server_comes_back(
    own_server: list[NatsServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(own_server[0].url, run) as connection:
            own_server[0].stop()
            with pytest.raises(ServerUnreachable, match=f"run {run}.*may be said again"):
                await connection.inbox(run, "home").say(offered("a"))
            outcome = await connection.tape(run).append(rounds(run, 1))
            assert isinstance(outcome, Unknown)
            with pytest.raises(ServerUnreachable, match="no NATS server answers at nats://127"):
                await connection.wire.link(0.1)

    monkeypatch.setattr("streams.jetstream_inbox.SAY_SECONDS", 0.5)
    monkeypatch.setattr("streams.jetstream_tape.LINK_SECONDS", 0.5)
    asyncio.run(story())


@pytest.mark.parametrize("learner", [None, "a"])
@pytest.mark.parametrize("harm", ["deleted", "overflowing"])
def test_a_follower_whose_consumer_was_harmed_misses_nothing(
    nats_server: NatsServer, learner: str | None, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted, or with messages lost on the way, which only its own numbering shows."""

    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection:
            tape = connection.tape(run)
            batch = rounds(run, 40)
            await tape.append(batch[:5])
            following = tape.follow(0, learner)
            assert await take(following, 5) == list(batch[:5])
            if harm == "deleted":
                waiting = asyncio.create_task(take(following, 35))
                api = connection.wire.api
                names = (await api(f"CONSUMER.NAMES.TAPE_{run}"))["consumers"]
                await api(f"CONSUMER.DELETE.TAPE_{run}.{names[0]}")
                await tape.append(batch[5:])
                assert await waiting == list(batch[5:])
            else:
                monkeypatch.undo()  # the next consumer's mailbox holds enough
                await tape.append(batch[5:])
                assert await take(following, 35) == list(batch[5:])
            await following.aclose()

    if harm == "overflowing":
        monkeypatch.setattr("streams.pull.MAILBOX_MESSAGES_MAX", 12)
    asyncio.run(story())


def test_a_letter_that_looks_like_a_status_is_only_a_letter(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection:
            link = await live_link(connection)
            subject = f"in.{run}.home.mallory.delta_offered"
            for status in ("100", "404", "408", "409", "503"):
                headers = {"Status": status, "Nats-Pending-Messages": "500"}
                await link.request(Message(subject, b"", {**headers, "Nats-Msg-Id": status}))
            word = offered("a")
            assert await connection.inbox(run, "home").say(word) == 6
            async with aclosing(connection.inbox(run, "home").follow(0)) as letters:
                seen = [await anext(letters) for _ in range(6)]
            assert [one.payload for one in seen] == [b""] * 5 + [encode_event(word)]

    asyncio.run(story())


def test_bytes_on_a_tape_that_are_no_fact_end_its_reading(nats_server: NatsServer) -> None:
    async def story() -> None:
        run = new_run()
        async with opened_run(nats_server.url, run) as connection:
            tape, link = connection.tape(run), await live_link(connection)
            await tape.append(rounds(run, 1))
            await link.request(Message(f"tape.{run}.run.round_opened", b"\x00junk"))
            following = tape.follow(0)
            assert (await anext(following)).position == 1
            with pytest.raises(Corrupt):
                await anext(following)
            with pytest.raises(Corrupt):
                await tape.read(1, 1)

    asyncio.run(story())


def test_a_server_that_has_lost_the_end_of_a_tape_is_found_out(
    own_server: list[NatsServer],
) -> None:
    async def story() -> None:
        run = new_run()
        batch = rounds(run, 9)
        async with Line(port_of(own_server[0].url)).open() as line:
            connection = await connect(line.url, "test")
            await provision(connection, run, ["home"])
            await connection.tape(run).append(batch[:8])
            following = connection.tape(run).follow(0)
            assert await take(following, 8) == list(batch[:8])
            waiting = asyncio.create_task(take(following, 1))
            line.down = True
            line.cut()
            async with opened_run(own_server[0].url, run) as operator:
                await operator.wire.api(f"STREAM.DELETE.TAPE_{run}")
                await provision(operator, run, ["home"])
                await operator.tape(run).append(batch[:2])
            line.down = False
            with pytest.raises(ChainBroken, match=r"position 8.*lost acknowledged records"):
                await waiting
            await connection.close()

    asyncio.run(story())
