"""A leader's two asks of retention: what they find, and that trouble with them stops nobody."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from decodiloco.errors import BlobCorrupt, BlobMissing, StoreDenied
from decodiloco.places import Places
from decodiloco.store.keys import global_key, named_by, snapshot_key
from decodiloco.store.memory import MemoryStore
from decodiloco.store.retention import Named
from decodiloco.store.small import put_small
from decodiloco.syncer.carrying import Carrier
from decodiloco.syncer.owed import CloseRun, RaiseHorizon, SweepStore
from decodiloco.syncer.snapshot import encode_state
from decodiloco.syncer.state import Horizon, Retention, Snapshot, State
from decodiloco.syncer.sweeping import facts_for, let_go, raise_horizon
from streams.events import HorizonRaised, StoreSwept
from tests.builders import manifest, offered
from tests.scripted import config_of, memory_places, open_story

CLOSE = CloseRun(0, 1, 0.0)


class Denying(MemoryStore):
    """A store whose keeper lets nobody delete."""

    def delete(self, key: str) -> None:
        raise StoreDenied(f"blob {key}: access is denied")


async def ready(name: str) -> tuple[Places, State]:
    """An opened run whose only state is stored as a snapshot, which is the next horizon."""
    places = memory_places(name)
    story = await open_story(config_of(name, retention={"keep_merges": 1}), places)
    state = await story.state()
    at = state.position
    stored = put_small(places.store, lambda m: snapshot_key(state.run, at, m), encode_state(state))
    return places, replace(state, retention=Retention(next=Snapshot(at, 0, stored)))


def test_a_horizon_names_the_snapshot_that_was_read() -> None:
    places, state = asyncio.run(ready("named"))
    assert state.retention.next is not None
    ask = RaiseHorizon(state.position)
    facts = asyncio.run(facts_for(places, state, ask))

    draft = raise_horizon(places.store, state, ask, facts)

    ripe = replace(state, step=1)
    expected = HorizonRaised(
        position=state.position, snapshot=state.retention.next.manifest, kept=()
    )
    assert draft.decide(ripe) == expected
    assert draft.decide(state) is None, "not enough merges stand behind it yet"


def test_no_horizon_is_raised_to_bytes_that_are_not_there() -> None:
    places, state = asyncio.run(ready("absent"))
    ask = RaiseHorizon(state.position)
    key = global_key(state.run, 0, 0, state.parameters[0])
    places.store.delete(key)
    with pytest.raises(BlobMissing, match=key):
        raise_horizon(places.store, state, ask, [])

    snapshot = state.retention.next
    assert snapshot is not None
    key = snapshot_key(state.run, snapshot.position, snapshot.manifest)
    places.store.delete(key)
    places.store.put(key, [bytes(snapshot.manifest.bytes)])
    with pytest.raises(BlobCorrupt, match="does not match its digest"):
        raise_horizon(places.store, state, ask, [])


def test_a_sweep_deletes_what_was_let_go_of_and_says_how_much() -> None:
    _, state = asyncio.run(ready("swept"))
    at = state.position
    state = replace(state, retention=Retention(horizon=Horizon(at, at, ())))
    facts = [Named(at, offered("a", manifest=manifest("delta", 5)))]
    (key, _) = named_by(state.run, facts[0].event)[0]
    store, ask = MemoryStore("swept"), SweepStore(at)
    store.put(key, [b"bytes"])

    draft = let_go(store, state, ask, facts, lambda: None)

    assert store.size(key) is None
    assert draft.decide(state) == StoreSwept(position=at, blobs=1, bytes=5)
    with pytest.raises(StoreDenied):
        let_go(Denying("denied"), state, ask, facts, lambda: None)


def test_trouble_with_a_horizon_stops_neither_the_carrier_nor_its_other_jobs() -> None:
    async def story() -> None:
        places, state = await ready("troubled")
        state = replace(state, retention=Retention(next=Snapshot(1, 0, manifest("gone"))))
        done: asyncio.Queue[str] = asyncio.Queue()
        carrier = Carrier(places, 1, lambda key, draft: done.put_nowait(key))
        asks = (RaiseHorizon(1), CLOSE)
        async with asyncio.timeout(20):
            carrier.compare(state, asks)
            assert await done.get() == CLOSE.key
            carrier.forget(CLOSE.key)
            carrier.compare(state, asks)
            assert await done.get() == CLOSE.key
        carrier.check()
        await carrier.close()
        assert done.empty()

    asyncio.run(story())
