"""A state folded from the nearest snapshot is the state folded from the first fact, or an error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from typer.testing import CliRunner

from decodiloco.archive.segments import cut
from decodiloco.errors import RulesUnknown
from decodiloco.store.keys import snapshot_key
from decodiloco.store.open_store import open_store
from decodiloco.store.small import put_small
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.snapshot import encode_state
from decodiloco.syncer.state import State
from replay import cli
from replay.errors import Differs, NotReached, TapeCorrupt
from replay.moments import Moment
from replay.place import find_place
from replay.progress import silently
from replay.state import Begun, StateAt, state_of
from replay.tape_file import Header, encode_header, read_tape_file
from replay.tape_index import FileRecords
from replay.tape_writer import open_writer
from streams.chain import Chain
from streams.codec import encode_envelope
from streams.errors import ChainBroken, Corrupt, SegmentCorrupt
from streams.events import FragmentMerged, SnapshotStored
from streams.framing import SEAL_BYTES, encode_record, encode_seal
from tests.builders import RUN, opened, round_opened, tape_of
from tests.real_run import RealRun
from tests.unit.test_replay_verify import folder_of, rewritten


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    folder = tmp_path_factory.mktemp("nearest")
    run = RealRun(open_store((folder / "store").as_uri())).play()
    run.save_tape(folder / "run.tape")
    return run


def rebuilt(tape: Path, asked: Moment, from_start: bool = False) -> tuple[StateAt, list[str]]:
    notes: list[str] = []
    state = state_of(find_place(tape), asked, silently, notes.append, from_start)
    state.close()
    return state, notes


def positions(run: RealRun, kind: type) -> list[int]:
    return [each.position for each in run.tape if isinstance(each.event, kind)]


def state_before(run: RealRun, position: int) -> State:
    state = begin(run.opening)
    for envelope in run.tape[: position - 1]:
        state = fold(state, envelope)
    return state


def named_anew(
    run: RealRun, path: Path, change: Callable[[State], State], number: int = -1
) -> tuple[Path, SnapshotStored]:
    """A tape one of whose snapshots is another state than its syncer's; its digest names that."""
    stored = run.tape[positions(run, SnapshotStored)[number] - 1].event
    assert isinstance(stored, SnapshotStored)
    store = open_store((path / "store").as_uri())
    payload = encode_state(change(state_before(run, stored.position + 1)))
    manifest = put_small(
        store, lambda named: snapshot_key(run.name, stored.position, named), payload
    )
    anew = SnapshotStored(position=stored.position, manifest=manifest)
    tape = rewritten(
        run, path / "run.tape", lambda each: anew if each.event == stored else each.event
    )
    return tape, anew


@pytest.fixture
def copy(run: RealRun, tmp_path: Path) -> Path:
    """A folder with the run's blobs, and no tape."""
    shutil.copytree(folder_of(run) / "store", tmp_path / "copy" / "store")
    return tmp_path / "copy"


def test_every_position_has_the_same_state_from_a_snapshot_and_from_the_first_fact(
    run: RealRun,
) -> None:
    tape = folder_of(run) / "run.tape"
    named = positions(run, SnapshotStored)
    for position in range(1, len(run.tape) + 1):
        state, notes = rebuilt(tape, Moment(position))
        whole, _ = rebuilt(tape, Moment(position), from_start=True)

        assert (state._state, notes) == (whole._state, [])
        assert whole.begun == Begun()
        assert state.begun.named_at == max((each for each in named if each <= position), default=0)
        later = [each for each in positions(run, FragmentMerged) if each > position]
        if state.begun.snapshot and later:
            assert state.begun.agreed_at == later[0]


def test_steps_and_versions_are_found_without_a_fold(run: RealRun) -> None:
    with FileRecordsOf(run) as records:
        for position in positions(run, FragmentMerged):
            merge = run.tape[position - 1].event
            assert isinstance(merge, FragmentMerged)
            version = Moment(fragment=merge.fragment, version=merge.version)
            assert Moment(step=merge.step).sought_in(records, 3) == position
            assert version.sought_in(records, 3) == position
        assert Moment(step=0).sought_in(records, 3) == 1
        assert Moment(fragment=1, version=0).sought_in(records, 3) == 1
        absent = (Moment(step=99), Moment(9999), Moment(fragment=9, version=1), Moment())
        assert {each.sought_in(records, 3) for each in absent} == {len(run.tape)}


class FileRecordsOf:
    """A run's tape file, opened and closed."""

    def __init__(self, run: RealRun) -> None:
        self.path = folder_of(run) / "run.tape"

    def __enter__(self) -> FileRecords:
        self.records = FileRecords(self.path)
        return self.records

    def __exit__(self, *exc: object) -> None:
        self.records.close()


def test_a_file_gives_what_is_asked_for_forwards_and_backwards(
    run: RealRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay.tape_index.BLOCK_RECORDS", 4)
    monkeypatch.setattr("replay.tape_index.PIECE_BYTES", 1000)
    merges = positions(run, FragmentMerged)
    with FileRecordsOf(run) as records:
        assert records.last == len(run.tape)
        for after in (0, 3, 4, records.last - 1, records.last):
            assert list(records.read(after)) == run.tape[after:]
        for upto in (0, merges[0], merges[-1] - 1, records.last, records.last + 9):
            found = [each.position for each in records.back("fragment_merged", upto)]
            assert found == [each for each in reversed(merges) if each <= upto]


def test_an_archive_gives_the_same_however_it_was_cut(run: RealRun, tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    last = len(run.tape)
    for first, end in ((1, 9), (5, 20), (10, 14), (15, 30), (31, last)):
        before = run.tape[first - 2] if first > 1 else None
        chain = Chain(run.name, first - 1, before.digest if before else b"")
        key, payload = cut(chain, run.tape[first - 1 : end])
        store.put(key, [payload])
        middle = key if first == 31 else ""
    records = find_place(f"{tmp_path.as_uri()}/{run.name}").records()

    merges = positions(run, FragmentMerged)
    assert records.last == last
    assert [list(records.read(after)) for after in (0, 11, last)] == [
        run.tape, run.tape[11:], []
    ]  # fmt: skip
    assert [each.position for each in records.back("fragment_merged", last)] == merges[::-1]
    (tmp_path / middle).unlink()
    key, payload = cut(Chain(run.name, 39, run.tape[38].digest), run.tape[39:])
    store.put(key, [payload])
    records = find_place(f"{tmp_path.as_uri()}/{run.name}").records()
    with pytest.raises(SegmentCorrupt, match="position 31 is in none of its segments"):
        list(records.read(0))


def test_an_archive_ends_with_the_segment_that_reaches_farthest(tmp_path: Path) -> None:
    """Of two archivers one may be behind, and begin its last segment after the other's."""
    tape = list(tape_of([opened(), *(round_opened(round=1 + n) for n in range(19))]))
    store = open_store(tmp_path.as_uri())
    for first, end in ((1, 4), (5, 20), (8, 10), (11, 13)):
        before = Chain(RUN, first - 1, tape[first - 2].digest if first > 1 else b"")
        key, payload = cut(before, tape[first - 1 : end])
        store.put(key, [payload])
    place = find_place(f"{tmp_path.as_uri()}/{RUN}")

    records = place.records()

    assert records.last == 20
    assert list(records.read(0)) == list(place.envelopes()) == tape


def test_whatever_byte_of_a_tape_file_changes_it_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"
    with_file(path)
    whole = path.read_bytes()
    changes = [whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :] for at in range(len(whole))]
    cuts = [whole[:at] for at in range(0, len(whole), 5)]
    body, last = whole[:-SEAL_BYTES], whole[-SEAL_BYTES + 12 :][:32]
    sealed_anew = [
        body + encode_seal(3, bytes(32), blake3(body)),
        body + encode_seal(2, last, blake3(body)),
        body[:-3] + encode_seal(3, last, blake3(body[:-3])),
        body + bytes(4) + encode_seal(4, last, blake3(body + bytes(4))),
    ]
    for changed in (*changes, *cuts, *sealed_anew, whole + b"\0"):
        path.write_bytes(changed)
        with pytest.raises(Corrupt) as strict:
            list(read_tape_file(path))
        with pytest.raises(Corrupt) as by_position:
            FileRecords(path)
        assert str(by_position.value) == str(strict.value)


@pytest.mark.parametrize("from_start", [False, True])
def test_a_sealed_tape_without_a_record_is_empty_and_not_broken(
    tmp_path: Path, from_start: bool
) -> None:
    path = tmp_path / "run.tape"
    open_writer(path, Header(RUN, "memory://trial")).seal()

    with pytest.raises(NotReached, match="is empty"):
        rebuilt(path, Moment(), from_start)


def with_file(path: Path) -> None:
    writer = open_writer(path, Header(RUN, "memory://trial"))
    writer.append(tape_of([opened(), round_opened(), round_opened(round=1)]))
    writer.seal()


def test_merges_that_were_forged_into_a_sealed_file_lead_nobody_to_a_wrong_state(
    run: RealRun, copy: Path
) -> None:
    """The search for a step looks at facts that nobody has chained: no fold may believe it."""
    merges = positions(run, FragmentMerged)
    snapshot = positions(run, SnapshotStored)[-1]  # behind it all is as it was
    for number in range(len(merges)):
        before = [each for each in merges[number:] if each < snapshot]
        tape = unchained(run, copy / f"{number}.tape", before)
        for step, position in enumerate(merges, 1):
            try:
                state, _ = rebuilt(tape, Moment(step=step))
            except Corrupt:
                continue
            assert (state.position, state.step) == (position, step)


@pytest.mark.parametrize("from_start", [False, True])
@pytest.mark.parametrize(
    ("change", "error"),
    [({"previous": bytes(32)}, ChainBroken), ({"fence": 1}, ChainBroken), ({}, RulesUnknown)],
)
def test_a_first_fact_that_cannot_be_one_is_refused_wherever_the_fold_begins(
    run: RealRun, copy: Path, change: dict[str, Any], error: type[Exception], from_start: bool
) -> None:
    path, first = copy / "run.tape", run.tape[0]
    event = first.event if change else first.event.model_copy(update={"rules": 2})
    body = encode_header(Header(run.name, run.store.url))
    body += encode_record(encode_envelope(replace(first, event=event, **change)))
    body += b"".join(encode_record(encode_envelope(each)) for each in run.tape[1:])
    path.write_bytes(body + encode_seal(len(run.tape), run.tape[-1].digest, blake3(body)))

    with pytest.raises(error):
        rebuilt(path, Moment(), from_start)


def unchained(run: RealRun, path: Path, positions: list[int]) -> Path:
    """A sealed file in which these merges claim to be the first; nothing follows from them."""
    payloads = [encode_envelope(each) for each in run.tape]
    for position in positions:
        record = run.tape[position - 1]
        event = record.event.model_copy(update={"step": 1})
        payloads[position - 1] = encode_envelope(replace(record, event=event))
    body = encode_header(Header(run.name, run.store.url))
    body += b"".join(map(encode_record, payloads))
    path.write_bytes(body + encode_seal(len(payloads), run.tape[-1].digest, blake3(body)))
    return path


def test_a_planted_snapshot_is_found_out_by_the_next_merge(run: RealRun, copy: Path) -> None:
    def farther(state: State) -> State:
        return replace(state, inboxes={"home": ("life", 99)})

    tape, stored = named_anew(run, copy, farther, number=0)
    asked = Moment(positions(run, SnapshotStored)[0])

    with pytest.raises(Differs, match="folded from the snapshot of position") as told:
        rebuilt(tape, asked)
    assert str(stored.position) in str(told.value)
    assert told.value.key == snapshot_key(run.name, stored.position, stored.manifest)
    whole, _ = rebuilt(tape, asked, from_start=True)
    assert whole._state.learners == state_before(run, asked.position + 1).learners


def test_a_snapshot_of_another_chain_is_found_out_by_the_first_fact(
    run: RealRun, copy: Path
) -> None:
    tape, stored = named_anew(run, copy, lambda state: replace(state, digest=bytes(32)))

    with pytest.raises(Differs, match="digest of the one before") as told:
        rebuilt(tape, Moment())
    assert told.value.position == stored.position + 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: replace(state, run="other"), "it is of run other"),
        (lambda state: replace(state, position=7), "it is of position 7"),
    ],
)
def test_a_snapshot_of_something_else_is_noted_and_an_older_one_taken(
    run: RealRun, copy: Path, change: Callable[[State], State], told: str
) -> None:
    tape, stored = named_anew(run, copy, change)

    state, notes = rebuilt(tape, Moment())

    assert state._state == rebuilt(tape, Moment(), from_start=True)[0]._state
    assert 0 < state.begun.snapshot < stored.position
    (note,) = notes
    assert told in note


def test_a_snapshot_by_other_rules_is_refused(run: RealRun, copy: Path) -> None:
    tape, _ = named_anew(run, copy, lambda state: replace(state, rules=2))

    with pytest.raises(RulesUnknown, match="whose rules are 2"):
        rebuilt(tape, Moment())


def test_snapshots_that_are_gone_or_altered_are_noted_and_all_is_folded(
    run: RealRun, copy: Path
) -> None:
    tape = run.save_tape(copy / "run.tape")
    stored = sorted((copy / "store").rglob("snapshot/*"))
    stored[0].unlink()
    for path in stored[1:]:
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    state, notes = rebuilt(tape, Moment())

    assert state.begun == Begun()
    assert state._state == state_before(run, len(run.tape) + 1)
    assert len(notes) == len(stored)
    assert sum("is not in" in note for note in notes) == 1
    assert sum("does not match its digest" in note for note in notes) == len(stored) - 1


def test_a_tape_that_was_written_to_while_it_was_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"
    with_file(path)
    records = FileRecords(path)
    path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(TapeCorrupt, match="cut short while it was read"):
        list(records.read(0))
    records.close()


def test_the_command_says_where_it_began_and_begins_at_the_start_when_told(run: RealRun) -> None:
    tape = str(folder_of(run) / "run.tape")
    asked = (["state", tape], ["state", tape, "--from-start"])
    words = [CliRunner().invoke(cli.app, each) for each in asked]
    told = [CliRunner().invoke(cli.app, [*each, "--json"]) for each in asked]

    snapshot, whole = (json.loads(each.stdout) for each in told)
    named = max(positions(run, SnapshotStored))
    event = run.tape[named - 1].event
    assert isinstance(event, SnapshotStored)
    assert snapshot.pop("snapshot") == event.position
    assert snapshot == whole
    assert f"folded from the snapshot of position {event.position}" in words[0].stdout
    assert "folded from the first fact" in words[1].stdout


def test_a_moment_is_told_in_words() -> None:
    asked = (Moment(7), Moment(step=2), Moment(fragment=1, version=3), Moment())
    assert [each.told for each in asked] == [
        "position 7", "step 2", "version 3 of fragment 1", "the end"
    ]  # fmt: skip
    assert [each.is_end for each in asked] == [False, False, False, True]


def test_where_a_fold_began_is_told() -> None:
    assert Begun().told == "folded from the first fact; the whole tape is chained"
    assert Begun(20, 24).told == (
        "folded from the snapshot of position 20, named at position 24; no merge after it says "
        "whether it is right"
    )
    assert Begun(20, 24, 31).told.endswith("named at position 24; the merge at position 31 agrees")
