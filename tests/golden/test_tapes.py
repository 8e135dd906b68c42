"""Golden tapes: one live run and one simulated, kept in git, that must replay for ever.

A change here means that old records no longer say what they said: it is a new version of the
rules or of a format, with a way to read the old one. `python -m tests.golden.make_tapes` made them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from decodiloco.syncer.snapshot import state_digest
from replay.invariants.of_place import check_place
from replay.moments import Moment
from replay.place import find_place
from replay.progress import silently
from replay.refold import refold
from replay.state import opened_by, read_opening, state_at, state_of
from replay.verify import verify_place
from streams.events import LearnerJoined, RunClosed, SnapshotStored, SyncerTookOver
from tests.golden.make_tapes import FOLDER, LIVE, NUMBERS, WORLD, numbers_of

NAMES = (LIVE, WORLD)
BYTES_MAX = 600_000


@pytest.fixture(scope="module", params=NAMES)
def golden(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A tape with its blobs beside it, and what it must come to."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    tape = Path(shutil.copy(FOLDER / f"{name}.tape", folder / "run.tape"))
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(folder)
    return tape, json.loads(NUMBERS.read_text(encoding="utf-8"))[name]


def test_every_merge_and_fact_of_a_golden_tape_is_proved_again(
    golden: tuple[Path, dict[str, Any]],
) -> None:
    tape, numbers = golden

    proof = verify_place(find_place(tape), 1, silently)

    assert proof.first_difference is None
    assert (proof.events, proof.merges) == (numbers["facts"], numbers["merges"])
    assert proof.merges_checked == proof.merges > 6
    assert proof.closed and proof.bytes_checked > 10_000


def test_every_invariant_holds_on_a_golden_tape(golden: tuple[Path, dict[str, Any]]) -> None:
    invariants, broken = check_place(find_place(golden[0]), silently)

    assert broken is None
    assert sum(bool(one.checked) for one in invariants.every) >= 15


def test_a_golden_tape_comes_to_the_digests_that_are_kept(
    golden: tuple[Path, dict[str, Any]],
) -> None:
    tape, numbers = golden
    assert len(numbers["states"]) >= 8
    assert numbers_of(find_place(tape)) == numbers


def test_every_position_behind_a_stored_snapshot_has_the_state_of_a_whole_fold(
    golden: tuple[Path, dict[str, Any]],
) -> None:
    """Snapshots of an older build are read, and lead to the very states of their tape."""
    place = find_place(golden[0])
    tape = list(place.envelopes())
    begun_at = 0
    opened = opened_by(tape[0], place)
    opening = read_opening(place.open_store(opened), opened)
    for folded in refold(tape, opening):
        if isinstance(folded.envelope.event, SnapshotStored):
            begun_at = folded.envelope.event.position
        if not begun_at:
            continue
        state = state_of(place, Moment(folded.after.position))
        assert state.begun.snapshot == begun_at
        assert state.digest == state_digest(folded.after).hex()
        assert state._state == folded.after
        state.close()
    assert begun_at


def test_another_process_with_another_order_of_hashes_comes_to_the_same(
    golden: tuple[Path, dict[str, Any]],
) -> None:
    tape, numbers = golden
    position, digest = max(numbers["states"].items(), key=lambda item: int(item[0]))
    for arguments, field, expected in (
        (("verify", str(tape)), "merges_checked", numbers["merges"]),
        (("state", str(tape), "--at", position), "digest", digest),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "replay.cli", *arguments, "--json"],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONHASHSEED": "20", "OMP_NUM_THREADS": "1"},
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert json.loads(done.stdout.splitlines()[-1])[field] == expected


def test_the_live_tape_holds_a_killed_learner_that_came_back_and_a_takeover() -> None:
    facts = [envelope.event for envelope in find_place(FOLDER / f"{LIVE}.tape").envelopes()]

    lives = [fact.learner for fact in facts if isinstance(fact, LearnerJoined)]
    assert sorted(lives) == ["a", "a", "b"]
    again = [fact for fact in facts if isinstance(fact, LearnerJoined)][-1]
    assert again.learner == "a" and again.learner_step > 0
    assert [fact.fence for fact in facts if isinstance(fact, SyncerTookOver)] == [1, 2]
    assert any(isinstance(fact, RunClosed) for fact in facts)


def test_a_golden_tape_stays_small() -> None:
    for name in NAMES:
        sizes = [(FOLDER / f"{name}.{ending}").stat().st_size for ending in ("tape", "zip")]
        assert sum(sizes) < BYTES_MAX, name


def test_a_golden_state_can_be_asked_for_by_the_library(
    golden: tuple[Path, dict[str, Any]],
) -> None:
    tape, numbers = golden
    state = state_at(tape)
    try:
        assert state.model_digest() == numbers["model_digest"]
        assert all(array.size for array in state.parameters().values())
    finally:
        state.close()
