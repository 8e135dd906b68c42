"""Sessions as users have them: real threads, a real syncer, places in memory."""

from __future__ import annotations

from itertools import count

import pytest
import torch
from torch import nn

import decodiloco
from decodiloco.errors import ConfigDiffers, LayoutDiffers, LifeEnded, Orphaned, Quarantined
from decodiloco.fragments.of_model import trained
from decodiloco.learner.session import join
from decodiloco.places import Places
from decodiloco.store.memory import memory_store
from streams.errors import AskedWrongly, StreamExists
from streams.events import CheckpointStored, LearnerJoined, LearnerLeft, LearnerLost, RunClosed
from streams.memory import MemoryInbox, MemoryPulse, MemoryTape
from tests.hand_run import small_model
from tests.learner_cluster import Cluster, config_of, step


@pytest.mark.parametrize("carry", [False, True])
def test_a_session_trains_to_the_end_and_holds_the_run_s_model(carry: bool) -> None:
    model = small_model()
    cluster = Cluster(config_of(end_steps=6, adoption={"carry": carry}), model)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        with session:
            assert (session.slot, session.cursor, session.incarnation > 1) == (0, None, True)
            for seed in count():
                step(session, model, optimizer, seed)
                if session.finished:
                    break
        assert session.clock.step >= 6 and session.clock.closing
    left = cluster.facts(LearnerLeft)[-1]
    closed = cluster.facts(RunClosed)[0]
    assert isinstance(left, LearnerLeft) and isinstance(closed, RunClosed)
    assert (left.reason, left.digest) == ("finished", closed.digest)
    with pytest.raises(AskedWrongly, match="has ended"):
        session.step(tokens=8, loss=1.0)


def test_a_session_joins_a_closed_run_as_finished() -> None:
    model = small_model()
    cluster = Cluster(config_of(end_steps=2), model)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        for seed in count():
            step(session, model, optimizer, seed)
            if session.finished:
                break
    late = small_model(seed=9)
    session, _ = cluster.join("b", late)
    assert (session.finished, session.incarnation, session.slot) == (True, 0, 0)
    for ours, theirs in zip(model.parameters(), late.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_second_life_goes_on_with_cursor_slot_and_moments() -> None:
    model = small_model()
    cluster = Cluster(config_of(training={"checkpoint_steps": 2}), model)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        for seed in count():
            step(session, model, optimizer, seed)
            if cluster.facts(CheckpointStored):
                break
        session.leave("preempted")
        session, optimizer = cluster.join("a", small_model(seed=4))
        joins = cluster.facts(LearnerJoined)
        session.close()
    assert isinstance(joins[1], LearnerJoined)
    assert (session.cursor, session.slot) == ({"at": seed}, 0)
    assert joins[1].moments.source == "own"
    assert (joins[1].learner_step, joins[1].tokens_trained) == (seed + 1, 8 * (seed + 1))
    left = cluster.facts(LearnerLeft)
    assert [word.reason for word in left if isinstance(word, LearnerLeft)] == ["preempted", "asked"]
    assert optimizer.state


def test_a_failure_in_the_loop_is_told_as_the_reason() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    with cluster.syncer():
        with pytest.raises(ZeroDivisionError), cluster.join("a", model)[0]:
            raise ZeroDivisionError
        left = cluster.facts(LearnerLeft)
    assert [word.reason for word in left if isinstance(word, LearnerLeft)] == ["failed"]


def test_a_newer_life_ends_the_older_session() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    with cluster.syncer():
        older, optimizer = cluster.join("a", model)
        newer, _ = cluster.join("a", small_model())
        with pytest.raises(LifeEnded, match="a newer life of learner a joined at position"):
            for seed in range(10_000):
                step(older, model, optimizer, seed)
        newer.close()
        older.close()


def test_a_learner_that_hears_nothing_stores_its_inner_state_and_stops() -> None:
    model = small_model()
    times = {
        "takeover_seconds": 0.2,
        "heartbeat_seconds": 0.05,
        "lost_seconds": 0.3,
        "orphan_seconds_max": 0.5,
    }
    cluster = Cluster(config_of(times=times), model)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
    before = len(memory_store(cluster.config.run.name)._blobs)
    with pytest.raises(Orphaned, match="nothing was heard"):
        for seed in range(1_000_000):
            step(session, model, optimizer, seed)
    keys = list(memory_store(cluster.config.run.name)._blobs)[before:]
    assert any("/checkpoint/a/" in key for key in keys)


def test_a_second_opening_is_refused_and_so_is_another_config() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    with pytest.raises(StreamExists, match="is open already"):
        decodiloco.open_run(cluster.config, model, cluster.places)
    other = cluster.config.model_copy(
        update={"run": cluster.config.run.model_copy(update={"inner_steps": 9})}
    )
    with pytest.raises(ConfigDiffers, match=r"run\.inner_steps is 9 here and 2 in the run"):
        decodiloco.open_run(other, model, cluster.places)
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(ConfigDiffers, match=r"run\.inner_steps is 9 here and 2 in the run"):
        join(other, "a", model, optimizer, cluster.places)


def test_another_model_is_refused_by_the_tensor_that_differs() -> None:
    cluster = Cluster(config_of(), small_model())
    other = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 6), nn.Linear(6, 3))
    with pytest.raises(LayoutDiffers, match=r"1\.bias: shape is \(6,\) here and \(5,\)"):
        cluster.join("a", other)


def test_a_run_that_is_not_open_is_told_so() -> None:
    config = config_of()
    run = config.run.name
    places = Places(
        MemoryTape(run), {"home": MemoryInbox(run)}, MemoryPulse(run), memory_store(run)
    )
    model = small_model()
    with pytest.raises(AskedWrongly, match="is not open"):
        join(config, "a", model, torch.optim.AdamW(model.parameters()), places)


def test_a_cursor_that_cannot_be_kept_is_refused_and_nothing_is_counted() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    with cluster.syncer():
        session, _ = cluster.join("a", model)
        with session:
            with pytest.raises(AskedWrongly, match="at most 1024"):
                session.step(tokens=8, loss=1.0, cursor=bytes(2000))
            with pytest.raises(AskedWrongly, match="no msgpack value"):
                session.step(tokens=8, loss=1.0, cursor=object())
            session.step(tokens=8, loss=1.0)
            session.leave()
    left = cluster.facts(LearnerLeft)[0]
    assert isinstance(left, LearnerLeft) and left.learner_step == 1


def test_two_learners_end_on_the_same_model() -> None:
    first, second = small_model(), small_model(seed=5)
    cluster = Cluster(config_of(end_steps=8), first)
    with cluster.syncer():
        pairs = [(first, *cluster.join("a", first)), (second, *cluster.join("b", second))]
        for seed, (model, session, optimizer) in enumerate(pairs * 100_000):
            if not session.finished:
                step(session, model, optimizer, seed)
            if all(session.finished for _, session, _ in pairs):
                break
    for name, tensor in trained(first).tensors.items():
        assert torch.equal(tensor, trained(second).tensors[name])


def test_a_quarantined_session_ends_and_says_why() -> None:
    model = small_model()
    cluster = Cluster(config_of(), model)
    with cluster.syncer():
        session, optimizer = cluster.join("a", model)
        life = next(r.position for r in cluster.records() if isinstance(r.event, LearnerJoined))
        lost = LearnerLost(
            learner="a",
            incarnation=life,
            reason="quarantined",
            silent_seconds=0.0,
            why="direction: cosine -0.400 with the others, 0.500 among them",
        )
        cluster.append(lost)
        with pytest.raises(Quarantined, match=r"a is quarantined since position \d+, for dir"):
            for seed in range(10_000):
                step(session, model, optimizer, seed)
