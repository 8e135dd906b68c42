"""The one door to stored snapshots: the newest that is sound is taken, and nothing else passes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from decodiloco.errors import RulesUnknown
from decodiloco.places import Places
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import snapshot_key
from decodiloco.store.open_store import open_store
from decodiloco.store.small import put_small
from decodiloco.syncer.follower import catch_up, fold_checked
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.snapshot import encode_state
from decodiloco.syncer.state import State
from decodiloco.syncer.stored_snapshot import TRIES_MAX, newest_state
from streams.envelope import Envelope
from streams.events import Event, RunOpened, SnapshotStored, SyncerTookOver
from streams.memory import MemoryPulse, MemoryTape
from streams.tape import BATCH_MAX
from tests.real_run import RealRun
from tests.unit.test_replay_verify import chained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """A run that stored several snapshots."""
    folder = tmp_path_factory.mktemp("snapshots")
    return RealRun(open_store((folder / "store").as_uri()), steps=16).play()


@pytest.fixture
def store(run: RealRun, tmp_path: Path) -> BlobStore:
    """A copy of the run's store, to be hurt."""
    shutil.copytree(run.store.url.removeprefix("file://"), tmp_path / "store")
    return open_store((tmp_path / "store").as_uri())


def snapshots(run: RealRun) -> list[Envelope]:
    return [one for one in run.tape if isinstance(one.event, SnapshotStored)]


async def _held(run: RealRun, tape: Sequence[Envelope]) -> MemoryTape:
    memory = MemoryTape(run.name)
    for start in range(0, len(tape), BATCH_MAX):
        await memory.append(tape[start : start + BATCH_MAX])
    return memory


def found(
    run: RealRun, store: BlobStore, tape: Sequence[Envelope]
) -> tuple[State | None, list[str]]:
    """What the search comes to at the end of a tape, and what it noted."""
    notes: list[str] = []

    async def search() -> State | None:
        memory, end = await _held(run, tape), len(tape)
        return await newest_state(memory, store, run.opening, end, end + 1, notes.append)

    return asyncio.run(search()), notes


def key_of(run: RealRun, envelope: Envelope) -> str:
    event = envelope.event
    assert isinstance(event, SnapshotStored)
    return snapshot_key(run.name, event.position, event.manifest)


def folded(run: RealRun, position: int) -> State:
    state = begin(run.opening)
    for envelope in run.tape[:position]:
        state = fold(state, envelope)
    return state


def named_anew(
    run: RealRun, store: BlobStore, change: Callable[[State], State], at: int = 0
) -> list[Envelope]:
    """The tape with its newest snapshot changed, and named as what it then is."""
    newest = snapshots(run)[-1]
    assert isinstance(newest.event, SnapshotStored)
    position = newest.event.position
    payload = encode_state(change(folded(run, position)))
    manifest = put_small(
        store, lambda named: snapshot_key(run.name, at or position, named), payload
    )
    anew = SnapshotStored(position=at or position, manifest=manifest)
    return chained(run, lambda one: anew if one == newest else one.event)


async def _come(run: RealRun, store: BlobStore, tape: Sequence[Envelope]) -> State:
    memory = await _held(run, tape)
    return await catch_up(Places(memory, {}, MemoryPulse(run.name), store))


def test_a_syncer_comes_to_the_same_state_whatever_snapshots_are_left(
    run: RealRun, store: BlobStore
) -> None:
    whole = folded(run, len(run.tape))
    for one in reversed(snapshots(run)):
        assert asyncio.run(_come(run, store, run.tape)) == whole
        store.delete(key_of(run, one))
    assert asyncio.run(_come(run, store, run.tape)) == whole


def test_one_that_is_gone_is_noted_and_the_one_before_it_taken(
    run: RealRun, store: BlobStore
) -> None:
    *_, older, newest = snapshots(run)
    state, notes = found(run, store, run.tape)
    assert notes == [] and state == folded(run, newest.event.position)

    store.delete(key_of(run, newest))

    state, notes = found(run, store, run.tape)
    assert state == folded(run, older.event.position)
    (note,) = notes
    assert "a snapshot cannot be used" in note and key_of(run, newest) in note


def test_after_a_few_that_are_gone_the_search_ends(run: RealRun, store: BlobStore) -> None:
    assert len(snapshots(run)) > TRIES_MAX
    for one in snapshots(run)[-TRIES_MAX:]:
        store.delete(key_of(run, one))

    state, notes = found(run, store, run.tape)

    assert state is None and len(notes) == TRIES_MAX


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: replace(state, run="other"), "it is of run other"),
        (lambda state: replace(state, position=7), "it is of position 7, and named as of"),
    ],
)
def test_a_state_of_something_else_is_passed_over(
    run: RealRun, store: BlobStore, change: Callable[[State], State], told: str
) -> None:
    state, (note,) = found(run, store, named_anew(run, store, change))

    assert told in note
    assert state == folded(run, snapshots(run)[-2].event.position)


def test_one_of_a_position_that_is_still_to_come_is_passed_over(
    run: RealRun, store: BlobStore
) -> None:
    named = snapshots(run)[-1].position
    later = named_anew(run, store, lambda state: replace(state, position=named), at=named)

    state, (note,) = found(run, store, later)

    assert "which was not there yet" in note
    assert state == folded(run, snapshots(run)[-2].event.position)


def test_a_state_by_other_rules_is_for_another_build(run: RealRun, store: BlobStore) -> None:
    tape = named_anew(run, store, lambda state: replace(state, rules=9))

    with pytest.raises(RulesUnknown, match=r"written by rules 9.*install"):
        found(run, store, tape)


def with_rules(kind: type[Event], rules: int) -> Callable[[Envelope], Event]:
    def change(envelope: Envelope) -> Event:
        event = envelope.event
        return event.model_copy(update={"rules": rules}) if isinstance(event, kind) else event

    return change


def test_a_syncer_refuses_a_run_of_other_rules_at_once(run: RealRun, store: BlobStore) -> None:
    tape = chained(run, with_rules(RunOpened, 9))

    with pytest.raises(RulesUnknown, match=rf"run {run.name}: written by rules 9.*install"):
        asyncio.run(_come(run, store, tape))


def test_a_standby_refuses_a_takeover_by_other_rules(run: RealRun) -> None:
    tape = chained(run, with_rules(SyncerTookOver, 9))
    state = fold(begin(run.opening), tape[0])

    with pytest.raises(RulesUnknown, match="position 2: written by rules 9"):
        fold_checked(state, tape[1])
