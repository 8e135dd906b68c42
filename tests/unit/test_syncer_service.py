"""A whole syncer in memory: what it rides over, and what it makes of learners that fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from decodiloco.config import Config
from decodiloco.places import Places
from decodiloco.store.memory import memory_store
from decodiloco.syncer.service import run_syncer
from streams.errors import ServerUnreachable
from streams.events import Event, LearnerLost, RunClosed, SyncerTookOver
from streams.memory import MemoryInbox, MemoryPulse, MemoryTape
from tests.scripted import Story, config_of, open_story


class ShakyTape(MemoryTape):
    """A tape whose server is away for the second and third look at its end."""

    looks = 0

    async def last(self) -> int:
        self.looks += 1
        if self.looks in (2, 3):
            raise ServerUnreachable("no NATS server answers")
        return await super().last()


class ShakyInbox(MemoryInbox):
    """An inbox whose server is away at first."""

    looks = 0

    async def life(self) -> str:
        self.looks += 1
        if self.looks == 1:
            raise ServerUnreachable("no NATS server answers")
        return await super().life()


async def until(story: Story, found: Callable[[Event], bool]) -> Event:
    """The first fact on the tape of which this is true."""
    async with asyncio.timeout(30):
        async for envelope in story.places.tape.follow(0):
            if found(envelope.event):
                return envelope.event
    raise AssertionError("the tape has ended")


async def told(config: Config, places: Places) -> Story:
    """A run that a syncer has served to its end."""
    story = await open_story(config, places)
    async with asyncio.timeout(60):
        await asyncio.gather(story.learners(), run_syncer(config, "s", places))
    return story


def test_a_syncer_rides_over_a_server_that_is_away_when_it_takes_over() -> None:
    async def story() -> None:
        name = "shaky"
        tape, inbox = ShakyTape(name), ShakyInbox(name)
        places = Places(tape, {"home": inbox}, MemoryPulse(name), memory_store(name))
        run = await told(config_of(name), places)
        state = await run.state()
        assert state.closed is not None and state.fence == 1
        assert (tape.looks >= 4, inbox.looks) == (True, 2)

    asyncio.run(story())


def test_a_learner_without_heartbeats_is_lost_once_and_not_after_each_of_its_words() -> None:
    async def story() -> None:
        name = "mute"
        beats = {"heartbeat_seconds": 0.03, "takeover_seconds": 0.1}
        times = {**beats, "lost_seconds": 0.25, "orphan_seconds_max": 600.0}
        config = config_of(name, times=times, end={"steps": 60})
        places = Places(
            MemoryTape(name), {"home": MemoryInbox(name)}, MemoryPulse(name), memory_store(name)
        )
        run = await open_story(config, places)
        syncer = asyncio.create_task(run_syncer(config, "s", places))
        talk = asyncio.create_task(run.talk())  # words, and no heartbeat
        await until(run, lambda event: isinstance(event, RunClosed))
        lost = [e for e in await places.tape.read(0, 10_000) if isinstance(e.event, LearnerLost)]
        assert len(lost) < 10, "each word is a sign of life"
        await asyncio.gather(talk, syncer)

    asyncio.run(story())


def test_a_second_syncer_stands_by_and_both_end_with_the_run() -> None:
    async def story() -> None:
        name = "pair"
        config = config_of(name)
        places = Places(
            MemoryTape(name), {"home": MemoryInbox(name)}, MemoryPulse(name), memory_store(name)
        )
        run = await open_story(config, places)
        async with asyncio.timeout(60):
            await asyncio.gather(
                run.learners(),
                run_syncer(config, "s1", places),
                run_syncer(config, "s2", places),
            )
        records = await places.tape.read(0, 10_000)
        fences = [e.event.fence for e in records if isinstance(e.event, SyncerTookOver)]
        assert fences == list(range(1, len(fences) + 1))
        assert (await run.state()).closed is not None

    asyncio.run(story())
