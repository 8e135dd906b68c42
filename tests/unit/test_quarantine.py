"""Marks, strikes and quarantine: from left-out deltas to a life that nobody waits for."""

from __future__ import annotations

import dataclasses

import pytest

from decodiloco.learner import machine as learner_machine
from decodiloco.syncer.admission import Admitted, Ignored
from decodiloco.syncer.owed import CloseWindow, DeclareLost
from decodiloco.syncer.standing import STRIKE, is_distrusted
from decodiloco.syncer.weights import merge_order
from replay.errors import InvariantBroken
from replay.invariants.ledger import Ledger
from replay.invariants.of_gates import QuarantinedForStrikes
from streams.envelope import Envelope
from streams.events import DeltaRefused, LearnerLost
from streams.frozen import replace
from streams.parts import LeftOut
from tests.builders import checkpointed, left
from tests.desk import Desk

ASTRAY = "direction: cosine -0.400 with the others, 0.500 among them"


def desk(**settings: object) -> Desk:
    """Three learners have joined a run of one fragment."""
    made = Desk(1, learners_min=3, **settings)
    for name in "abc":
        made.join(name)
    return made


def play(run: Desk, reason: str = ASTRAY, doubted: bool = False) -> None:
    """One round that all answer; c's delta is left out for this reason, or doubted, or merged."""
    number = run.open_round()
    for name in run.state.learners:
        if run.state.learners[name].status == "live":
            run.answer(name, number)
    run.close_window(number)
    position = next(
        (p for p in run.state.rounds[number].offers if run.state.offers[p].learner == "c"), 0
    )
    out = (LeftOut(position=position, reason=reason),) if position and reason else ()
    run.merge(number, out, doubted=(position,) if doubted else ())
    for learner in run.state.learners.values():  # all adopt it at once, as far as they tell
        adopted = replace(learner, adopted=run.state.versions, anchor_steps=(learner.learner_step,))
        learners = {**run.state.learners, learner.id: adopted}
        run.state = replace(run.state, learners=learners)


def due(run: Desk) -> list[DeclareLost]:
    """Whom the syncer owes to quarantine."""
    asks = [ask for ask in run.asks(DeclareLost) if isinstance(ask, DeclareLost)]
    return [ask for ask in asks if ask.reason == "quarantined"]


def quarantine(run: Desk) -> int:
    """Writes what is owed; its position."""
    (ask,) = due(run)
    return run.write(
        LearnerLost(
            learner=ask.learner,
            incarnation=ask.incarnation,
            reason="quarantined",
            silent_seconds=0.0,
            why=ask.why,
        )
    )


def test_a_left_out_delta_is_a_strike_and_merged_ones_take_it_back() -> None:
    run = desk()
    play(run)
    assert run.state.learners["c"].marks == STRIKE
    assert run.state.learners["c"].marked_for == ASTRAY
    for expected in (3, 2, 1, 0, 0):
        play(run, reason="")
        assert run.state.learners["c"].marks == expected
    assert [run.state.learners[name].marks for name in "ab"] == [0, 0]


@pytest.mark.parametrize("reason", ["missing", "unreachable: S3", "corrupt: chunk 0"])
def test_what_the_store_lost_is_no_strike(reason: str) -> None:
    run = desk()
    play(run, reason)
    assert run.state.learners["c"].marks == 0


def test_a_doubted_delta_is_a_quarter_of_a_strike() -> None:
    run = desk()
    for _ in range(8):
        play(run, reason="", doubted=True)
    learner = run.state.learners["c"]
    assert (learner.marks, learner.marked_for) == (8, "direction: doubted")
    assert due(run) == []


def test_who_is_often_doubted_is_distrusted_in_the_merges_that_are_ordered_from_then_on() -> None:
    run = desk()
    for _ in range(8):
        play(run, reason="", doubted=True)
    number = run.open_round()
    for name in "abc":
        run.answer(name, number)
    run.close_window(number)
    order = merge_order(run.state, number)
    assert [(one.learner, one.distrusted) for one in order.contributions] == [
        ("a", False),
        ("b", False),
        ("c", True),
    ]
    assert not is_distrusted(run.state, run.state.offers[run.state.rounds[number].offers[0]])


def test_after_three_strikes_the_syncer_owes_a_quarantine_at_once() -> None:
    run = desk()
    play(run)
    play(run)
    assert due(run) == []
    play(run)
    life = run.state.learners["c"].incarnation
    assert due(run) == [DeclareLost("c", life, life, 0.0, "quarantined", ASTRAY)]


def test_a_run_without_strikes_quarantines_nobody() -> None:
    run = desk(gates={"strikes": 0})
    for _ in range(9):
        play(run)
    assert due(run) == []


def test_a_quarantined_life_is_refused_by_name_and_nobody_waits_for_it() -> None:
    run = desk()
    for _ in range(3):
        play(run)
    quarantine(run)
    learner = run.state.learners["c"]
    assert learner.status == "quarantined"
    number = run.open_round()
    refusal = run.answer("c", number)
    assert isinstance(refusal, Admitted) and isinstance(refusal.event, DeltaRefused)
    assert refusal.event.reason == f"quarantined ({ASTRAY})"
    assert run.state.learners["c"].status == "quarantined"
    for name in "ab":
        run.answer(name, number)
    assert [ask.reason for ask in run.asks(CloseWindow)] == ["all answered"]
    said = {"incarnation": learner.incarnation, "said": 9}
    assert isinstance(run.say(checkpointed("c", **said)), Ignored)
    assert isinstance(run.say(left("c", **said)), Ignored)
    assert run.state.learners["c"].status == "quarantined"


def test_what_a_quarantined_life_has_offered_comes_into_no_window() -> None:
    run = desk()
    for _ in range(2):
        play(run)
    play(run)
    number = run.open_round()
    run.answer("c", number)
    (waiting,) = run.state.waiting(0)
    quarantine(run)
    assert run.state.waiting(0) == ()
    assert waiting.position not in run.state.offers
    fates = run.state.learners["c"].fates(0)
    assert sum(fates.values()) == run.state.learners["c"].tokens_trained
    assert fates["open"] == 0


def test_an_abandoned_merge_lets_nothing_of_a_quarantined_life_wait_again() -> None:
    run = desk(quorum=2, gates={"strikes": 1})
    play(run)
    number = run.open_round()
    for name in "abc":
        run.answer(name, number)
    run.close_window(number)
    quarantine(run)
    assert len(run.state.rounds[number].offers) == 3
    first, second, _ = run.state.rounds[number].offers
    lost = tuple(LeftOut(position=each, reason="missing") for each in (first, second))
    run.abandon(number, lost)
    assert run.state.waiting(0) == ()


def test_a_new_life_is_heard_again_and_begins_without_marks() -> None:
    run = desk()
    for _ in range(3):
        play(run)
    quarantine(run)
    run.join("c")
    learner = run.state.learners["c"]
    assert (learner.status, learner.marks, learner.marked_for) == ("live", 0, "")
    play(run, reason="")
    assert due(run) == []


def test_strikes_of_an_older_life_do_not_count_against_the_new_one() -> None:
    run = desk()
    number = run.open_round()
    for name in "abc":
        run.answer(name, number)
    run.close_window(number)
    run.join("c")
    position = run.state.rounds[number].offers[2]
    run.merge(number, (LeftOut(position=position, reason=ASTRAY),))
    assert run.state.learners["c"].marks == 0


def test_an_abandoned_merge_strikes_as_a_merge_does() -> None:
    run = desk(quorum=3)
    number = run.open_round()
    for name in "abc":
        run.answer(name, number)
    run.close_window(number)
    run.abandon(number, (LeftOut(position=run.state.rounds[number].offers[2], reason=ASTRAY),))
    assert run.state.learners["c"].marks == STRIKE


def test_a_learner_that_is_lost_meanwhile_is_quarantined_all_the_same() -> None:
    run = desk()
    for _ in range(3):
        play(run)
    life = run.state.learners["c"].incarnation
    run.write(LearnerLost(learner="c", incarnation=life, reason="silent", silent_seconds=10.0))
    assert [ask.learner for ask in due(run)] == ["c"]


def test_the_learner_is_told_why_its_life_is_over() -> None:
    run = desk()
    state = learner_machine.begin(run.opening, "c")
    for envelope in run.tape:
        state = learner_machine.fold(state, envelope)
    state = replace(state, incarnation=run.state.learners["c"].incarnation)
    for _ in range(3):
        play(run)
    position = quarantine(run)
    state = learner_machine.fold(state, run.tape[-1])
    assert (state.ended_by, state.quarantined_for, state.alive) == (position, ASTRAY, False)


def spoilt(envelope: Envelope, **changes: object) -> Envelope:
    """The record with other fields in its fact."""
    return dataclasses.replace(envelope, event=envelope.event.model_copy(update=changes))


def told(run: Desk, position: int) -> Ledger:
    """The plain account of a run up to a fact, and the invariant held against each."""
    ledger, invariant = Ledger(run.opening), QuarantinedForStrikes()
    for envelope in run.tape:
        if envelope.position == position:
            break
        invariant.tell(ledger, envelope)
        ledger.tell(envelope)
    return ledger


def test_a_quarantine_for_strikes_is_sound_by_the_plain_account() -> None:
    run = desk()
    for _ in range(3):
        play(run)
    quarantine(run)
    ledger = told(run, run.state.position)
    assert ledger.lives["c"].marks == 3 * STRIKE
    QuarantinedForStrikes().tell(ledger, run.tape[-1])


def test_a_quarantine_without_strikes_is_found_out() -> None:
    run = desk()
    for _ in range(3):
        play(run)
    quarantine(run)
    ledger, last = told(run, run.state.position), run.tape[-1]
    other = spoilt(last, learner="a", incarnation=3)
    with pytest.raises(InvariantBroken, match="a is quarantined with 0 marks"):
        QuarantinedForStrikes().tell(ledger, other)
    old = spoilt(last, incarnation=3)
    with pytest.raises(InvariantBroken, match="life 3 is quarantined"):
        QuarantinedForStrikes().tell(ledger, old)


def test_an_offer_that_is_heard_of_a_quarantined_life_is_found_out() -> None:
    run = desk()
    for _ in range(3):
        play(run)
    offered = next(e for e in run.tape if e.event.kind == "delta_offered")
    closed = next(e for e in reversed(run.tape) if e.event.kind == "window_closed")
    position = quarantine(run)
    ledger = told(run, position + 1)
    offer = spoilt(offered, learner="c")
    with pytest.raises(InvariantBroken, match="delta_offered of c, which is quarantined"):
        QuarantinedForStrikes().tell(ledger, offer)
    ledger.offers[99] = offer.event
    window = spoilt(closed, offers=(99,))
    with pytest.raises(InvariantBroken, match="which are quarantined"):
        QuarantinedForStrikes().tell(ledger, window)
