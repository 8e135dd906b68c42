"""A run trained again: every bit is the same, and whatever is changed on its tape is caught."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from decodiloco.errors import BlobMissing
from decodiloco.learner.joining import fingerprint
from decodiloco.opening import Opening
from decodiloco.store.blobs import Part
from decodiloco.store.memory import MemoryStore
from decodiloco.training.corpus import Corpus
from replay.errors import Differs
from replay.retrain.compare import fields_of
from replay.retrain.outcome import Rerun
from replay.retrain.report import report_lines, told_as_json, verdict
from replay.retrain.rerun import Wanted, rerun
from streams.codec import pack
from streams.envelope import Envelope
from streams.errors import AskedWrongly
from streams.events import (
    DeltaOffered,
    DeltaRefused,
    EvaluationReported,
    Event,
    FragmentMerged,
    LearnerJoined,
    SyncerTookOver,
)
from tests.hand_run import HandRun, plain_run
from tests.trained_run import CONTEXT, CORPUS, TrainedRun, played, small_run

Change = Callable[[Event], Event]


@pytest.fixture(scope="module")
def run() -> TrainedRun:
    return played()


class FewBlobs(MemoryStore):
    """A store that has lost all that lies under these words."""

    def __init__(self, full: MemoryStore, lost: str) -> None:
        super().__init__("few")
        self._full = full
        self._lost = lost

    def read(self, key: str, start: int, stop: int, anew: bool = False) -> Part:
        if self._lost in key:
            raise BlobMissing(f"blob {key} is not there")
        return self._full.read(key, start, stop, anew)


def again(
    run: TrainedRun, tape: list[Envelope] | None = None, opening: Opening | None = None
) -> Rerun:
    return rerun(tape or run.tape, opening or run.opening, run.store, CORPUS)


def changed(
    tape: list[Envelope], kind: type[Event], change: Change, number: int | None = None
) -> list[Envelope]:
    """The tape with all facts of a kind changed, or the n-th of them."""
    tape = list(tape)
    places = [place for place, each in enumerate(tape) if isinstance(each.event, kind)]
    for place in places if number is None else [places[number]]:
        tape[place] = replace(tape[place], event=change(tape[place].event))
    return tape


def told(**fields: object) -> Change:
    """The same fact with other fields."""
    return lambda event: event.model_copy(update=fields)


ELSEWHERE = pack({"pass": 0, "batch": 3})


def first_told_adoption(run: TrainedRun) -> int:
    """Which offer is the first to tell an adoption."""
    offers = [each.event for each in run.tape if isinstance(each.event, DeltaOffered)]
    return next(place for place, offer in enumerate(offers) if offer.adopted)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"adoption": {"alpha": 0.5}},
        {"adoption": {"carry": True}},
        {"codecs": {"delta": "fp32"}},
        {"inner_steps": 8, "window": {"overlap": 2}},
        {"codecs": {"delta": "int4"}},
        {"codecs": {"delta": "int8", "feedback": True}, "adoption": {"carry": True}},
    ],
    ids=["overwrite", "blend", "carry", "fp32", "overlap", "int4", "int8 fed back"],
)
def test_every_delta_is_the_same_across_a_kill_a_return_and_borrowed_moments(settings):
    run = played(**settings)

    found = again(run)

    joins = [each.event for each in run.tape if isinstance(each.event, LearnerJoined)]
    assert [join.moments.source for join in joins] == ["zero", "zero", "own", "borrowed"]
    offers = sum(isinstance(each.event, DeltaOffered) for each in run.tape)
    assert (found.deltas.compared, found.deltas.identical) == (offers, offers)
    merges = sum(isinstance(each.event, FragmentMerged) for each in run.tape)
    assert (found.merges.compared, found.merges.identical) == (merges, merges)
    assert found.checkpoints.compared == found.checkpoints.identical > 10
    assert (found.models.compared, found.models.identical) == (1, 1)
    assert found.stored_taken == 0 and found.first_difference is None and found.ok
    assert verdict(found) == f"PROVED: all {offers} deltas are identical, bit for bit"


def test_residuals_go_on_across_a_kill_and_one_that_is_told_wrongly_is_found():
    run = played(codecs={"delta": "int4"})
    offers = {one.position: one.event for one in run.tape if isinstance(one.event, DeltaOffered)}
    lives = [(offers[at], one) for one in offers.values() for at in one.residuals]
    later = {one.learner for before, one in lives if before.incarnation < one.incarnation}
    assert later == {"b"} and len(lives) > 10

    number = next(place for place, one in enumerate(offers.values()) if one.residuals)
    found = again(run, changed(run.tape, DeltaOffered, told(residuals=()), number))
    assert not found.ok and found.first_broken is not None
    assert found.first_broken.position == list(offers)[number]
    strange = changed(run.tape, DeltaOffered, told(residuals=(2,)), number)
    with pytest.raises(Differs, match="residual of 2, which is no merged offer of learner"):
        again(run, strange)


def test_training_again_reads_nothing_but_the_first_fragments(run: TrainedRun):
    lost = [FewBlobs(run.store, word) for word in ("/delta/", "/outer/", "/checkpoint/")]

    assert all(rerun(run.tape, run.opening, store, CORPUS).ok for store in lost)


def test_the_tape_s_losses_are_those_of_the_merged_model(run: TrainedRun):
    found = rerun(run.tape, run.opening, run.store, CORPUS, Wanted(evaluate_merges=5))

    assert [one.step for one in found.losses] == [0, 5, 10, 12]
    assert found.losses[-1].loss < found.losses[0].loss


def adopted_later(offer: Event) -> Event:
    assert isinstance(offer, DeltaOffered)
    first = offer.adopted[0]
    moved = {
        "learner_step": first.learner_step + 1,
        "tokens_trained": first.tokens_trained + 2 * CONTEXT,
    }
    return offer.model_copy(
        update={"adopted": (first.model_copy(update=moved), *offer.adopted[1:])}
    )


def test_an_adoption_one_step_later_is_caught_and_does_not_make_all_that_follows_differ(
    run: TrainedRun,
):
    tape = changed(run.tape, DeltaOffered, adopted_later, first_told_adoption(run))

    found = again(run, tape)

    assert found.first_broken is not None and found.first_broken.learner == "a"
    assert 0 < found.deltas.differing < found.deltas.compared / 2
    assert found.merges.identical == found.merges.compared
    assert found.stored_taken >= found.deltas.differing
    assert all(one.cosine > 0.5 for row in found.rows.values() for one in row.distances)
    assert not found.ok


def never_counted(offer: Event, told: bool) -> Event:
    """The offer whose first adoption is held back, or untold; what it stands on is in `held`."""
    assert isinstance(offer, DeltaOffered) and offer.adopted[0].fragment != offer.fragment
    return offer.model_copy(
        update={"adopted": offer.adopted[1:], "held": offer.adopted[:1] if told else ()}
    )


def test_an_adoption_that_was_held_back_until_the_learner_was_killed_is_made_again():
    run = played(fragments=4)
    offers = [each.event for each in run.tape if isinstance(each.event, DeltaOffered)]

    def never_counts(place: int) -> bool:
        word = offers[place]
        rest = [each for each in offers[place + 1 :] if each.incarnation == word.incarnation]
        fragments = {each.fragment for each in rest}
        return bool(rest and word.adopted) and word.adopted[0].fragment not in fragments

    number = next(place for place in range(len(offers)) if never_counts(place))
    for told in (True, False):
        change = partial(never_counted, told=told)
        assert again(run, changed(run.tape, DeltaOffered, change, number)).ok is told


def test_another_learning_rate_is_caught_at_the_first_delta(run: TrainedRun):
    training = run.run.training.model_copy(update={"lr": 2.1e-3})
    opening = replace(run.opening, run=run.run.model_copy(update={"training": training}))

    found = again(run, opening=opening)

    first = next(each for each in run.tape if isinstance(each.event, DeltaOffered))
    assert found.first_broken is not None and isinstance(first.event, DeltaOffered)
    assert (found.first_broken.position, found.first_broken.learner_step) == (
        first.position,
        first.event.learner_step,
    )
    assert verdict(found).startswith(f"DIFFERS: position {first.position}, learner a, its step")


def test_another_clock_is_caught(run: TrainedRun):
    found = again(run, changed(run.tape, FragmentMerged, told(step=5), 2))

    assert found.deltas.differing > 0 and not found.ok


def test_another_batch_is_caught_and_named(run: TrainedRun):
    tape = changed(run.tape, LearnerJoined, told(cursor=ELSEWHERE), 2)

    found = again(run, tape)

    assert found.first_broken is not None and found.first_broken.learner == "b"
    reborn = [row for row in found.rows.values() if row.learner == "b"][1]
    assert found.deltas.differing == reborn.deltas.differing > 0


def test_a_difference_whose_stored_bytes_are_gone_is_counted(run: TrainedRun):
    tape = changed(run.tape, LearnerJoined, told(cursor=ELSEWHERE), 2)

    found = rerun(tape, run.opening, FewBlobs(run.store, "/delta/b/"), CORPUS)

    assert found.unread >= found.deltas.unread > 0 and not found.ok


def test_on_another_machine_what_differs_is_measured_and_is_no_proof(run: TrainedRun):
    def on_another_machine(join: Event) -> Event:
        assert isinstance(join, LearnerJoined)
        told_by = join.fingerprint.replace("python ", "python 9.")
        cursor = ELSEWHERE if join.cursor else b""
        return join.model_copy(update={"fingerprint": told_by, "cursor": cursor})

    found = again(run, changed(run.tape, LearnerJoined, on_another_machine))

    assert found.ok and found.first_broken is None and found.first_difference is not None
    here = platform.python_version()
    assert found.differs == (f"python 9.{here} there, {here} here",)
    assert verdict(found).startswith("NOT A PROOF: this machine is not the one")
    assert any("deltas that differ lie" in line for line in report_lines(found))


def test_as_many_threads_are_set_as_the_fingerprint_says(run: TrainedRun):
    threads = torch.get_num_threads()

    def with_another(join: Event) -> Event:
        assert isinstance(join, LearnerJoined)
        told_by = join.fingerprint.replace(f"threads {threads}", f"threads {threads + 1}")
        return join.model_copy(update={"fingerprint": told_by})

    found = again(run, changed(run.tape, LearnerJoined, with_another))

    assert found.differs == ()
    assert torch.get_num_threads() == threads


def test_one_learner_alone_is_trained_beside_the_stored_deltas_of_the_others(run: TrainedRun):
    found = rerun(run.tape, run.opening, run.store, CORPUS, Wanted(learners=("b",)))

    assert {row.learner for row in found.rows.values()} == {"b"}
    assert found.ok and found.others > 0
    assert found.merges.identical == found.merges.compared > 0
    assert verdict(found).startswith("PROVED FOR A PART, learner b: all ")


def test_it_stops_where_it_is_told_to(run: TrainedRun):
    until = next(each.position for each in run.tape if isinstance(each.event, FragmentMerged))

    found = rerun(run.tape, run.opening, run.store, CORPUS, Wanted(until=until))

    assert (found.events, found.merges.compared, found.ok) == (until, 1, True)
    part = f"PROVED FOR A PART, up to position {until} of {len(run.tape)}: all "
    assert verdict(found).startswith(part)


def test_where_no_delta_was_compared_nothing_is_proved(run: TrainedRun):
    found = rerun(run.tape, run.opening, run.store, CORPUS, Wanted(until=2))

    told_by = f"NOTHING PROVED: no delta was compared (up to position 2 of {len(run.tape)})"
    assert (found.ok, verdict(found)) == (True, told_by)


def test_another_text_is_refused(run: TrainedRun):
    report = EvaluationReported(
        speaker="evaluator", life=1, said=1, step=0, versions=(0, 0), tokens=0, loss=1.0,
        dataset_digest=b"e" * 32,
    )  # fmt: skip
    tape = [*run.tape, replace(run.tape[-1], position=len(run.tape) + 1, event=report)]

    with pytest.raises(AskedWrongly, match="this is not the text of the run"):
        again(run, tape)


def test_a_text_that_is_shorter_than_the_run_s_is_refused(run: TrainedRun):
    short = Corpus(np.zeros(9 * 8, np.uint8), CORPUS.held_out, CORPUS.digest)

    with pytest.raises(AskedWrongly, match="is this the text that the run was trained on"):
        rerun(run.tape, run.opening, run.store, short)


def test_a_run_with_a_model_of_its_own_is_refused():
    own = HandRun(plain_run(), nn.Linear(3, 4))

    with pytest.raises(AskedWrongly, match="trains a model of its own"):
        rerun(own.tape, own.opening, own.store, CORPUS)


def test_a_made_up_tape_is_trained_and_nothing_is_compared(run: TrainedRun):
    made_up = changed(run.tape, SyncerTookOver, told(fingerprint="synthetic: no byte was made"))
    tape = changed(made_up, LearnerJoined, told(cursor=b""))

    found = rerun(tape, run.opening, FewBlobs(run.store, "/delta/"), CORPUS)

    assert (found.synthetic, found.ok, found.deltas.compared) == (True, True, 0)
    assert found.losses[-1] == again(run).losses[-1]
    assert told_as_json(found, 1.0)["verdict"] == verdict(found)


def test_a_model_that_was_spoilt_and_healed_is_made_again_bit_for_bit():
    """What spoilt it stands on no tape; that all was overwritten, and when, does."""
    run = TrainedRun(small_run())
    run.begin("a")
    run.begin("b")
    run.go(5)
    with torch.no_grad():
        next(run.pupils["b"].gpt.parameters()).fill_(math.nan)
    run.go(6)

    found = again(run)

    assert run.pupils["b"].core.state.healed_step > 0
    assert any(isinstance(each.event, DeltaRefused) for each in run.tape)
    assert found.ok and found.deltas.identical == found.deltas.compared > 15


def test_a_fingerprint_names_what_the_bits_depend_on():
    fields = fields_of(fingerprint(torch.device("cpu")))

    assert sorted(fields) == [
        "cpu", "device", "machine", "processor", "python", "rules", "system", "threads", "torch",
    ]  # fmt: skip
    assert fields["device"] == "cpu" and fields["threads"] == str(torch.get_num_threads())
