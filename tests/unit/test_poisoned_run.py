"""A small run one of whose four learners sends bad deltas: named, quarantined, and proved again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from decodiloco.merge.self_test import self_test
from replay.fact_bytes import Named, checks_of
from replay.facts_check import FactsCheck
from replay.refold import refold
from streams.events import FragmentMerged, LearnerLost
from streams.parts import LeftOut
from tests.chaos.poison import BAD, PoisonedRun, told_of
from tests.plain_fold import PlainFold
from tests.trained_run import CORPUS, small_run

ROUNDS = 8


def left_out_of(run: PoisonedRun) -> Iterable[LeftOut]:
    for envelope in run.tape:
        yield from getattr(envelope.event, "left_out", ())


@pytest.fixture(scope="module")
def run() -> PoisonedRun:
    made = PoisonedRun(small_run(), CORPUS, "1000x")
    for name in "abcd":
        made.begin(name)
    made.go(ROUNDS)
    return made


def test_the_bad_learner_is_quarantined_after_three_strikes_and_nobody_else_is_touched(
    run: PoisonedRun,
) -> None:
    told = told_of(run)
    assert told.left_out == {"a": 0, "b": 0, "c": 0, BAD: 3}
    assert told.merged == {"a": ROUNDS, "b": ROUNDS, "c": ROUNDS, BAD: 0}
    assert list(told.quarantined) == [BAD]
    assert run.state.learners[BAD].status == "quarantined"
    (lost,) = [fact for fact in run.facts(LearnerLost) if isinstance(fact, LearnerLost)]
    assert lost.why.startswith("extreme norm: ")


def test_every_verdict_is_made_again_from_the_stored_bytes(run: PoisonedRun) -> None:
    left_out = {each.position: each.reason for each in left_out_of(run)}
    named, facts = Named(run.store, run.opening, left_out), FactsCheck(self_test())
    merges = 0
    for folded in refold(run.tape, run.opening, facts.tell):
        for check in checks_of(folded, named, {}):
            check.run()
            merges += check.is_merge
    assert merges == ROUNDS


def test_a_plain_fold_comes_to_the_same_marks_and_the_same_state(run: PoisonedRun) -> None:
    second, merges = PlainFold(run.opening), 0
    for envelope in run.tape:
        if isinstance(envelope.event, FragmentMerged):
            assert envelope.event.state_digest == second.digest()
            merges += 1
        second.tell(envelope)
    assert merges == ROUNDS


def test_a_new_life_of_a_mended_learner_is_merged_again() -> None:
    run = PoisonedRun(small_run(), CORPUS, "1000x")
    for name in "abcd":
        run.begin(name)
    run.go(4)
    assert run.state.learners[BAD].status == "quarantined"
    run.way = ""
    run.begin(BAD)
    run.go(4)
    assert (run.state.learners[BAD].status, run.state.learners[BAD].marks) == ("live", 0)
    assert told_of(run).merged[BAD] == 4
