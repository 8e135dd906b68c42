"""A leader whose tape takes its time says that it waits, in its heartbeat, and then no more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from decodiloco.places import Places
from decodiloco.status_view import followed, lines_of, report_of
from decodiloco.store.memory import memory_store
from decodiloco.syncer.service import run_syncer
from streams.envelope import Envelope
from streams.memory import MemoryInbox, MemoryPulse, MemoryTape
from streams.pulse import Beat, Pulse
from streams.tape import Outcome
from tests.scripted import config_of, open_story

TIMES = {"heartbeat_seconds": 0.02, "takeover_seconds": 0.1, "lost_seconds": 20.0}


class StuckTape(MemoryTape):
    """A tape that answers its fourth append only when it is told to."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.appends = 0
        self.freed = asyncio.Event()

    async def append(self, batch: Sequence[Envelope]) -> Outcome:
        self.appends += 1
        if self.appends == 4:
            await self.freed.wait()
        return await super().append(batch)


async def beat_that(pulse: Pulse, waits: bool) -> Beat:
    """The leader's next heartbeat that tells of a wait, or of none."""
    async with aclosing(pulse.listen()) as beats:
        async for beat in beats:
            if beat.values.get("leading") == 1 and bool(beat.text("waiting")) == waits:
                return beat
    raise AssertionError("the pulse has ended")


def test_a_leader_says_that_it_waits_for_the_tape_and_status_tells_it() -> None:
    async def story() -> None:
        name = "stuck"
        tape, pulse = StuckTape(name), MemoryPulse(name)
        places = Places(tape, {"home": MemoryInbox(name)}, pulse, memory_store(name))
        config = config_of(name, times=TIMES)
        run = await open_story(config, places)
        async with asyncio.timeout(60):
            playing = asyncio.gather(run.learners(), run_syncer(config, "s", places))
            waiting = await beat_that(pulse, waits=True)
            assert waiting.text("waiting") == "tape"
            told = followed(run.opening)
            for envelope in await tape.read(0):
                told.hear(envelope)
            lines = lines_of(report_of(told, {"syncer/s": waiting}, 0.0))
            assert "s leads (fence 1), waits for the tape; stands by: nobody" in lines[1]
            tape.freed.set()
            assert (await beat_that(pulse, waits=False)).values["fence"] == 1
            await playing
        assert (await run.state()).closed is not None

    asyncio.run(story())
