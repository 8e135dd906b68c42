"""What replay says of a run whose old bytes are gone: all facts, and bytes to the horizon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from decodiloco.store.keys import named_by
from replay import cli
from replay.errors import BeyondHorizon
from replay.invariants.of_place import check_place
from replay.place import find_place
from replay.progress import silently
from replay.reach import EVERYTHING, Reach, reach_of
from replay.state import state_at
from replay.tape_file import read_header
from replay.tape_writer import open_writer
from replay.verify import Proof, verify_place
from replay.verify_report import report_lines, told_as_json
from replay.world.campaign import keep, play
from streams.envelope import Envelope
from streams.events import FragmentMerged, HorizonRaised, RunOpened
from tests.builders import horizon_raised, opened, sealed, tape_of

SEEDS = range(1, 30)
MERGES = 30


@dataclass(frozen=True)
class Swept:
    """A simulated run that was swept, kept as tape and store."""

    folder: Path
    records: list[Envelope]
    reach: Reach

    @property
    def tape(self) -> Path:
        return self.folder / "run.tape"


def swept_runs(factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """Simulated runs that kept four merges; each seed is played when it is asked for."""
    for seed in SEEDS:
        world = play(seed, merges=MERGES)
        if world.case.opening.run.retention.keep_merges != 4:
            continue
        told = world.play()
        reach = reach_of(world.tape.records)
        if told.broken is None and reach.kept and not world.store.spoiled:
            folder = factory.mktemp("swept")
            keep(world, folder)
            yield Swept(folder, list(world.tape.records), reach)
    raise AssertionError("no seed gives another swept run")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    return swept_runs(tmp_path_factory)


@pytest.fixture(scope="module")
def swept(runs: Iterator[Swept]) -> Swept:
    return next(runs)


@pytest.fixture(scope="module")
def other(swept: Swept, runs: Iterator[Swept]) -> Swept:
    """Another run than `swept`."""
    return next(runs)


def verified(swept: Swept) -> Proof:
    return verify_place(find_place(swept.tape), 1, silently)


def blob_of(swept: Swept, envelope: Envelope) -> Path:
    (key, _), *_ = named_by("world", envelope.event)
    return swept.folder / "store" / key


def test_where_no_horizon_was_raised_all_bytes_are_kept() -> None:
    assert reach_of(tape_of([opened()])) == EVERYTHING
    assert EVERYTHING.has(1) and EVERYTHING.is_whole(7)


def test_the_newest_horizon_says_how_far_back_there_are_bytes() -> None:
    reach = EVERYTHING.then(sealed(horizon_raised(8, 5), 20)).then(sealed(opened(), 21))

    assert reach == Reach(8, 20, frozenset({5}))
    assert [reach.has(position) for position in (1, 2, 5, 8, 9)] == [True, False, True, False, True]
    assert [reach.is_whole(position) for position in (1, 5, 8, 9)] == [True, False, False, True]


def test_merges_above_the_horizon_are_proved_and_all_facts_are(swept: Swept) -> None:
    proof = verified(swept)

    assert proof.first_difference is None
    merges = [each.position for each in swept.records if isinstance(each.event, FragmentMerged)]
    above = [position for position in merges if position > swept.reach.position]
    assert (proof.merges, proof.merges_checked) == (len(merges), len(above))
    assert 0 < len(above) < len(merges)
    assert told_as_json(proof)["horizon"] == swept.reach.position
    lines = list(report_lines(proof, by_fragment=False))
    assert any(line.startswith(f"horizon: position {swept.reach.position}") for line in lines)
    assert "every merge above the horizon" in lines[-1]


def test_the_invariants_hold_with_what_is_left(swept: Swept) -> None:
    invariants, broken = check_place(find_place(swept.tape), silently)

    assert broken is None
    assert invariants.counts()["horizon keeps what is needed"] > 4
    assert invariants.counts()["merged from these bytes"] > 0


@pytest.mark.parametrize("which", ["kept", "above"])
def test_a_blob_that_must_still_be_there_is_missed(swept: Swept, which: str) -> None:
    position = max(swept.reach.kept) if which == "kept" else 0
    if which == "above":
        made = [each for each in swept.records if isinstance(each.event, FragmentMerged)]
        position = made[-1].position
    path = blob_of(swept, swept.records[position - 1])
    whole = path.read_bytes()
    path.unlink()
    try:
        difference = verified(swept).first_difference
    finally:
        path.write_bytes(whole)
    assert difference is not None and difference.position is not None
    assert difference.position >= position


def test_a_model_is_rebuilt_down_to_the_horizon_and_no_further(swept: Swept) -> None:
    at = swept.reach.position
    for position in (at, at + 1, len(swept.records)):
        state = state_at(swept.tape, position)
        assert len(state.parameters()) == len(state.momentum()) > 0
        state.close()

    state = state_at(swept.tape, at // 2)

    assert (state.position, len(state.digest)) == (at // 2, 64)
    told = rf"run world: the model at position {at // 2} .* up to position {at} were let go of"
    with pytest.raises(BeyondHorizon, match=told):
        state.parameters()


def test_the_opening_is_always_there(swept: Swept) -> None:
    assert isinstance(swept.records[0].event, RunOpened)
    assert state_at(swept.tape, 1).parameters()


def test_the_command_ends_with_three_and_names_the_horizon(swept: Swept, tmp_path: Path) -> None:
    words = ["state", str(swept.tape), "--at", str(swept.reach.position // 2)]
    assert CliRunner().invoke(cli.app, words).exit_code == 0

    done = CliRunner().invoke(cli.app, [*words, "-o", str(tmp_path / "model.safetensors")])

    assert isinstance(done.exception, BeyondHorizon)
    assert done.exception.exit_code == 3
    assert "Ask for position" in str(done.exception) and "--store" in str(done.exception)


def test_two_recordings_of_a_swept_run_agree_in_their_bytes(swept: Swept) -> None:
    words = ["diff", str(swept.tape), str(swept.tape), "--bytes", "--json"]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["bytes"]["differ"] == 0


def test_two_swept_runs_are_not_told_to_miss_what_their_horizons_let_go_of(
    swept: Swept, other: Swept
) -> None:
    words = ["diff", str(swept.tape), str(other.tape), "--bytes", "--json"]
    done = CliRunner().invoke(cli.app, words)

    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.exit_code, told["same_run"]) == (1, False)
    assert told["parting"]["position"] < min(swept.reach.position, other.reach.position)
    assert [each["what"] for each in told["bytes"]["unlike"] if "is not in" in each["what"]] == []
    note = f"bytes beyond a horizon are not compared: A's is position {swept.reach.position}, "
    assert note + f"B's is position {other.reach.position}" in done.stderr


def test_a_recording_from_before_the_horizon_misses_what_it_cannot_know_to_be_gone(
    swept: Swept,
) -> None:
    raised = next(each for each in swept.records if isinstance(each.event, HorizonRaised))
    path = swept.folder / "old.tape"
    _write(path, swept, raised.position - 1)
    difference = verify_place(find_place(path), 1, silently).first_difference
    assert difference is not None and "restore it there" in difference.what


def test_a_horizon_that_rises_while_it_is_verified_is_no_difference(swept: Swept) -> None:
    raised = next(each for each in swept.records if isinstance(each.event, HorizonRaised))
    path = swept.folder / "growing.tape"
    _write(path, swept, raised.position - 1)

    def grown(done: int, of: int) -> None:
        if done == 2:
            _write(path, swept, len(swept.records))

    with pytest.raises(BeyondHorizon, match="which was being verified, lies beyond"):
        verify_place(find_place(path), 1, grown)


def _write(path: Path, swept: Swept, count: int) -> None:
    """A tape file of so many of the records, in place of what is there."""
    path.unlink(missing_ok=True)
    writer = open_writer(path, read_header(swept.tape))
    writer.append(swept.records[:count])
    writer.seal()
