"""A shadow of a run that grows: it agrees with a sound one, and names the first lie of another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from decodiloco.errors import RulesUnknown, StoreUnreachable
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import global_key, snapshot_key
from decodiloco.store.open_store import open_store
from replay.errors import BeyondHorizon, NotReached
from replay.follow.beginning import begin_shadow, first_of
from replay.follow.shadow import Shadow
from replay.follow.told import Watched
from replay.follow.watch import Voice, Watch
from replay.state import read_opening
from streams.codec import seal
from streams.envelope import Envelope
from streams.errors import Trouble
from streams.events import (
    Event,
    FragmentMerged,
    HorizonRaised,
    RunOpened,
    SnapshotStored,
    SyncerTookOver,
)
from streams.memory import MemoryTape
from tests.real_cluster import until
from tests.real_run import RealRun
from tests.unit.test_replay_verify import chained, with_fields

LIMIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """A run that nobody touched."""
    folder = tmp_path_factory.mktemp("sound")
    return RealRun(open_store((folder / "store").as_uri())).play()


@dataclass
class Seen:
    """What a shadow noted and how it ended."""

    watched: Watched | None = None
    notes: list[str] = field(default_factory=list)


def opened_of(tape: Sequence[Envelope]) -> RunOpened:
    opened = tape[0].event
    assert isinstance(opened, RunOpened)
    return opened


def watched(
    run: str,
    tape: Sequence[Envelope],
    store: BlobStore,
    asked: str = "1",
    threads: int = 1,
    during: Callable[[Watch, MemoryTape], object] | None = None,
) -> Seen:
    """Follows a tape that is written piece by piece while it is followed."""
    seen = Seen()

    async def follow() -> None:
        memory = MemoryTape(run)
        await memory.append(tape[:1])
        if asked != "1":
            await memory.append(tape[1:])
        first = await first_of(memory, asked)
        shadow = await begin_shadow(memory, store, opened_of(tape), first, seen.notes.append)
        watch = Watch(memory, shadow, threads, Voice(seen.notes.append))
        watching = asyncio.create_task(watch.run())
        for start in range(1, len(tape), 7) if asked == "1" else ():
            await memory.append(tape[start : start + 7])
            await asyncio.sleep(0)
        if during is not None:
            during(watch, memory)
        seen.watched = await watching

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await follow()

    asyncio.run(limited())
    return seen


def merges_of(tape: Sequence[Envelope], after: int = 0) -> int:
    return sum(isinstance(e.event, FragmentMerged) for e in tape if e.position > after)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_sound_run_is_followed_to_its_close(sound: RealRun, threads: int) -> None:
    seen = watched(sound.name, sound.tape, sound.store, threads=threads)

    told = seen.watched
    assert told is not None and told.alarm is None, told
    assert seen.notes == []
    assert (told.ended, told.position, told.events) == (
        "closed",
        len(sound.tape),
        len(sound.tape),
    )
    assert told.merges_checked == merges_of(sound.tape)
    assert told.takeovers == sum(isinstance(e.event, SyncerTookOver) for e in sound.tape) > 1
    assert told.unjudged == 0
    assert told.bytes_checked > 0
    assert told.line().endswith(
        "agreed: the run is closed, and every merge that was watched is what it says"
    )


def test_a_shadow_may_begin_anywhere_and_folds_from_the_nearest_snapshot(sound: RealRun) -> None:
    snapshots = [e.event.position for e in sound.tape if isinstance(e.event, SnapshotStored)]
    assert snapshots

    for first in sorted({*range(2, len(sound.tape) + 1, 5), *snapshots}):
        seen = watched(sound.name, sound.tape, sound.store, asked=str(first))
        told = seen.watched
        assert told is not None and told.alarm is None, (first, told)
        before = [position for position in snapshots if position < first]
        assert told.begun == (before[-1] + 1 if before else 1)
        assert told.merges_checked == merges_of(sound.tape, first - 1)
        assert told.ended == "closed"


def test_now_is_the_tapes_end(sound: RealRun) -> None:
    told = watched(sound.name, sound.tape, sound.store, asked="now").watched

    assert told is not None
    assert (told.ended, told.merges_checked) == ("closed", 0)


@pytest.mark.parametrize("asked", ["0", "-3", "x", "100000", "1.5", ""])
def test_a_position_that_is_none_is_asked_wrongly(sound: RealRun, asked: str) -> None:
    with pytest.raises(NotReached, match="--from"):
        watched(sound.name, sound.tape, sound.store, asked=asked)


def test_a_snapshot_that_is_gone_is_passed_over_for_an_older_one(tmp_path: Path) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri())).play()
    stored = [e for e in run.tape if isinstance(e.event, SnapshotStored)][-1]
    assert isinstance(stored.event, SnapshotStored)
    key = snapshot_key(run.name, stored.event.position, stored.event.manifest)
    (tmp_path / "store" / key).unlink()

    seen = watched(run.name, run.tape, run.store, asked=str(stored.position + 1))

    assert seen.watched is not None and seen.watched.ended == "closed"
    assert "cannot be used" in seen.notes[0]
    assert seen.watched.begun < stored.event.position


def test_a_snapshot_of_another_position_than_it_says_is_passed_over(tmp_path: Path) -> None:
    """Else a lying one, of a later position, would keep a shadow from what it was to check."""
    run = RealRun(open_store((tmp_path / "store").as_uri())).play()
    first, last = [e for e in run.tape if isinstance(e.event, SnapshotStored)][:2]
    assert isinstance(first.event, SnapshotStored) and isinstance(last.event, SnapshotStored)
    other = first.event.manifest
    path = tmp_path / "store" / snapshot_key(run.name, last.event.position, other)
    stored = tmp_path / "store" / snapshot_key(run.name, first.event.position, other)
    path.write_bytes(stored.read_bytes())

    def change(envelope: Envelope) -> Event:
        event = envelope.event
        return event.model_copy(update={"manifest": other}) if envelope == last else event

    seen = watched(run.name, chained(run, change), run.store, asked=str(last.position + 1))

    assert seen.watched is not None and seen.watched.begun == first.event.position + 1
    assert f"it is of position {first.event.position}" in seen.notes[0]


def test_a_stored_fragment_that_was_changed_is_named_with_its_blob(tmp_path: Path) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri())).play()
    merged = [e for e in run.tape if isinstance(e.event, FragmentMerged)][3]
    event = merged.event
    assert isinstance(event, FragmentMerged)
    key = global_key(run.name, event.fragment, event.version, event.parameters)
    path = tmp_path / "store" / key
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    told = watched(run.name, run.tape, run.store).watched

    assert told is not None and told.alarm is not None
    alarm = told.alarm
    assert (alarm.position, alarm.event) == (merged.position, "fragment_merged")
    assert (alarm.round, alarm.fragment) == (event.round, event.fragment)
    assert (alarm.key, alarm.bytes) == (key, event.parameters.bytes)
    assert alarm.what == f"the stored blob differs at byte {len(whole) - 1}"
    assert told.merges_checked == 3
    line = alarm.line()
    assert "\n" not in line
    assert f"position {merged.position} (fragment_merged), round {event.round}" in line
    assert json.loads(json.dumps(told.as_json()))["first_difference"]["key"] == key


def test_a_wrong_state_digest_is_named_before_anything_that_follows(sound: RealRun) -> None:
    lie = chained(sound, with_fields(FragmentMerged, state_digest=bytes(32)))

    told = watched(sound.name, lie, sound.store).watched

    assert told is not None and told.alarm is not None
    assert "the state before this merge has digest" in told.alarm.what
    first = next(e for e in sound.tape if isinstance(e.event, FragmentMerged))
    assert told.alarm.position == first.position == told.position + 1


def test_a_lie_behind_a_sound_stretch_waits_for_the_checks_before_it(tmp_path: Path) -> None:
    """Of two differences the earlier one is told, also when it takes longer to find."""
    run = RealRun(open_store((tmp_path / "store").as_uri())).play()
    merged = next(e for e in run.tape if isinstance(e.event, FragmentMerged))
    assert isinstance(merged.event, FragmentMerged)
    event = merged.event
    key = global_key(run.name, event.fragment, event.version, event.parameters)
    (tmp_path / "store" / key).unlink()
    tape = list(run.tape[: merged.position + 3])
    tape.append(tape[-1])  # a record twice: the chain breaks there

    shadow = Shadow(run.store, read_opening(run.store, opened_of(tape)))
    told = shadow.tell(tape)
    assert told.differs is not None and told.at is tape[-1]
    assert [owed.envelope.position for owed in told.owed] == list(range(1, merged.position + 4))

    alarm = watched(run.name, run.tape, run.store).watched
    assert alarm is not None and alarm.alarm is not None
    assert alarm.alarm.position == merged.position
    assert "is not in" in alarm.alarm.what


def test_facts_by_other_rules_are_not_judged(sound: RealRun) -> None:
    lie = chained(sound, with_fields(SyncerTookOver, rules=99))

    with pytest.raises(RulesUnknown):
        watched(sound.name, lie, sound.store)


def test_bytes_that_a_horizon_let_go_of_are_no_difference(tmp_path: Path) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri())).play()
    merged = next(e for e in run.tape if isinstance(e.event, FragmentMerged))
    assert isinstance(merged.event, FragmentMerged)
    event = merged.event
    key = global_key(run.name, event.fragment, event.version, event.parameters)
    (tmp_path / "store" / key).unlink()
    tape = with_horizon(run.tape[: merged.position + 4])

    with pytest.raises(BeyondHorizon, match=f"position {merged.position}, which was to be"):
        watched(run.name, tape, run.store)


def test_a_lie_that_could_be_read_is_told_also_below_a_horizon(tmp_path: Path) -> None:
    run = RealRun(open_store((tmp_path / "store").as_uri())).play()
    merged = next(e for e in run.tape if isinstance(e.event, FragmentMerged))
    assert isinstance(merged.event, FragmentMerged)
    short = merged.position + 4
    wrong = chained(run, with_fields(FragmentMerged, state_digest=bytes(32)))
    told = watched(run.name, with_horizon(wrong[:short]), run.store).watched
    assert told is not None and told.alarm is not None
    assert "the state before this merge has digest" in told.alarm.what

    event = merged.event
    key = global_key(run.name, event.fragment, event.version, event.parameters)
    path = tmp_path / "store" / key
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    told = watched(run.name, with_horizon(run.tape[:short]), run.store).watched
    assert told is not None and told.alarm is not None
    assert told.alarm.what.startswith("the stored blob differs at byte")


def with_horizon(tape: Sequence[Envelope]) -> list[Envelope]:
    """The tape, and behind it a horizon over nearly all of it."""
    last = tape[-1]
    merged = next(e.event for e in tape if isinstance(e.event, FragmentMerged))
    raised = HorizonRaised(position=last.position - 1, kept=(), snapshot=merged.report)
    position, previous = last.position + 1, last.digest
    return [*tape, seal(position, previous, last.fence, last.writer, None, 1.0, raised)]


class Away:
    """A store that does not answer at first."""

    def __init__(self, store: BlobStore, times: int) -> None:
        self._store = store
        self.url = store.url
        self.left = times

    def size(self, key: str) -> int | None:
        if "/global/" in key and self.left > 0:
            self.left -= 1
            raise StoreUnreachable(f"store {self.url} does not answer")
        return self._store.size(key)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_a_store_that_is_away_is_waited_for_and_said_once(
    sound: RealRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay.follow.watch.SHADOW_STORE_SECONDS", 0.01)
    away = Away(sound.store, times=5)

    seen = watched(sound.name, sound.tape, away)  # type: ignore[arg-type]

    assert seen.watched is not None and seen.watched.ended == "closed"
    assert seen.watched.merges_checked == merges_of(sound.tape)
    assert len(seen.notes) == 2
    assert seen.notes[0].startswith("waits for the store: ")
    assert seen.notes[1] == "the store answers again"


def test_told_to_stop_it_stops_also_while_the_store_is_away(sound: RealRun) -> None:
    away = Away(sound.store, times=10**9)

    seen = watched(
        sound.name,
        sound.tape,
        away,  # type: ignore[arg-type]
        during=lambda watch, tape: watch.stop.set(),
    )

    assert seen.watched is not None
    assert (seen.watched.ended, seen.watched.alarm) == ("stopped", None)


def test_a_run_that_is_not_closed_is_followed_until_told(sound: RealRun) -> None:
    half = sound.tape[: len(sound.tape) // 2]

    def stop(watch: Watch, tape: MemoryTape) -> None:
        async def later() -> None:
            await until(lambda: watch.watched.position >= len(half), "all of it is checked")
            watch.stop.set()

        watch.stopping = asyncio.create_task(later())  # type: ignore[attr-defined]

    told = watched(sound.name, half, sound.store, during=stop).watched

    assert told is not None
    assert (told.ended, told.merges_checked) == ("stopped", merges_of(half))
    assert "stopped when told to" in told.line()


def test_a_tape_that_cannot_be_read_is_trouble(sound: RealRun) -> None:
    class Torn(MemoryTape):
        async def follow(self, after: int, learner: str | None = None):  # type: ignore[no-untyped-def]
            raise Trouble("the stream is gone")
            yield

    async def work() -> None:
        tape = Torn(sound.name)
        await tape.append(sound.tape[:3])
        shadow = Shadow(sound.store, read_opening(sound.store, opened_of(sound.tape)))
        await Watch(tape, shadow, 1, Voice(lambda text: None)).run()

    with pytest.raises(Trouble, match="the stream is gone"):
        asyncio.run(work())
