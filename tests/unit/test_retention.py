"""Which facts' bytes are kept below a horizon, and which blobs go: from facts alone."""

from __future__ import annotations

import asyncio

import pytest

from decodiloco.store.keys import named_by
from decodiloco.store.memory import MemoryStore
from decodiloco.store.policies import SWEPT
from decodiloco.store.retention import Named, Needs, going, kept_below, may_go
from decodiloco.store.sweep import named_facts, sweep
from streams.errors import ChainBroken
from streams.events import EVENTS, CheckpointStored, DeltaOffered, FragmentMerged, SnapshotStored
from streams.memory import MemoryTape
from tests.builders import (
    RUN,
    checkpointed,
    manifest,
    merged,
    offered,
    one_of_each,
    opened,
    snapshot_stored,
    tape_of,
)

FACTS = [
    Named(2, offered("a", fragment=0, learner_step=3)),
    Named(3, offered("b", fragment=0, learner_step=3)),
    Named(4, checkpointed("a", learner_step=3)),
    Named(5, merged(fragment=0, version=1, round=1)),
    Named(6, snapshot_stored(5)),
    Named(7, checkpointed("a", learner_step=6)),
    Named(8, merged(fragment=1, version=1, round=2)),
    Named(9, merged(fragment=0, version=2, round=3)),
    Named(10, checkpointed("b", learner_step=6)),
    Named(11, checkpointed("a", learner_step=9)),
]


def test_only_deltas_versions_checkpoints_and_snapshots_may_ever_go() -> None:
    naming = {type(event) for event in one_of_each() if may_go(event)}
    assert naming == {DeltaOffered, FragmentMerged, CheckpointStored, SnapshotStored}
    assert naming < set(EVENTS)


def test_open_offers_versions_in_use_and_newest_checkpoints_are_kept() -> None:
    needs = Needs(offers=(3,), versions=(2, 1), newest=(2, 1))
    assert kept_below(FACTS, 10, needs) == (3, 5, 7, 8, 9, 10)


def test_the_version_at_the_horizon_is_kept_however_old_it_is_by_now() -> None:
    needs = Needs(offers=(), versions=(1, 1), newest=(9, 9))
    assert kept_below(FACTS, 8, needs) == (5, 7, 8)


def test_above_the_horizon_nothing_is_counted() -> None:
    needs = Needs(offers=(2, 3), versions=(0, 0), newest=(0, 0))
    assert kept_below(FACTS, 1, needs) == ()


def test_what_is_kept_and_what_stands_above_does_not_go() -> None:
    gone = dict(going(RUN, FACTS, 8, (3, 5)))
    assert list(gone) == sorted(gone)
    stay = [each for each in FACTS if each.position > 8 or each.position in (3, 5)]
    go = [each for each in FACTS if each not in stay]
    assert gone == {key: one for each in go for key, one in named_by(RUN, each.event)}


def test_a_blob_that_is_named_again_stays() -> None:
    again = offered("a", fragment=0, learner_step=3, round=9)
    assert named_by(RUN, again) == named_by(RUN, FACTS[0].event)
    for position in (20, 9):
        facts = [*FACTS, Named(position, again)]
        kept = () if position > 10 else (position,)
        gone = dict(going(RUN, facts, 10, kept))
        assert named_by(RUN, again)[0][0] not in gone


def test_the_facts_to_sweep_are_those_kept_before_and_those_behind() -> None:
    tape = MemoryTape(RUN)
    events = [opened(), *(each.event for each in FACTS)]
    asyncio.run(tape.append(tape_of(events)))

    found = asyncio.run(named_facts(tape, (2, 4), after=6, last=9))

    assert found == [each for each in FACTS if each.position in (2, 4, 7, 8, 9)]
    assert asyncio.run(named_facts(tape, (1,), after=3, last=3)) == []


def test_a_kept_fact_that_is_not_there_is_never_taken_for_one_that_may_go() -> None:
    tape = MemoryTape(RUN)
    asyncio.run(tape.append(tape_of([opened(), *(each.event for each in FACTS[:3])])))
    for kept, last in (((2, 9), 3), ((2,), 9)):
        with pytest.raises(ChainBroken, match="has lost acknowledged records"):
            asyncio.run(named_facts(tape, kept, after=3, last=last))


def test_whatever_goes_lies_where_a_syncer_may_delete_and_never_in_the_archive() -> None:
    facts = [Named(2, event) for event in one_of_each() if may_go(event)]
    kinds = {key.split("/")[1] for key, _ in going(RUN, facts, 2, ())}
    assert kinds == set(SWEPT) and not kinds & {"archive", "opening"}


def test_a_sweep_may_be_broken_off_and_made_again() -> None:
    store = MemoryStore("sweep")
    keys = [f"{RUN}/delta/a/3/f0-{number}" for number in range(4)]
    for key in keys:
        store.put(key, [b"bytes"])
    turns: list[None] = [None] * 2

    with pytest.raises(IndexError):
        sweep(store, keys, turns.pop)

    assert [store.size(key) for key in keys] == [None, None, 5, 5]
    sweep(store, keys, lambda: None)
    assert store.keys(f"{RUN}/") == []


def test_a_manifest_says_how_many_bytes_go() -> None:
    gone = going(RUN, [Named(2, offered("a", manifest=manifest("d", 77)))], 5, ())
    assert [one.bytes for _, one in gone] == [77]
