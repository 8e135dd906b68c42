"""How a life ends before its run: in time whatever hangs, told where it can be, and for good."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from threading import Event

import pytest
from structlog.testing import capture_logs

from decodiloco.errors import LifeEnded, Orphaned
from decodiloco.learner import transport
from decodiloco.store.blobs import Part
from decodiloco.store.memory import MemoryStore
from streams.errors import PermissionDenied, ServerUnreachable
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    LearnerJoined,
    LearnerLeft,
    RoundOpened,
    Word,
)
from streams.memory import MemoryInbox
from tests.hand_run import small_model
from tests.learner_cluster import Cluster, config_of, step

SOON = {"takeover_seconds": 0.2, "heartbeat_seconds": 0.05, "lost_seconds": 0.5}


class HangingStore:
    """A store that answers only while its gate is open."""

    def __init__(self, behind: MemoryStore) -> None:
        self.url = behind.url
        self.gate = Event()
        self.gate.set()
        self.waiting = Event()
        self._behind = behind

    def put(self, key: str, parts: Sequence[Part]) -> None:
        self._pass()
        self._behind.put(key, parts)

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        self._pass()
        return self._behind.read(key, start, stop, anew)

    def size(self, key: str) -> int | None:
        return self._behind.size(key)

    def keys(self, prefix: str) -> list[str]:
        return self._behind.keys(prefix)

    def delete(self, key: str) -> None:
        raise AssertionError("a learner deletes nothing")

    def close(self) -> None:
        self._pass()

    def _pass(self) -> None:
        if not self.gate.is_set():
            self.waiting.set()
            self.gate.wait()


class BadInbox(MemoryInbox):
    """An inbox that can be made to fail."""

    failure: Exception | None = None

    async def say(self, word: Word) -> int:
        if self.failure is not None:
            raise self.failure
        return await super().say(word)


def behind(cluster: Cluster) -> MemoryStore:
    store = cluster.places.store
    assert isinstance(store, MemoryStore)
    return store


def hanging(cluster: Cluster) -> HangingStore:
    store = HangingStore(behind(cluster))
    cluster.learner_places = replace(cluster.places, store=store)
    return store


def bad_inbox(cluster: Cluster) -> BadInbox:
    inbox = BadInbox(cluster.config.run.name)
    cluster.places = replace(cluster.places, inboxes={"home": inbox})
    cluster.learner_places = cluster.places
    return inbox


def words(cluster: Cluster) -> list[object]:
    said = (LearnerLeft, CheckpointStored, LearnerJoined)
    return [record.event for record in cluster.records() if isinstance(record.event, said)]


def test_who_leaves_stores_its_moments_first_and_comes_back_with_them() -> None:
    model = small_model()
    cluster = Cluster(config_of(training={"checkpoint_steps": 1000}), model)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        for seed in range(5):
            step(session, model, optimizer, seed)
        assert session.leave("preempted")
        again, _ = cluster.join("a", small_model(seed=4))
        again.close()
    _, stored, left, joined, *_ = words(cluster)
    assert isinstance(stored, CheckpointStored) and isinstance(left, LearnerLeft)
    assert (stored.learner_step, left.learner_step, left.reason) == (5, 5, "preempted")
    assert isinstance(joined, LearnerJoined)
    assert (joined.moments.source, joined.learner_step) == ("own", 5)


def test_who_has_trained_nothing_claims_no_checkpoint() -> None:
    cluster = Cluster(config_of(), small_model())
    with capture_logs() as lines, cluster.syncer():
        session, _ = cluster.join("a", small_model())
        assert session.leave("preempted")
    (told,) = [line for line in lines if line["event"] == "leaves"]
    assert told["checkpoint"] == "it had no inner state to store since it joined"


def test_a_store_that_hangs_delays_a_farewell_by_a_bounded_time() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    store = hanging(cluster)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        store.gate.clear()
        for seed in count():
            step(session, model, optimizer, seed)
            if store.waiting.is_set():
                break
        begun_seconds = time.monotonic()
        told = session.leave("preempted", within_seconds=2.0)
        took_seconds = time.monotonic() - begun_seconds
    store.gate.set()
    assert told and took_seconds < 10.0
    left = cluster.facts(LearnerLeft)
    assert [fact.reason for fact in left if isinstance(fact, LearnerLeft)] == ["preempted"]


def test_without_a_syncer_the_last_words_lie_in_the_inbox_for_the_next_one() -> None:
    model = small_model()
    cluster = Cluster(config_of(training={"checkpoint_steps": 1000}), model)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        step(session, model, optimizer, 0)
    for seed in range(1, 4):
        step(session, model, optimizer, seed)
    assert session.leave("preempted"), "the inbox has it"
    with cluster.syncer():
        again, _ = cluster.join("a", small_model(seed=4))
        again.close()
    _, stored, left, joined, *_ = words(cluster)
    assert isinstance(stored, CheckpointStored) and stored.learner_step == 4
    assert isinstance(left, LearnerLeft) and left.reason == "preempted"
    assert isinstance(joined, LearnerJoined) and joined.learner_step == 4


def test_however_much_is_still_to_be_said_without_a_syncer_the_farewell_is_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "LAST_WORD_SECONDS", 0.8)
    model = small_model()
    cluster = Cluster(config_of(fragments=4, quorum=2), model)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
    for index in range(4):
        cluster.append(
            RoundOpened(
                round=index + 1,
                fragment=index,
                version=1,
                pace_seconds=1.0,
                grace_seconds_max=1.0,
                tokens=0,
            )
        )
    for seed in count():
        step(session, model, optimizer, seed)
        if len(session._core.state.drafts) >= 3:
            break
    assert session.leave("preempted", within_seconds=3.0), "the inbox has all of its words"
    with cluster.syncer():
        while not cluster.facts(LearnerLeft):
            continue


def test_where_nothing_answers_leaving_is_bounded_all_the_same() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    inbox = bad_inbox(cluster)
    store = HangingStore(behind(cluster))
    cluster.learner_places = replace(cluster.places, store=store)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        inbox.failure = ServerUnreachable("no server")
        store.gate.clear()
        step(session, model, optimizer, 0)
        begun_seconds = time.monotonic()
        assert not session.leave("preempted", within_seconds=1.0)
        assert time.monotonic() - begun_seconds < 12.0
    store.gate.set()
    assert cluster.facts(LearnerLeft) == []


def test_an_orphan_leaves_its_checkpoint_and_its_word_where_they_will_be_found() -> None:
    model = small_model()
    times = {**SOON, "orphan_seconds_max": 1.0}
    cluster = Cluster(config_of(times=times, training={"checkpoint_steps": 100_000}), model)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
    with pytest.raises(Orphaned, match=r"then join again \(its checkpoint of step \d+ is stored"):
        for seed in count():
            step(session, model, optimizer, seed)
    with cluster.syncer():
        while not cluster.facts(LearnerLeft):
            continue
        again, _ = cluster.join("a", small_model(seed=4))
        again.close()
    _, stored, left, joined, *_ = words(cluster)
    assert isinstance(stored, CheckpointStored) and isinstance(left, LearnerLeft)
    assert (left.reason, left.learner_step) == ("failed", stored.learner_step)
    assert isinstance(joined, LearnerJoined) and joined.moments.source == "own"


def test_a_life_that_was_succeeded_writes_nothing_more() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    store = hanging(cluster)
    with cluster.syncer():
        older, optimizer = cluster.join("a", model)
        store.gate.clear()
        for seed in count():
            step(older, model, optimizer, seed)
            if store.waiting.is_set():
                break
        cluster.learner_places = cluster.places
        newer, _ = cluster.join("a", small_model())
        with pytest.raises(LifeEnded, match="a newer life of learner a joined"):
            for seed in count():
                step(older, model, optimizer, seed)
        kept = [key for key in behind(cluster)._blobs if "/a/" in key]
        store.gate.set()
        for seed in range(6):
            newer.step(tokens=8, loss=1.0, cursor={"at": seed})
        assert newer.leave()
    lives = {fact.incarnation for fact in cluster.facts(DeltaOffered)}  # type: ignore[attr-defined]
    assert lives <= {older.incarnation, newer.incarnation}
    since = [key for key in behind(cluster)._blobs if "/a/" in key and key not in kept]
    assert len([key for key in since if f"/{older.incarnation}/" in key]) <= 4, "what hung then"
    left = cluster.facts(LearnerLeft)
    assert [fact.incarnation for fact in left if isinstance(fact, LearnerLeft)] == [
        newer.incarnation
    ]


def test_an_inbox_that_does_not_allow_it_ends_the_session_by_name() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    inbox = bad_inbox(cluster)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        inbox.failure = PermissionDenied("a may not publish to in.trial")
        with pytest.raises(PermissionDenied, match="may not publish"):
            for seed in count():
                step(session, model, optimizer, seed)


def test_a_store_that_hangs_is_told_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "HANG_SECONDS", 0.05)
    model = small_model()
    cluster = Cluster(config_of(), model)
    store = hanging(cluster)
    with capture_logs() as lines, cluster.syncer():
        session, optimizer = cluster.join("a", model)
        store.gate.clear()
        for seed in count():
            step(session, model, optimizer, seed)
            if any(line["event"] == "waits for the store" for line in lines):
                break
        store.gate.set()
        assert session.leave()
    told = [line["reason"] for line in lines if line["event"] == "waits for the store"]
    assert told[0].startswith(("storing a delta of fragment", "storing the checkpoint of"))
