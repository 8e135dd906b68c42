"""What a session does when the store or the run itself is not as it should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from decodiloco.errors import Disagreement, StoreDenied, StoreUnreachable
from decodiloco.learner.network import NetworkThread
from decodiloco.store.memory import MemoryStore
from streams.codec import seal
from streams.errors import Failure
from streams.events import FragmentMerged, LearnerLeft, RunClosed, RunClosing
from tests.builders import digest
from tests.hand_run import small_model
from tests.learner_cluster import Cluster, config_of, step


class TroubledStore:
    """The blobs of another store, through a network that fails as it is told."""

    def __init__(self, behind: MemoryStore) -> None:
        self.url = behind.url
        self.failure: Failure | None = None
        self.failures = 0
        self._behind = behind

    def put(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        self._fail()
        self._behind.put(key, parts)

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> bytes | memoryview:
        self._fail()
        return self._behind.read(key, start, stop, anew)

    def size(self, key: str) -> int | None:
        self._fail()
        return self._behind.size(key)

    def keys(self, prefix: str) -> list[str]:
        return self._behind.keys(prefix)

    def delete(self, key: str) -> None:
        self._behind.delete(key)

    def close(self) -> None:
        self._behind.close()

    def _fail(self) -> None:
        if self.failure is not None:
            self.failures += 1
            raise self.failure


def troubled(cluster: Cluster) -> TroubledStore:
    """From now on, learners of this cluster reach the store through a bad network."""
    behind = cluster.places.store
    assert isinstance(behind, MemoryStore)
    store = TroubledStore(behind)
    cluster.learner_places = replace(cluster.places, store=store)
    return store


def test_a_store_that_cannot_be_reached_is_ridden_over_while_training_goes_on() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    store = troubled(cluster)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        store.failure = StoreUnreachable("the store is away")
        for seed in count():
            step(session, model, optimizer, seed)
            if store.failures >= 2:
                break
        assert cluster.facts(FragmentMerged) == []
        store.failure = None
        for seed in count(100):
            step(session, model, optimizer, seed)
            if cluster.facts(FragmentMerged):
                break
        session.close()
    assert len(cluster.facts(LearnerLeft)) == 1


def test_a_store_that_does_not_allow_it_ends_the_session() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    store = troubled(cluster)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        store.failure = StoreDenied("no right to write")
        with pytest.raises(StoreDenied, match="no right to write"):
            for seed in count():
                step(session, model, optimizer, seed)


def test_a_last_model_that_is_not_the_run_s_is_an_alarm() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    opened = cluster.records()[0]
    closing = RunClosing(speaker="s", life=0, said=0, reason="asked")
    closed = RunClosed(reason="asked", step=0, tokens=0, versions=(0, 0), digest=digest("another"))
    first = seal(2, opened.digest, 0, "s", None, 0.0, closing)
    second = seal(3, first.digest, 0, "s", None, 0.0, closed)
    network = NetworkThread("writer")
    network.call(cluster.tape.append([first, second]))
    network.stop()
    with pytest.raises(Disagreement, match="learner a holds a model of digest"):
        cluster.join("a", model)
