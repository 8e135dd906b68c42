"""A merger's process: it beats, answers, and ends when the run does or nobody leads any more."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from decodiloco.errors import Orphaned
from decodiloco.merger.orders import Failed, decode_answer
from decodiloco.merger.service import Merger
from decodiloco.places import Places
from streams.memory import MemoryCalls
from streams.pulse import Beat
from tests.scripted import config_of, memory_places


def places_of(name: str) -> Places:
    return replace(memory_places(name), calls=MemoryCalls(name))


def merger_of(name: str, places: Places, **times: float) -> Merger:
    wanted = {"heartbeat_seconds": 0.1, "takeover_seconds": 0.5, **times}
    return Merger(config_of(name, times=wanted), "m1", places)


def test_it_beats_and_answers_until_a_syncer_says_that_the_run_is_closed() -> None:
    async def story() -> None:
        places = places_of("closed")
        running = asyncio.create_task(merger_of("closed", places).run())
        async for beat in places.pulse.listen():
            if beat == Beat("merger", "m1", {"working": 0, "merges": 0}):
                break
        assert places.calls is not None
        answer = await places.calls.call("m1", b"nothing of the kind")
        assert answer is not None and isinstance(decode_answer(answer), Failed)
        await places.pulse.beat(Beat("syncer", "s1", {"closed": 0, "leading": 1}))
        await places.pulse.beat(Beat("learner", "a", {"closed": 1}))
        await asyncio.sleep(0.05)
        assert not running.done()
        await places.pulse.beat(Beat("syncer", "s1", {"closed": 1, "leading": 1}))
        await running
        assert await places.calls.call("m1", b"") is None

    asyncio.run(asyncio.wait_for(story(), 20))


def test_it_ends_when_no_syncer_is_heard_any_more() -> None:
    async def story() -> None:
        places = places_of("orphaned")
        with pytest.raises(BaseExceptionGroup) as caught:
            await merger_of("orphaned", places, lost_seconds=0.6, orphan_seconds_max=1.0).run()
        (error,) = caught.value.exceptions
        assert isinstance(error, Orphaned)
        assert "no syncer was heard for 1 s; start one" in str(error)

    asyncio.run(asyncio.wait_for(story(), 20))
