"""A whole syncer in memory: what it rides over, and what it makes of learners that fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

import pytest

from decodiloco.config import Config
from decodiloco.errors import BlobMissing
from decodiloco.places import Places
from decodiloco.store.keys import global_key
from decodiloco.store.memory import memory_store
from decodiloco.syncer.compose import Draft, Foreseen, Pen, composed
from decodiloco.syncer.follower import Follower
from decodiloco.syncer.leadership import Heartbeats
from decodiloco.syncer.machine import begin
from decodiloco.syncer.reign import Reign
from decodiloco.syncer.service import run_syncer
from decodiloco.syncer.state import State
from streams.codec import seal
from streams.envelope import Envelope
from streams.errors import ServerUnreachable
from streams.events import Event, LearnerLost, RunClosed, SyncerTookOver, WindowClosed
from streams.memory import MemoryInbox, MemoryPulse, MemoryTape
from streams.tape import Outcome
from tests.builders import joined, took_over
from tests.scripted import Story, config_of, memory_places, open_story


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


class Paused(MemoryTape):
    """A tape of which a frozen syncer has not read on, until it looks at its end or writes."""

    def __init__(self, run: str, position: int) -> None:
        super().__init__(run)
        self._position = position
        self._reads_on = asyncio.Event()

    async def follow(
        self, after: int, learner: str | None = None
    ) -> AsyncGenerator[Envelope, None]:
        async for envelope in super().follow(after, learner):
            if envelope.position > self._position:
                await self._reads_on.wait()
            yield envelope

    async def last(self) -> int:
        self._reads_on.set()
        return await super().last()

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        self._reads_on.set()
        return await super().append(batch)


async def frozen_before_a_merge(name: str, is_succeeded: bool) -> None:
    """A leader that merges from bytes that are gone, on a tape that may hold another's takeover."""
    config = config_of(name)
    times = config.run.times.model_copy(update={"fetch_seconds_max": 0.05})
    config = config.model_copy(update={"run": config.run.model_copy(update={"times": times})})
    run = await told(config, memory_places(name))
    records = await run.places.tape.read(0, 10_000)
    window = [each for each in records if isinstance(each.event, WindowClosed)][3]
    tape = Paused(name, window.position)
    others = records[: window.position]
    if is_succeeded:
        event = took_over("another", fence=2)
        others.append(seal(window.position + 1, window.digest, 2, "another", None, 0.0, event))
    await MemoryTape.append(tape, others)
    places = Places(tape, {"home": MemoryInbox(name)}, MemoryPulse(name), run.places.store)
    follower = Follower(places, begin(run.opening))
    following = asyncio.create_task(follower.follow())
    await follower.reached(window.position)
    state = follower.state
    (round_,) = state.rounds.values()
    base = state.fragments[round_.fragment]
    places.store.delete(global_key(name, round_.fragment, base.version, base.parameters))
    hearts = Heartbeats("s", times, asyncio.get_running_loop().time)
    reign = Reign(config, places, follower, hearts, Pen("s", 1))
    try:
        async with asyncio.timeout(20):
            await reign.hold(lambda: False)
    finally:
        following.cancel()
    assert follower.state.leader == "another"


def test_a_leader_that_was_frozen_until_its_bytes_were_swept_stands_down() -> None:
    asyncio.run(frozen_before_a_merge("frozen", is_succeeded=True))


def test_a_leader_whose_bytes_are_gone_and_who_leads_still_ends_with_their_key() -> None:
    with pytest.raises(BlobMissing, match="still/global/"):
        asyncio.run(frozen_before_a_merge("still", is_succeeded=False))


def test_what_was_foreseen_is_taken_only_where_just_that_is_read_back() -> None:
    async def told() -> None:
        story = await open_story(config_of("foreseen"), memory_places("foreseen"))
        follower = Follower(story.places, begin(story.opening))
        following = asyncio.create_task(follower.follow())
        try:
            await follower.reached(1)
            stored, other = takeover_by("s", follower.state), takeover_by("t", follower.state)
            follower.foresee(other)
            await story.places.tape.append([one.envelope for one in stored])
            await follower.reached(2)
            assert follower.state == stored[-1].state and follower.state.leader == "s"

            joins = [Draft(partial(joining, who)) for who in "ab"]
            batch = composed(follower.state, joins, Pen("s", 1), 2.0)
            follower.foresee(batch)
            await story.places.tape.append([one.envelope for one in batch])
            await follower.reached(4)
            assert follower.state is batch[-1].state  # it was not folded again
            assert follower.state == await story.state()
        finally:
            following.cancel()

    asyncio.run(told())


def joining(who: str, state: State) -> Event:
    return joined(who)


def takeover_by(syncer: str, state: State) -> list[Foreseen]:
    return composed(state, [Draft(lambda _: took_over(syncer))], Pen(syncer, 1), 1.0)
