"""A learner that is refused again and again, or taken for dead: it comes back by itself."""

from __future__ import annotations

from decodiloco.learner import happenings as told_of
from decodiloco.learner.machine import REFUSALS_MAX
from decodiloco.learner.outbox import next_word
from decodiloco.learner.owed import owed_at_boundary, owed_beside
from decodiloco.learner.state import CopyFragments, Offer, StoreCheckpoint
from streams import events as facts
from tests.builders import manifest
from tests.unit.test_learner_machine import Learner, learner

__all__ = ["learner"]  # the fixture


def test_after_too_many_refusals_a_round_is_answered_again_h_steps_later(learner: Learner) -> None:
    learner.open(1)
    for count in range(1, REFUSALS_MAX + 1):
        learner.step(0)
        learner.refuse(learner.answer(), f"whim {count}")
    for _ in range(learner.state.opening.run.inner_steps - 1):
        learner.step()
        assert owed_at_boundary(learner.state)[0] == CopyFragments(())
    learner.open(2)
    learner.step(1)
    assert owed_at_boundary(learner.state)[0] == CopyFragments((0, 1)), "H steps have passed"
    learner.step(0, 1)
    assert [ask.round for ask in owed_beside(learner.state) if isinstance(ask, Offer)] == [1, 2]


def test_who_is_lost_without_a_word_to_say_speaks_by_a_checkpoint(learner: Learner) -> None:
    life = learner.state.incarnation
    lost = facts.LearnerLost(learner="a", incarnation=life, reason="silent", silent_seconds=9.0)
    learner.step()
    learner.fact(lost.model_copy(update={"incarnation": life + 1}))
    assert owed_at_boundary(learner.state) == (CopyFragments(()),), "that was another life"
    learner.fact(lost)
    assert owed_at_boundary(learner.state) == (CopyFragments(()), StoreCheckpoint(1))
    learner.tell(told_of.CheckpointTaken(1))
    learner.step()
    assert owed_at_boundary(learner.state) == (CopyFragments(()),), "one at a time"
    learner.tell(told_of.CheckpointSaved(1, 0, manifest("c", codec="raw")))
    word = next_word(learner.state)
    assert isinstance(word, facts.CheckpointStored)
    learner.tell(told_of.Spoken(word))
    learner.fact(word)
    assert owed_at_boundary(learner.state) == (CopyFragments(()),), "it is heard again"


def test_who_is_lost_with_a_word_to_say_needs_no_checkpoint(learner: Learner) -> None:
    life = learner.state.incarnation
    learner.open(1)
    learner.step(0)
    word = learner.answer()
    learner.fact(
        facts.LearnerLost(learner="a", incarnation=life, reason="silent", silent_seconds=9.0)
    )
    assert owed_at_boundary(learner.state) == (CopyFragments(()),)
    learner.refuse(word, "too old: 2 versions behind")
    assert not learner.state.lost, "a refusal, too, says that it was heard"


def test_to_heal_what_waits_to_be_said_of_the_broken_model_is_dropped(learner: Learner) -> None:
    learner.open(1), learner.open(2)
    learner.step(0, 1)
    asks = [ask for ask in owed_beside(learner.state) if isinstance(ask, Offer)]
    for ask in asks:
        learner.tell(told_of.OfferBegun(ask.round, ask.copy))
        learner.tell(told_of.OfferStored(ask.round, ask.copy, manifest("delta"), 0.5))
    learner.tell(told_of.CheckpointTaken(1))
    learner.tell(told_of.CheckpointSaved(1, 0, manifest("checkpoint", codec="raw")))
    word = next_word(learner.state)
    assert isinstance(word, facts.DeltaOffered)
    learner.tell(told_of.Spoken(word))
    learner.refuse(word, "not finite: loss nan")
    following = next_word(learner.state)
    assert isinstance(following, facts.CheckpointStored), "the other delta is not offered"
    assert len(learner.state.drafts) == 1
