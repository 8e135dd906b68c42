"""What every body of the pulse promises: little, but never to stand in the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing

from streams.pulse import Beat, Pulse, decode_beat, encode_beat
from tests.contract.records import Ground, Record

LEARNER = Beat("learner", "a", {"incarnation": 3, "loss": 2.5, "waiting": "", "learner_step": 7})
SYNCER = Beat("syncer", "syncer-1", {"fence": 1, "position": 12, "leading": 1})


async def heard(pulse: Pulse, following: AsyncGenerator[Beat, None], beat: Beat) -> Beat:
    """What a listener hears first while a beat is sent again and again, as beats are."""
    coming = asyncio.create_task(anext(following))
    while not coming.done():
        await pulse.beat(beat)
        await asyncio.wait({coming}, timeout=0.02)
    return await coming


def test_a_listener_hears_the_beats_of_its_run(ground: Ground) -> None:
    async def story(record: Record) -> None:
        async with aclosing(record.pulse.listen()) as listening:
            assert await heard(record.pulse, listening, LEARNER) == LEARNER
            await record.pulse.beat(SYNCER)
            while (beat := await anext(listening)) == LEARNER:
                pass
            assert beat == SYNCER

    ground.tell(story)


def test_every_listener_hears_every_beat(ground: Ground) -> None:
    async def story(record: Record) -> None:
        async with (
            aclosing(record.pulse.listen()) as one,
            aclosing(record.pulse.listen()) as other,
        ):
            assert await heard(record.pulse, one, SYNCER) == SYNCER
            assert await heard(record.pulse, other, SYNCER) == SYNCER

    ground.tell(story)


def test_a_beat_that_nobody_hears_is_no_trouble(ground: Ground) -> None:
    async def story(record: Record) -> None:
        for _ in range(100):
            await record.pulse.beat(LEARNER)

    ground.tell(story)


def test_a_listener_that_sleeps_keeps_the_newest_beats(ground: Ground) -> None:
    async def story(record: Record) -> None:
        async with aclosing(record.pulse.listen()) as listening:
            await heard(record.pulse, listening, LEARNER)
            for position in range(3000):
                await record.pulse.beat(Beat("syncer", "s", {"position": position}))
            async for beat in listening:
                if beat.values.get("position") == 2999:
                    break

    ground.tell(story)


def test_bytes_that_are_no_beat_are_none() -> None:
    assert decode_beat("learner", "a", encode_beat(LEARNER)) == LEARNER
    for payload in (b"", b"\xc1", b"\x90", b"\x81\xa1a\xc0", b"\x81\x01\x02", b"\x00" * 9999):
        assert decode_beat("learner", "a", payload) is None
    assert decode_beat("stranger", "a", encode_beat(LEARNER)) is None


def test_beats_cross_threads() -> None:
    """The pulse in memory stands in for a server that all threads of a test share."""

    async def story(record: Record) -> None:
        stop = threading.Event()

        async def beating() -> None:
            while not stop.is_set():
                await record.pulse.beat(LEARNER)
                await asyncio.sleep(0.005)

        thread = threading.Thread(target=lambda: asyncio.run(beating()))
        thread.start()
        try:
            async with aclosing(record.pulse.listen()) as listening:
                assert await anext(listening) == LEARNER
        finally:
            stop.set()
            await asyncio.to_thread(thread.join)

    Ground(None).tell(story)
