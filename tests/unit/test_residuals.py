"""Error feedback by the facts: which residuals a delta takes up, and what becomes of them."""

from __future__ import annotations

import pytest

from decodiloco.learner import happenings as told_of
from decodiloco.learner.outbox import next_word
from decodiloco.learner.owed import owed_beside
from decodiloco.learner.residuals import in_use, of, to_store
from decodiloco.learner.state import Leaving, Offer, Residual
from streams import events as facts
from streams import parts
from streams.frozen import replace
from tests.builders import joined, manifest
from tests.unit.test_learner_machine import Learner

CODECS = {"delta": "int4"}


def learner(**settings: object) -> Learner:
    one = Learner(codecs=CODECS, **settings)
    one.join()
    return one


def said(one: Learner) -> tuple[facts.DeltaOffered, int]:
    """The next offer, on the tape."""
    word = one.answer()
    return word, one.fact(word)


def merged_once(one: Learner, round_: int) -> int:
    """A round of fragment 0 that merges this learner's offer; the offer's position."""
    one.open(round_)
    one.step(0)
    _, position = said(one)
    one.close_window(round_, position)
    one.merge(round_, position)
    one.fetch()
    version = one.state.fragments[0].newest
    one.tell(told_of.Adopted(((0, version),)))
    return position


def held(one: Learner) -> list[int]:
    return [residual.position for residual in one.state.residuals]


def test_the_residual_of_a_merged_offer_is_in_the_next_delta_of_its_fragment_once() -> None:
    one = learner()
    first = merged_once(one, 1)
    assert held(one) == [first]

    one.open(5)
    one.step(0)
    word, second = said(one)
    assert word.residuals == (first,)
    one.close_window(5, second)
    assert held(one) == [first], "it is not made good before the merge"
    one.merge(5, second)
    assert held(one) == [second]


def test_a_delta_of_another_fragment_takes_up_nothing() -> None:
    one = learner()
    merged_once(one, 1)
    one.open(2)
    one.step(1)
    assert said(one)[0].residuals == ()


@pytest.mark.parametrize("end", ["refused", "left out", "superseded", "abandoned"])
def test_an_offer_that_is_not_merged_leaves_all_as_it_was(end: str) -> None:
    one = learner()
    first = merged_once(one, 1)
    one.open(5)
    one.step(0)
    if end == "refused":
        one.refuse(one.answer(), "too old")
    else:
        _, position = said(one)
        if end == "superseded":
            one.close_window(5, superseded=(position,))
            one.merge(5)
        elif end == "left out":
            one.close_window(5, position)
            one.merge(5, left_out=(parts.LeftOut(position=position, reason="corrupt"),))
        else:
            one.close_window(5, position)
            out = parts.LeftOut(position=position, reason="missing")
            one.fact(facts.MergeAbandoned(round=5, left_out=(out,)))
    assert held(one) == [first]
    if end in ("superseded", "left out"):
        one.fetch()
        one.tell(told_of.Adopted(((0, 2),)))
        one.open(9)
    one.step(0)
    assert said(one)[0].residuals == (first,), "the work is offered again, and the residual with it"


def test_an_offer_of_later_steps_leaves_alone_what_an_offer_in_a_closed_window_holds() -> None:
    one = learner()
    first = merged_once(one, 1)
    one.open(5)
    one.step(0)
    late, waiting = said(one)  # too late for round 5, so it rides along
    one.close_window(5)
    one.merge(5)
    one.fetch()
    one.tell(told_of.Adopted(((0, 2),)))
    one.open(9)
    one.step(0)
    beside = one.answer()
    assert (late.residuals, beside.residuals) == ((first,), ())
    one.close_window(9, waiting)
    one.merge(9, waiting)
    there = one.fact(beside)
    assert held(one) == [waiting]
    one.fetch()
    one.tell(told_of.Adopted(((0, 3),)))
    one.open(13)
    one.step(0)
    third, _ = said(one)
    assert third.residuals == (waiting,), "what is merged already is free"
    one.close_window(13, there)
    one.merge(13, there)
    assert held(one) == [waiting, there]


def test_offers_that_hold_the_same_steps_hold_the_same_residuals() -> None:
    one = learner()
    first = merged_once(one, 1)
    one.open(5)
    one.step(0)
    said(one)
    one.close_window(5)
    one.merge(5)
    one.open(9)  # nothing is adopted: the next delta begins where the last one did
    one.step(0)
    assert said(one)[0].residuals == (first,)


def test_residuals_are_added_in_the_order_of_their_positions_however_they_came() -> None:
    one = learner()
    one.state = replace(one.state, residuals=(Residual(9, 0, 4), Residual(7, 0, 3)))
    assert [each.position for each in of(one.state, (7, 9, 11))] == [7, 9]
    one.open(1)
    one.step(0)
    assert said(one)[0].residuals == (7, 9)


def test_without_feedback_nothing_is_kept_and_nothing_is_told() -> None:
    one = Learner(codecs={"delta": "int4", "feedback": False})
    one.join()
    merged_once(one, 1)
    assert one.state.residuals == ()
    one.open(5)
    one.step(0)
    assert said(one)[0].residuals == ()


def stored(one: Learner) -> facts.CheckpointStored:
    """A checkpoint of this moment, on the tape."""
    step, kept = one.state.learner_step, to_store(one.state)
    one.tell(told_of.CheckpointTaken(step))
    at = tuple(residual.position for residual in kept)
    one.tell(told_of.CheckpointSaved(step, 0, manifest("c", codec="raw"), at))
    word = next_word(one.state)
    assert isinstance(word, facts.CheckpointStored)
    one.tell(told_of.Spoken(word))
    one.fact(word)
    return word


def reborn(dead: Learner, records: list[facts.Event]) -> Learner:
    """The next life of a learner, before it joins: it has read all that is on the tape."""
    one = Learner(codecs=CODECS)
    for event in records:
        one.fact(event)
    assert one.position == dead.position
    return one


class Recorded(Learner):
    """A learner whose facts are kept."""

    def __init__(self) -> None:
        super().__init__(codecs=CODECS)
        self.events: list[facts.Event] = []

    def fact(self, event: facts.Event) -> int:
        self.events.append(event)
        return super().fact(event)


def join_again(one: Learner) -> None:
    one.fact(joined("a", nonce=b"m" * 16, learner_step=10, tokens_trained=100))


def test_a_new_life_goes_on_with_the_residuals_of_its_checkpoint() -> None:
    dead = Recorded()
    dead.join()
    first = merged_once(dead, 1)
    assert stored(dead).residuals == (first,)

    one = reborn(dead, dead.events)
    assert one.state.checkpoints["a"].residuals == (first,)
    one.tell(told_of.Loaded((1, 0, 0, 0), b"m" * 16))
    one.tell(told_of.Restored((first,)))
    join_again(one)
    assert held(one) == [first]


def test_a_new_life_without_its_checkpoint_goes_on_without_residuals() -> None:
    dead = Recorded()
    dead.join()
    merged_once(dead, 1)
    one = reborn(dead, dead.events)
    one.tell(told_of.Loaded((1, 0, 0, 0), b"m" * 16))
    join_again(one)
    assert held(one) == []


def reborn_with_an_offer_waiting() -> tuple[Learner, int, int]:
    """A life, the residual that it restored, and the last life's offer that holds it."""
    dead = Recorded()
    dead.join()
    first = merged_once(dead, 1)
    stored(dead)
    dead.open(5)
    dead.step(0)
    _, waiting = said(dead)

    one = reborn(dead, dead.events)
    one.tell(told_of.Loaded((1, 0, 0, 0), b"m" * 16))
    one.tell(told_of.Restored((first,)))
    join_again(one)
    return one, first, waiting


def test_what_the_last_life_offered_holds_its_residuals_until_it_has_an_end() -> None:
    one, _, waiting = reborn_with_an_offer_waiting()
    one.step(0)
    ask = next(ask for ask in owed_beside(one.state) if isinstance(ask, Offer))
    assert ask.copy.residuals == ()

    one.close_window(5, waiting)
    one.merge(5, waiting)
    assert held(one) == [], "made good, and what that offer lost died with its life"


def test_a_residual_is_free_once_the_last_life_s_offer_is_superseded() -> None:
    one, first, waiting = reborn_with_an_offer_waiting()
    one.close_window(5, superseded=(waiting,))
    one.merge(5)
    one.fetch()
    one.tell(told_of.Adopted(((0, 2),)))
    one.open(9)
    one.step(0)
    assert said(one)[0].residuals == (first,)


def test_numbers_are_kept_for_what_is_there_and_for_what_may_still_be_merged() -> None:
    one = learner()
    merged_once(one, 1)
    assert [sorted(steps) for steps in in_use(one.state)] == [[1], [], [], []]
    one.open(5)
    one.step(0)
    said(one)
    assert [sorted(steps) for steps in in_use(one.state)] == [[1, 2], [], [], []]
    one.tell(told_of.LeaveWanted(Leaving("asked")))
    assert [sorted(steps) for steps in in_use(one.state)] == [[1, 2], [], [], []]


def test_an_offer_says_no_more_residuals_than_a_word_may() -> None:
    one = learner()
    several = tuple(range(3, 3 + 2 * parts.RESIDUALS_MAX))
    found = tuple(Residual(position, 0, position) for position in several)
    one.state = replace(one.state, residuals=found)
    one.open(1)
    one.step(0)
    assert said(one)[0].residuals == several[: parts.RESIDUALS_MAX]
