"""Long asks in threads: started once, forgotten when owed no more, begun anew when it is needed."""

from __future__ import annotations

import asyncio

import pytest

from decodiloco.errors import BlobMissing
from decodiloco.merge import loading
from decodiloco.places import Places
from decodiloco.store.memory import MemoryStore
from decodiloco.syncer.carrying import Carrier
from decodiloco.syncer.compose import Draft
from decodiloco.syncer.owed import CloseRun, StoreSnapshot
from streams.errors import Trouble
from streams.memory import MemoryInbox, MemoryPulse, MemoryTape
from tests.scripted import config_of, memory_places, open_story

CLOSE = CloseRun(0, 1, 0.0)


class Desk:
    """What a carrier gives back, and a bell."""

    def __init__(self, places: Places) -> None:
        self.drafts: list[tuple[str, Draft]] = []
        self.bell = asyncio.Event()
        self.carrier = Carrier(places, 2, self.take)

    def take(self, key: str, draft: Draft) -> None:
        self.drafts.append((key, draft))
        self.bell.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.drafts) < count:
                self.bell.clear()
                await self.bell.wait()


def test_an_ask_is_carried_out_once_until_it_is_forgotten() -> None:
    async def story() -> None:
        places = memory_places("carried")
        state = await (await open_story(config_of("carried"), places)).state()
        desk = Desk(places)
        desk.carrier.compare(state, (CLOSE,))
        await desk.until(1)
        desk.carrier.compare(state, (CLOSE, StoreSnapshot(0)))
        await desk.until(2)
        assert [key for key, _ in desk.drafts] == [CLOSE.key, StoreSnapshot(0).key]
        desk.carrier.forget(CLOSE.key)
        desk.carrier.compare(state, (CLOSE, StoreSnapshot(0)))
        await desk.until(3)
        assert desk.drafts[2][0] == CLOSE.key, "still owed after its draft came to nothing"
        await desk.carrier.close()

    asyncio.run(story())


def test_an_ask_that_is_owed_no_more_and_again_is_carried_out_again() -> None:
    async def story() -> None:
        places = memory_places("again")
        state = await (await open_story(config_of("again"), places)).state()
        desk = Desk(places)
        for count in (1, 2):
            desk.carrier.compare(state, (CLOSE,))
            await desk.until(count)
            desk.carrier.compare(state, ())
        await desk.carrier.close()

    asyncio.run(story())


def test_what_merges_nothing_needs_no_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> bool:
        raise Trouble("the loops could not be loaded")

    async def story() -> None:
        places = memory_places("loopless")
        state = await (await open_story(config_of("loopless"), places)).state()
        monkeypatch.setattr(loading, "are_ready", missing)
        desk = Desk(places)
        desk.carrier.compare(state, (StoreSnapshot(0),))
        while not desk.drafts:
            desk.carrier.check()
            await asyncio.sleep(0.01)
        await desk.carrier.close()

    asyncio.run(story())


def test_what_a_job_dies_of_is_raised() -> None:
    async def story() -> None:
        places = memory_places("broken")
        state = await (await open_story(config_of("broken"), places)).state()
        empty = Places(
            MemoryTape("broken"),
            {"home": MemoryInbox("broken")},
            MemoryPulse("broken"),
            MemoryStore("empty"),
        )
        desk = Desk(empty)
        desk.carrier.compare(state, (CLOSE,))
        async with asyncio.timeout(20):
            with pytest.raises(BlobMissing):
                while True:
                    desk.carrier.check()
                    await asyncio.sleep(0)
        assert desk.drafts == []
        await desk.carrier.close()

    asyncio.run(story())
