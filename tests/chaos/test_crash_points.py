"""Every point at which a syncer may die, with words and clock held.

The syncer is killed at one point; another folds the tape, takes over and goes on. What was
merged, from whom, to which bytes, and every token's fate must be as if nothing had happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from decodiloco.config import Config
from decodiloco.places import Places
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import named_by
from decodiloco.syncer.service import run_syncer
from replay.reach import reach_of
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    FragmentMerged,
    HorizonRaised,
    RoundOpened,
    StoreSwept,
    SyncerTookOver,
    WindowClosed,
    Word,
)
from streams.inbox import Inbox, Letter
from streams.tape import Outcome, Tape, Unknown
from tests.scripted import Story, config_of, memory_places, open_story


class Killed(Exception):
    """The process is gone, here and now."""


@dataclass
class Trap:
    """Counts how often a point is passed, and kills once, at the n-th time."""

    point: str
    nth: int = 1
    passed: int = 0
    sprung: bool = False

    def at(self, point: str) -> None:
        if point == self.point and not self.sprung:
            self.passed += 1
            if self.passed == self.nth:
                self.sprung = True
                raise Killed(f"{point}, time {self.nth}")


@dataclass
class TrappedTape:
    """The same tape, with traps around its doors. `loses`: answers of this kind are lost."""

    tape: Tape
    trap: Trap
    loses: Callable[[Sequence[Envelope]], bool] = lambda batch: False
    lost: set[int] = field(default_factory=set)

    @property
    def run(self) -> str:
        return self.tape.run

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        names = [name for kind, name in NAMES if any(isinstance(e.event, kind) for e in batch)]
        for name in ["batch", *names]:
            self.trap.at(f"{name} sent")
        outcome = await self.tape.append(batch)
        for name in ["batch", *names]:
            self.trap.at(f"{name} stored, answer lost")
        if self.loses(batch) and batch[0].position not in self.lost:
            self.lost.add(batch[0].position)
            return Unknown("the answer was lost")
        return outcome

    async def read(self, after: int, limit: int = 200) -> list[Envelope]:
        return await self.tape.read(after, limit)

    async def follow(
        self, after: int, learner: str | None = None
    ) -> AsyncGenerator[Envelope, None]:
        async for envelope in self.tape.follow(after, learner):
            if isinstance(envelope.event, WindowClosed):
                self.trap.at("window closed")
            yield envelope

    async def last(self) -> int:
        return await self.tape.last()

    async def close(self) -> None:
        await self.tape.close()


NAMES = (
    (FragmentMerged, "merge"),
    (SyncerTookOver, "takeover"),
    (RoundOpened, "opening"),
    (HorizonRaised, "horizon"),
    (StoreSwept, "sweep"),
)


@dataclass
class TrappedInbox:
    """The same inbox; a syncer dies with a letter in its hand."""

    inbox: Inbox
    trap: Trap

    @property
    def run(self) -> str:
        return self.inbox.run

    @property
    def region(self) -> str:
        return self.inbox.region

    async def life(self) -> str:
        return await self.inbox.life()

    async def say(self, word: Word) -> int:
        return await self.inbox.say(word)

    async def follow(self, after: int) -> AsyncGenerator[Letter, None]:
        async for letter in self.inbox.follow(after):
            if letter.kind == DeltaOffered.kind:
                self.trap.at("inbox read")
            yield letter

    async def close(self) -> None:
        await self.inbox.close()


@dataclass
class TrappedStore:
    """The same store; a syncer dies after a byte was fetched or a blob was stored."""

    store: BlobStore
    trap: Trap

    @property
    def url(self) -> str:
        return self.store.url

    def put(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        self.store.put(key, parts)
        for room, name in (("global", "parameters"), ("outer", "momentum"), ("report", "report")):
            if f"/{room}/" in key:
                self.trap.at(f"{name} stored")

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> bytes | memoryview:
        payload = self.store.read(key, start, stop, anew)
        if "/delta/" in key:
            self.trap.at("first byte fetched")
        return payload

    def size(self, key: str) -> int | None:
        return self.store.size(key)

    def keys(self, prefix: str) -> list[str]:
        return self.store.keys(prefix)

    def delete(self, key: str) -> None:
        self.store.delete(key)
        self.trap.at("blob deleted")

    def close(self) -> None:
        self.store.close()


def trapped(story: Story, trap: Trap) -> Places:
    """The story's places as one syncer's process sees them."""
    places = story.places
    return replace(
        places,
        tape=TrappedTape(places.tape, trap),
        inboxes={"home": TrappedInbox(places.inboxes["home"], trap)},
        store=TrappedStore(places.store, trap),
    )


@dataclass(frozen=True)
class Told:
    """What must be the same in every telling."""

    members: dict[int, list[tuple[str, int]]]
    blobs: dict[int, tuple[bytes, bytes]]
    fates: dict[str, list[dict[str, int]]]
    fences: int = field(compare=False)


def forgetful(name: str) -> Config:
    """The story's run, a little longer, and of few bytes that are kept."""
    keeps = {"retention": {"keep_merges": 1}, "snapshot_merges": 1}
    return config_of(name, **keeps, end={"steps": 15})


async def tell(name: str, trap: Trap) -> Told:
    """Serves the story to its end; whoever dies is followed by another syncer.

    Old bytes are let go of on the way, and those that are needed must be there.
    """
    story = await open_story(forgetful(name), memory_places(name))
    talk = asyncio.create_task(story.learners())
    served = False
    for life in range(4):
        syncer = run_syncer(story.config, f"s{life}", trapped(story, trap))
        with suppress(Killed):
            await asyncio.wait_for(syncer, 30)
            served = True
            break
    assert served, "no syncer came to the run's end"
    await asyncio.wait_for(talk, 5)
    await check_the_store(story)
    return await told(story)


async def check_the_store(story: Story) -> None:
    """What was swept is gone, and what no horizon let go of is there."""
    records = await story.places.tape.read(0, 10_000)
    swept = [each.event for each in records if isinstance(each.event, StoreSwept)]
    assert len(swept) >= 2 and swept[-1].blobs > 0
    raised = reach_of(records)
    done = reach_of(records[: raised.raised_at - (raised.position > swept[-1].position)])
    opening, store = (await story.state()).opening, story.places.store
    for envelope in records:
        for key, manifest in named_by(story.config.run.name, envelope.event, opening.fragments):
            if raised.has(envelope.position):
                assert store.size(key) == manifest.bytes, (envelope.position, key)
            elif not done.has(envelope.position):
                assert store.size(key) is None, (envelope.position, key)


async def told(story: Story) -> Told:
    offers: dict[int, tuple[str, int]] = {}
    members: dict[int, list[tuple[str, int]]] = {}
    blobs: dict[int, tuple[bytes, bytes]] = {}
    for envelope in await story.places.tape.read(0, 10_000):
        event = envelope.event
        if isinstance(event, DeltaOffered):
            offers[envelope.position] = (event.learner, event.learner_step)
        if isinstance(event, FragmentMerged):
            assert event.round not in blobs, "a round was merged twice"
            members[event.round] = [offers[position] for position in event.contributions]
            blobs[event.round] = (event.parameters.digest, event.momentum.digest)
    state = await story.state()
    fates = {
        name: [learner.fates(number) for number in range(len(state.fragments))]
        for name, learner in state.learners.items()
    }
    return Told(members, blobs, fates, state.fence)


POINTS = [
    "inbox read",
    "batch sent",
    "batch stored, answer lost",
    "opening sent",
    "opening stored, answer lost",
    "window closed",
    "first byte fetched",
    "parameters stored",
    "momentum stored",
    "report stored",
    "merge sent",
    "merge stored, answer lost",
    "takeover sent",
    "takeover stored, answer lost",
    "horizon sent",
    "horizon stored, answer lost",
    "blob deleted",
    "sweep sent",
    "sweep stored, answer lost",
]


@pytest.fixture(scope="module")
def undisturbed() -> Told:
    """The story as it goes when nobody dies."""
    return asyncio.run(tell("quiet", Trap("never")))


def test_the_undisturbed_story_is_a_whole_run(undisturbed: Told) -> None:
    assert undisturbed.fences == 1
    assert sorted(undisturbed.blobs) == list(range(1, len(undisturbed.blobs) + 1))
    assert len(undisturbed.blobs) >= 9
    for fates in undisturbed.fates.values():
        for fate in fates:
            assert sum(fate.values()) == 100_000


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_a_syncer_may_die_at_any_point(undisturbed: Told, point: str, nth: int) -> None:
    name = f"{point} {nth}".replace(" ", "-").replace(",", "")
    trap = Trap(point, nth)
    if point.startswith("takeover") and nth > 1:
        trap = TwoTraps(point, 2)  # a second takeover needs a death before it
    story = asyncio.run(tell(name, trap))
    assert trap.sprung, f"the point {point!r} was never reached {nth} times"
    deaths = 2 if isinstance(trap, TwoTraps) else 1
    without_fence = point == "takeover sent" or (point == "batch sent" and nth == 1)
    assert story.fences == 1 + deaths - without_fence
    assert story == undisturbed


@dataclass
class TwoTraps(Trap):
    """Kills once at a merge, so that there is a second takeover to die in."""

    first: Trap = field(default_factory=lambda: Trap("merge sent", 2))

    def at(self, point: str) -> None:
        self.first.at(point)
        super().at(point)


def test_answers_may_be_lost_without_a_death(undisturbed: Told) -> None:
    async def tell_deaf() -> Told:
        story = await open_story(forgetful("deaf"), memory_places("deaf"))
        talk = asyncio.create_task(story.learners())
        places = trapped(story, Trap("never"))
        deaf = TrappedTape(story.places.tape, Trap("never"), loses=lambda batch: True)
        await asyncio.wait_for(run_syncer(story.config, "s", replace(places, tape=deaf)), 60)
        await talk
        return await told(story)

    assert asyncio.run(tell_deaf()) == undisturbed
