"""A record on three servers: any of them may die at any moment, and nothing acknowledged is lost.

The contract of tape, inbox and pulse is tested on these servers, too (`nats-of-three`); here are
the deaths. The tape has three replicas; the inbox has one, so it is away with its server, whose
disk keeps it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from streams.errors import ServerUnreachable, StreamUnfit
from streams.jetstream import Connection, connect
from streams.nats_server import NatsServer
from streams.provision import provision
from streams.times import API_SECONDS
from tests.builders import hardship
from tests.contract.records import new_run
from tests.contract.witnesses import Witnesses, nothing_is_lost, witnesses
from tests.trio import Trio, leader_of, whole

DEAD_SECONDS = 12.0  # longer than any election


@dataclass(frozen=True)
class Scene:
    """A run that is written to while servers die."""

    trio: Trio
    connection: Connection
    seen: Witnesses

    @property
    def tape(self) -> str:
        return f"TAPE_{self.seen.run}"

    async def facts_go_on(self) -> None:
        """Until more facts are acknowledged; words may have to wait for their server."""
        facts = len(self.seen.writer.acknowledged) + 5 * self.seen.writer.size
        await self.seen.see(lambda: len(self.seen.writer.acknowledged) >= facts)

    async def heals(self) -> None:
        """Until the tape has three replicas again, and tape and inbox take more."""
        await whole(self.connection, self.tape)
        await self.seen.go_on()


async def lose_a_minority(scene: Scene) -> None:
    other = (await leader_of(scene.connection, scene.tape) + 1) % 3
    scene.trio.kill(other)
    await scene.facts_go_on()
    scene.trio.start(other)
    await scene.heals()


async def lose_the_leader(scene: Scene) -> None:
    leader = await leader_of(scene.connection, scene.tape)
    scene.trio.kill(leader)
    await scene.facts_go_on()
    scene.trio.start(leader)
    await scene.heals()


async def pause_the_leader(scene: Scene) -> None:
    """It sleeps, with appends in its hands, until another leads, and wakes."""
    leader = await leader_of(scene.connection, scene.tape)
    sleeper = scene.trio.processes[leader]
    sleeper.send_signal(signal.SIGSTOP)
    try:
        await scene.facts_go_on()
    finally:
        sleeper.send_signal(signal.SIGCONT)
    await scene.heals()


async def restart_one_after_the_other(scene: Scene) -> None:
    for number in range(3):
        await asyncio.to_thread(scene.trio.terminate, number)
        await scene.facts_go_on()
        scene.trio.start(number)
        await scene.heals()


async def lose_a_majority(scene: Scene) -> None:
    leader = await leader_of(scene.connection, scene.tape)
    lost = (leader, (leader + 1) % 3)
    for number in lost:
        scene.trio.kill(number)
    written = len(scene.seen.writer.acknowledged)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(DEAD_SECONDS):
            await scene.seen.see(lambda: len(scene.seen.writer.acknowledged) > written)
    for number in lost:
        scene.trio.start(number)
    await scene.heals()


async def lose_all(scene: Scene) -> None:
    for number in range(3):
        scene.trio.kill(number)
    for number in range(3):
        scene.trio.start(number)
    await scene.heals()


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 20])
@pytest.mark.parametrize(
    "hardship",
    [
        lose_a_minority,
        lose_the_leader,
        pytest.param(pause_the_leader, marks=pytest.mark.long),
        pytest.param(restart_one_after_the_other, marks=pytest.mark.long),
        pytest.param(lose_a_majority, marks=pytest.mark.long),
        pytest.param(lose_all, marks=pytest.mark.long),
    ],
)
def test_what_was_acknowledged_outlives_servers_that_die_while_it_is_written(
    trio: Trio, hardship: Callable[[Scene], Awaitable[None]], size: int
) -> None:
    async def play() -> None:
        run = new_run()
        connection = await connect(trio.url, "test")
        await provision(connection, run, ["home"], replicas=3)
        async with witnesses(connection, run, size) as seen:
            await seen.go_on()
            await hardship(Scene(trio, connection, seen))
        await connection.close()
        await nothing_is_lost(trio.url, seen)

    asyncio.run(play())


def test_three_replicas_on_one_server_are_refused_with_the_way_out(nats_server: NatsServer) -> None:
    async def play() -> None:
        connection = await connect(nats_server.url, "test")
        try:
            await provision(connection, "lonely", ["home"], replicas=3)
        finally:
            await connection.close()

    with pytest.raises(StreamUnfit, match=r"set run\.tape_replicas to 1"):
        asyncio.run(play())


@pytest.mark.long
def test_a_run_may_be_opened_while_its_servers_still_choose_their_leader(tmp_path: Path) -> None:
    """One server by itself chooses nobody: whoever asks waits until the others are there."""

    async def story(trio: Trio) -> None:
        for number in range(3):
            trio.kill(number)
        trio.start(0)
        connection = await connect(trio.url, "test")
        with pytest.raises(ServerUnreachable):
            await connection.wire.ask("STREAM.INFO.none")
        opening = asyncio.create_task(provision(connection, new_run(), ["home"], replicas=3))
        _, pending = await asyncio.wait({opening}, timeout=API_SECONDS + 1)
        assert pending, "it waits longer than for any other answer"
        trio.start(1)
        trio.start(2)
        await opening
        await connection.close()

    with Trio(tmp_path) as trio:
        asyncio.run(story(trio))


@pytest.mark.long
def test_whoever_follows_an_inbox_waits_for_a_server_that_was_stopped(tmp_path: Path) -> None:
    """The others call it offline, and find no server for a new reader: neither is a refusal."""

    async def story(trio: Trio) -> None:
        connection = await connect(trio.url, "test")
        run = new_run()
        await provision(connection, run, ["home"], replicas=3)
        home = await leader_of(connection, f"IN_{run}_home")
        trio.terminate(home)
        inbox, letters = connection.inbox(run, "home"), []

        async def follow() -> None:
            async for letter in inbox.follow(0):
                letters.append(letter)
                return

        following = asyncio.create_task(follow())
        ended, _ = await asyncio.wait({following}, timeout=DEAD_SECONDS)
        assert not ended, following
        trio.start(home)
        await inbox.say(hardship())
        await following
        assert len(letters) == 1
        await connection.close()

    with Trio(tmp_path) as trio:
        asyncio.run(story(trio))
