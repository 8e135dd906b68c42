"""A trained tape changed by somebody who lies, or by a life that was cut off: what a rerun says."""

from __future__ import annotations

import pytest

from replay.errors import Differs
from replay.retrain.report import report_lines, verdict
from streams.errors import AskedWrongly
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    FragmentMerged,
    LearnerJoined,
    RunClosed,
)
from tests.trained_run import TrainedRun, played, small_run
from tests.unit.test_retrain import again, changed, told


@pytest.fixture(scope="module")
def run() -> TrainedRun:
    return played()


@pytest.mark.parametrize("name", ["parameters", "momentum", "report"])
def test_a_merge_of_the_same_deltas_that_comes_out_otherwise_is_caught(run: TrainedRun, name: str):
    merges = [each for each in run.tape if isinstance(each.event, FragmentMerged)]
    lie = told(**{name: getattr(merges[0].event, name)})

    found = again(run, changed(run.tape, FragmentMerged, lie, len(merges) - 1))

    assert found.first_broken is not None and not found.ok
    assert found.first_broken.position == merges[-1].position


def test_another_last_model_is_caught(run: TrainedRun):
    found = again(run, changed(run.tape, RunClosed, told(digest=b"e" * 32)))

    assert found.first_broken is not None and not found.ok
    assert found.first_broken.position == len(run.tape)


def test_another_place_in_the_text_is_caught_where_it_is_told(run: TrainedRun):
    found = again(run, changed(run.tape, DeltaOffered, told(cursor=b""), 3))

    offers = [each for each in run.tape if isinstance(each.event, DeltaOffered)]
    assert found.deltas.identical == found.deltas.compared and not found.ok
    assert found.first_broken is not None
    assert found.first_broken.position == offers[3].position
    assert "in its text" in found.first_broken.what


def test_a_merge_of_what_was_never_offered_is_a_difference(run: TrainedRun):
    with pytest.raises(Differs, match="is made of 3, which was not offered"):
        again(run, changed(run.tape, FragmentMerged, told(contributions=(3,)), 1))


def cut_off() -> TrainedRun:
    """A learner adopts, stores a checkpoint, is killed before its next offer, and comes back."""
    run = TrainedRun(small_run())
    run.begin("a")
    run.begin("b")
    run.go(4)
    for _ in range(4):
        run.pupils["b"].step(run.run)
        run.exchange()
    run.begin("b")
    run.go(3)
    return run


def test_a_checkpoint_behind_an_adoption_that_nobody_told_does_not_break_the_proof():
    run = cut_off()
    joins = [each for each in run.tape if isinstance(each.event, LearnerJoined)]

    found = again(run)

    first, second = found.rows[joins[1].position], found.rows[joins[2].position]
    assert (first.untold, first.checkpoints.differing, second.untold) == (1, 1, 0)
    assert found.ok and found.deltas.identical == found.deltas.compared > 10
    assert found.stored_taken == 1 and second.checkpoints.identical > 0
    assert verdict(found).startswith("PROVED: all")
    assert "stands on no tape" in "\n".join(report_lines(found))


def test_any_other_checkpoint_that_differs_does():
    run = cut_off()
    stored = [each for each in run.tape if isinstance(each.event, CheckpointStored)]
    assert isinstance(stored[-1].event, CheckpointStored)
    lie = told(manifest=stored[-1].event.manifest)

    found = again(run, changed(run.tape, CheckpointStored, lie, 0))

    assert found.first_broken is not None and not found.ok
    assert found.first_broken.position == stored[0].position


def test_a_cursor_that_is_of_no_trainer_of_ours_is_refused(run: TrainedRun):
    with pytest.raises(AskedWrongly, match="did not train as the built-in trainer does"):
        again(run, changed(run.tape, LearnerJoined, told(cursor=b"\xff\xff"), 2))


def test_a_learner_that_calls_itself_synthetic_is_compared_all_the_same(run: TrainedRun):
    tape = changed(run.tape, LearnerJoined, told(fingerprint="synthetic"))

    found = again(run, tape)

    assert not found.synthetic
    assert found.deltas.compared == found.deltas.identical > 0
    assert verdict(found).startswith("NOT A PROOF: this machine is not the one")
