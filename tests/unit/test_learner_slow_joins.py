"""A joiner that gets on, however slowly, joins: only what stands still is given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from threading import Event

import pytest

from decodiloco.errors import Orphaned
from decodiloco.learner import transport
from decodiloco.store.blobs import Part
from decodiloco.store.memory import MemoryStore
from streams.envelope import Envelope
from streams.memory import MemoryTape
from tests.hand_run import small_model
from tests.learner_cluster import Cluster, config_of

TIMES = {
    "takeover_seconds": 0.2,
    "heartbeat_seconds": 0.05,
    "lost_seconds": 0.4,
    "orphan_seconds_max": 0.5,
}


class SlowStore:
    """A store of which each read takes a while."""

    def __init__(self, behind: MemoryStore, seconds: float) -> None:
        self.url = behind.url
        self._behind = behind
        self._seconds = seconds

    def put(self, key: str, parts: Sequence[Part]) -> None:
        self._behind.put(key, parts)

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        if "/global/" in key:
            Event().wait(self._seconds)
        return self._behind.read(key, start, stop, anew)

    def size(self, key: str) -> int | None:
        return self._behind.size(key)

    def keys(self, prefix: str) -> list[str]:
        return self._behind.keys(prefix)

    def delete(self, key: str) -> None:
        raise AssertionError("a learner deletes nothing")

    def close(self) -> None:
        """Nothing is held open."""


class SlowTape(MemoryTape):
    """A tape of which a follower gets a record now and then, up to some position."""

    def __init__(self, behind: MemoryTape, seconds: float, stop: int = 2**53) -> None:
        super().__init__(behind.run)
        self._records, self._bell = behind._records, behind._bell
        self._seconds, self._stop = seconds, stop

    async def follow(
        self, after: int, learner: str | None = None
    ) -> AsyncGenerator[Envelope, None]:
        async with aclosing(super().follow(after, learner)) as records:
            async for envelope in records:
                await asyncio.sleep(self._seconds if envelope.position <= self._stop else 3600.0)
                yield envelope


@pytest.fixture(autouse=True)
def _told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "HANG_SECONDS", 0.02)
    monkeypatch.setattr(transport, "SYNCER_TELL_SECONDS", 0.02)
    monkeypatch.setattr(transport, "JOIN_FETCH_SECONDS_MAX", 0.02)
    monkeypatch.setattr(transport, "UPLOADS_AT_ONCE", 1)


def test_a_fetch_that_waits_for_those_before_it_is_not_a_store_that_hangs() -> None:
    model = small_model()
    cluster = Cluster(config_of(fragments=5, times=TIMES), model)
    slow = SlowStore(_store_of(cluster), 0.15)
    cluster.learner_places = replace(cluster.places, store=slow)
    with cluster.syncer():
        session, _ = cluster.join("a", small_model(seed=4))
        session.close()


def test_a_long_tape_is_read_to_its_end_as_long_as_it_is_given() -> None:
    cluster = _with_a_long_tape()
    cluster.learner_places = replace(cluster.places, tape=SlowTape(cluster.tape, 0.1))
    with cluster.syncer():
        session, _ = cluster.join("b", small_model(seed=4))
        session.close()


def test_a_tape_that_stands_still_is_given_up() -> None:
    cluster = _with_a_long_tape()
    cluster.learner_places = replace(cluster.places, tape=SlowTape(cluster.tape, 0.01, stop=2))
    with cluster.syncer(), pytest.raises(Orphaned, match=r"up to 2 of \d+, and no further in 0"):
        cluster.join("b", small_model(seed=4))


def _with_a_long_tape() -> Cluster:
    """A run whose tape has more than ten facts for everybody."""
    model = small_model()
    cluster = Cluster(config_of(times=TIMES), model)
    while len(cluster.tape._records) < 12:
        with cluster.syncer():
            session, _ = cluster.join("a", model)
            session.close()
    return cluster


def _store_of(cluster: Cluster) -> MemoryStore:
    store = cluster.places.store
    assert isinstance(store, MemoryStore)
    return store
