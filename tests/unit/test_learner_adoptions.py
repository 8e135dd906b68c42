"""Adoptions that are still to be told: all of them, within bounds; no offer lacks its base."""

from __future__ import annotations

from decodiloco.learner import happenings as told_of
from decodiloco.learner.outbox import ADOPTIONS_MAX, next_word
from decodiloco.learner.owed import owed_beside
from decodiloco.learner.state import Offer
from streams import events as facts
from streams import parts
from streams.frozen import replace
from tests.builders import abandoned
from tests.unit.test_learner_machine import DELTA, Learner


def adopt(learner: Learner, version: int) -> None:
    learner.tell(told_of.FetchBegun(0, version))
    learner.tell(told_of.Fetched(0, version, 0.5))
    learner.step(0)
    learner.tell(told_of.Adopted(((0, version),)))
    learner.step(0)


def answer(learner: Learner, round_: int) -> facts.DeltaOffered:
    learner.open(round_)
    (ask,) = owed_beside(learner.state)
    assert isinstance(ask, Offer)
    learner.tell(told_of.OfferBegun(ask.round, ask.copy))
    learner.tell(told_of.OfferStored(ask.round, ask.copy, DELTA, 0.5))
    word = next_word(learner.state)
    assert isinstance(word, facts.DeltaOffered)
    learner.tell(told_of.Spoken(word))
    return word


def refuse(learner: Learner, word: facts.DeltaOffered) -> None:
    learner.fact(
        facts.DeltaRefused(
            learner="a",
            incarnation=word.incarnation,
            said=word.said,
            round=word.round,
            fragment=word.fragment,
            learner_step=word.learner_step,
            inner_steps=word.inner_steps,
            tokens=word.tokens,
            tokens_trained=word.tokens_trained,
            reason="too old: 1 versions behind",
        )
    )


def test_a_learner_that_is_always_refused_still_tells_the_base_of_its_next_offer() -> None:
    learner = Learner()
    learner.join()
    for version in range(1, 2 * ADOPTIONS_MAX + 3):
        adopt(learner, version)
        word = answer(learner, 4 * version + 1)
        told = [each.version for each in word.adopted]
        assert told[-1] == word.base_version == version
        assert told == list(range(told[0], version + 1)), "and all before, in order"
        if version <= ADOPTIONS_MAX:
            assert told[0] == 1
        refuse(learner, word)
    assert len(learner.state.adoptions) <= ADOPTIONS_MAX


def test_an_adoption_from_which_a_waiting_copy_starts_is_still_told() -> None:
    learner = Learner()
    learner.join()
    adopt(learner, 1)
    first = answer(learner, 5)
    learner.step(0)
    learner.tell(told_of.Adopted(((0, 2),)))
    refuse(learner, first)
    assert [each.version for each in learner.state.adoptions] == [1, 2]


def test_an_adoption_waits_for_a_word_whose_cursor_has_reached_its_step() -> None:
    learner = Learner()
    learner.join()
    learner.open(1), learner.open(2)
    learner.step(0)
    first = learner.answer()
    learner.step(1)
    learner.step()
    learner.tell(told_of.FetchBegun(2, 1))
    learner.tell(told_of.Fetched(2, 1, 0.5))
    learner.tell(told_of.Adopted(((2, 1),)))
    learner.fact(first)
    learner.tell(told_of.Stepped(10, 2.0, b"far", 1.0))
    early = parts.Adoption(
        fragment=2, version=1, learner_step=3, tokens_trained=30, fetch_seconds=0.5
    )
    assert learner.state.adoptions == (early,)
    learner.tell(told_of.Copied((1,)))
    (ask,) = [ask for ask in owed_beside(learner.state) if isinstance(ask, Offer)]
    old = replace(ask.copy, learner_step=2, tokens_trained=20, cursor=b"c")
    for copy in (old, ask.copy):
        learner.state = replace(learner.state, in_flight=None)
        learner.tell(told_of.OfferBegun(2, copy))
        learner.tell(told_of.OfferStored(2, copy, DELTA, 0.5))
        word = next_word(learner.state)
        assert isinstance(word, facts.DeltaOffered)
        learner.tell(told_of.Spoken(word))
        if copy == old:
            assert (word.cursor, word.adopted, word.held) == (b"c", (), (early,))
        else:
            assert (word.cursor, word.adopted, word.held) == (b"far", (early,), ())


def test_under_carry_what_overlaps_an_offer_in_a_closed_window_is_not_said() -> None:
    learner = Learner(adoption={"carry": True})
    learner.join()
    learner.open(1)
    learner.step(0)
    late = learner.answer()
    learner.close_window(1)
    position = learner.fact(late)
    learner.merge(1)
    learner.fetch()
    learner.step()
    learner.tell(told_of.Adopted(((0, 1),)))
    learner.step(0)
    learner.open(5)
    (ask,) = [ask for ask in owed_beside(learner.state) if isinstance(ask, Offer)]
    assert ask.copy.base.learner_step == 0, "it holds the late offer's steps, too"
    learner.tell(told_of.OfferBegun(ask.round, ask.copy))
    learner.close_window(5, position)
    learner.tell(told_of.OfferStored(ask.round, ask.copy, DELTA, 0.5))
    assert (learner.state.making, learner.state.drafts) == ((), ())
    left_out = parts.LeftOut(position=position, reason="absent")
    learner.fact(abandoned(5, left_out=(left_out,)))
    learner.step(0)
    (again,) = [ask for ask in owed_beside(learner.state) if isinstance(ask, Offer)]
    assert (again.round, again.copy.inner_steps) == (5, learner.state.learner_step)
