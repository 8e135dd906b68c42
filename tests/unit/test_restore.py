"""An archive looked through before anything is restored from it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import decodiloco
from decodiloco.archive.keeper import archive
from decodiloco.archive.restore import Found, examine
from decodiloco.errors import BlobMissing
from decodiloco.places import Places
from decodiloco.store.keys import named_by
from decodiloco.training.gpt import build
from streams.chain import Chain
from streams.codec import seal
from streams.errors import StreamMissing
from streams.events import Event, FragmentMerged
from streams.memory import MemoryTape
from tests.builders import merged, took_over
from tests.scripted import Story, config_of, memory_places, open_story


async def archived(story: Story, *events: Event) -> None:
    """These facts go onto the tape, and it into the archive."""
    places = story.places
    (first,) = await places.tape.read(0, 1)
    chain = Chain(first.event.run, 1, first.digest)  # type: ignore[union-attr]
    for event in events:
        record = seal(chain.position + 1, chain.tip, 1, "s", None, 0.0, event)
        await places.tape.append([record])
        chain = chain.then(record)
    await archive(places.tape, places.store, asyncio.Event(), 0.0, once=True)


def store_blobs(places: Places, event: FragmentMerged) -> None:
    for key, manifest in named_by(places.tape.run, event):
        places.store.put(key, [bytes(manifest.bytes)])


def looked_through(name: str, *stored: int) -> Found:
    """An archive of two merges of one fragment, of which these versions' bytes are there."""
    merges = [merged(round=number, fragment=0, version=number) for number in (1, 2)]

    async def story() -> Found:
        run = await open_story(config_of(name), memory_places(name))
        for event in merges:
            if event.version in stored:
                store_blobs(run.places, event)
        await archived(run, took_over(), *merges)
        return await asyncio.to_thread(examine, run.config, run.places.store)

    return asyncio.run(story())


def test_an_archive_whose_newest_versions_are_there_can_be_gone_on_from() -> None:
    found = looked_through("there", 2)

    assert (found.chain.position, found.step) == (4, 3)


def test_a_run_whose_tape_is_lost_is_not_opened_anew_beside_its_archive() -> None:
    places = memory_places("lost")
    model = {"layers": 1, "width": 8, "heads": 1, "context": 8}
    config = config_of("lost", model=model)
    decodiloco.open_run(config, build(config.run.model), places)
    asyncio.run(archive(places.tape, places.store, asyncio.Event(), 0.0, once=True))
    lost = replace(places, tape=MemoryTape("lost"))

    with pytest.raises(StreamMissing, match=r"with `decodiloco restore`.* delete lost/archive/"):
        decodiloco.open_run(config, build(config.run.model), lost)

    assert asyncio.run(lost.tape.last()) == 0


def test_an_archive_that_ends_below_a_later_horizon_is_refused_before_a_server_is_touched() -> None:
    told = r"ends at position 4, .* blob behind/global/f0/2-\w+ is not in memory://behind any more"
    with pytest.raises(BlobMissing, match=told):
        looked_through("behind", 1)
