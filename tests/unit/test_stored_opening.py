"""The one way into an opening: whoever comes finds what the first fact says, or is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.learner import joining
from decodiloco.opening import Opening, encode_opening, opening_fault, run_opened
from decodiloco.places import Places
from decodiloco.store.keys import opening_key
from decodiloco.store.memory import MemoryStore
from decodiloco.stored_opening import read_opening
from decodiloco.syncer.follower import catch_up
from decodiloco.syncer.state import RULES
from replay.errors import Differs
from replay.refold import refold
from replay.state import read_opening as read_in_replay
from streams.events import RunOpened
from streams.memory import MemoryPulse, MemoryTape
from tests.builders import digest, tape_of
from tests.desk import opening_of as some_opening

OPENING: Opening = some_opening()
SOUND: RunOpened = run_opened(OPENING, "memory://trial", RULES)


def stored() -> MemoryStore:
    store = MemoryStore("trial")
    payload, manifest = encode_opening(OPENING)
    store.put(opening_key("trial", manifest), [payload])
    return store


def follow(store: MemoryStore, opened: RunOpened) -> object:
    """As a syncer does that comes into the run."""
    return asyncio.run(_caught_up(store, opened))


async def _caught_up(store: MemoryStore, opened: RunOpened) -> object:
    tape = MemoryTape(opened.run)
    await tape.append(tape_of([opened], opened.run))
    return await catch_up(Places(tape, {}, MemoryPulse(opened.run), store))


DOORS: dict[str, Callable[[MemoryStore, RunOpened], object]] = {
    "visitor": read_opening,
    "learner or evaluator": lambda store, opened: joining.read_opening(store, OPENING.run, opened),
    "syncer": follow,
    "replay": read_in_replay,
    "refold": lambda store, opened: list(refold(tape_of([opened], opened.run), OPENING)),
}


@pytest.mark.parametrize("field", ["config_digest", "layout_digest"])
@pytest.mark.parametrize("door", DOORS)
def test_an_opening_of_other_settings_or_tensors_is_refused_at_every_door(
    door: str, field: str
) -> None:
    other = SOUND.model_copy(update={field: digest("another")})
    told = f"the stored opening holds {field.split('_')[0]} "
    with pytest.raises((BlobCorrupt, Differs), match=told):
        DOORS[door](stored(), other)


@pytest.mark.parametrize("door", DOORS)
def test_the_opening_of_the_first_fact_is_read_at_every_door(door: str) -> None:
    DOORS[door](stored(), SOUND)


def test_the_opening_of_another_run_is_none() -> None:
    other = SOUND.model_copy(update={"run": "other"})
    assert opening_fault(SOUND, OPENING) is None
    assert opening_fault(other, OPENING) == (
        "the stored opening holds run trial, RunOpened says other"
    )
    with pytest.raises(BlobMissing):
        read_opening(stored(), other)
