"""The learner's machine fact by fact, where a whole history would hide what is meant."""

from __future__ import annotations

import pytest

from decodiloco.learner import happenings as told_of
from decodiloco.learner.machine import begin, fold
from decodiloco.learner.outbox import join_word, next_word
from decodiloco.learner.owed import owed_at_boundary, owed_beside
from decodiloco.learner.state import (
    START,
    Adopt,
    CopyFragments,
    Fetch,
    Leave,
    Leaving,
    Offer,
    RunClock,
    State,
    StoreCheckpoint,
)
from decodiloco.learner.telling import told
from streams import events as facts
from streams import parts
from streams.codec import seal
from streams.events import Event
from tests.builders import abandoned, digest, joined, manifest
from tests.desk import opening_of

NONCE = b"n" * 16
DELTA = manifest("delta", codec="bf16")


class Learner:
    """A state, and the facts and happenings that it lived through."""

    def __init__(self, **settings: object) -> None:
        self.state: State = begin(opening_of(4, **settings), "a")
        self.position = 1

    def fact(self, event: Event) -> int:
        self.position += 1
        record = seal(self.position, digest("p"), 1, "s", None, 0.0, event)
        self.state = fold(self.state, record)
        return self.position

    def tell(self, happening: told_of.Happening) -> None:
        self.state = told(self.state, happening)

    def join(self) -> None:
        self.tell(told_of.Loaded((0, 0, 0, 0), NONCE))
        self.fact(joined("a", nonce=NONCE))

    def step(self, *copies: int) -> None:
        self.tell(told_of.Stepped(10, 2.0, b"c", 1.0))
        self.tell(told_of.Copied(copies))

    def open(self, round_: int) -> None:
        fragment = (round_ - 1) % 4
        self.fact(
            facts.RoundOpened(
                round=round_,
                fragment=fragment,
                version=self.state.fragments[fragment].newest + 1,
                pace_seconds=1.0,
                grace_seconds_max=1.0,
                tokens=77,
            )
        )

    def answer(self) -> facts.DeltaOffered:
        """Makes and says the first offer that is owed."""
        ask = next(ask for ask in owed_beside(self.state) if isinstance(ask, Offer))
        self.tell(told_of.OfferBegun(ask.round, ask.copy))
        self.tell(told_of.OfferStored(ask.round, ask.copy, DELTA, 0.5))
        word = next_word(self.state)
        assert isinstance(word, facts.DeltaOffered)
        self.tell(told_of.Spoken(word))
        return word

    def refuse(self, word: facts.DeltaOffered, reason: str) -> None:
        fields = {
            name: getattr(word, name)
            for name in facts.DeltaRefused.model_fields
            if name != "reason"
        }
        self.fact(facts.DeltaRefused(**fields, reason=reason))

    def close_window(self, round_: int, *positions: int, superseded: tuple[int, ...] = ()) -> None:
        self.fact(
            facts.WindowClosed(
                round=round_,
                fragment=(round_ - 1) % 4,
                version=1,
                offers=positions,
                superseded=superseded,
                reason="all answered",
                quorum_seconds=0.0,
                waited_seconds=0.0,
            )
        )

    def merge(self, round_: int, *positions: int, left_out: tuple[parts.LeftOut, ...] = ()) -> None:
        fragment = (round_ - 1) % 4
        self.fact(
            facts.FragmentMerged(
                round=round_,
                fragment=fragment,
                version=self.state.fragments[fragment].newest + 1,
                step=self.state.step + 1,
                contributions=positions,
                left_out=left_out,
                parameters=manifest("p"),
                momentum=manifest("m"),
                report=manifest("r"),
                outer_gradient_norm=1.0,
                merge_seconds=0.0,
                state_digest=digest("s"),
            )
        )

    def close(self) -> None:
        self.fact(facts.RunClosing(speaker="s", life=0, said=0, reason="asked"))
        self.fact(
            facts.RunClosed(
                reason="asked",
                step=self.state.step,
                tokens=0,
                versions=tuple(fragment.newest for fragment in self.state.fragments),
                digest=digest("model"),
            )
        )

    def fetch(self) -> None:
        for ask in owed_beside(self.state):
            if isinstance(ask, Fetch):
                self.tell(told_of.FetchBegun(ask.fragment, ask.version))
                self.tell(told_of.Fetched(ask.fragment, ask.version, 0.25))


@pytest.fixture
def learner() -> Learner:
    found = Learner()
    found.join()
    return found


def test_before_it_has_joined_nothing_is_owed_and_nothing_said() -> None:
    learner = Learner()
    learner.open(1)
    assert owed_at_boundary(learner.state, [1]) == ()
    assert owed_beside(learner.state) == ()
    assert next_word(learner.state) is None


def test_what_earlier_lives_said_moves_counters_and_cursor(learner: Learner) -> None:
    learner.step(0)
    learner.open(1)
    word = learner.answer()
    again = Learner()
    again.fact(joined("a", nonce=b"o" * 16))
    adoption = parts.Adoption(
        fragment=1, version=1, learner_step=5, tokens_trained=50, fetch_seconds=0.0
    )
    again.fact(word.model_copy(update={"adopted": (adoption,)}))
    assert (again.state.learner_step, again.state.tokens_trained) == (5, 50)
    assert again.state.cursor == b"c"
    again.tell(told_of.Loaded((0, 0, 0, 0), NONCE))
    said = join_word(again.state, "home", "f", parts.Moments(source="zero", age_steps=0))
    assert (said.learner_step, said.tokens_trained, said.nonce) == (5, 50, NONCE)


def test_a_boundary_copies_what_is_open_and_what_is_ahead(learner: Learner) -> None:
    learner.open(1)
    learner.tell(told_of.Stepped(10, 2.0, b"", 1.0))
    assert owed_at_boundary(learner.state, [2]) == (CopyFragments((0, 1)),)


def test_a_step_without_tokens_gives_nothing_to_copy(learner: Learner) -> None:
    learner.open(1)
    learner.tell(told_of.Stepped(0, 2.0, b"", 1.0))
    assert owed_at_boundary(learner.state) == (CopyFragments(()),)


def test_a_refusal_for_wrong_adoptions_does_not_tell_them_again(learner: Learner) -> None:
    learner.open(1), learner.close_window(1), learner.merge(1)
    learner.fetch()
    learner.step()
    learner.tell(told_of.Adopted(((0, 1),)))
    learner.open(2)
    learner.step(1)
    word = learner.answer()
    assert [adoption.fragment for adoption in word.adopted] == [0]
    learner.refuse(word, "adopted: no fragment 0")
    assert learner.state.adoptions == ()


def test_words_of_other_lives_and_learners_change_nothing(learner: Learner) -> None:
    learner.step(0)
    learner.open(1)
    word = learner.answer()
    before = learner.state
    learner.refuse(word.model_copy(update={"incarnation": 1}), "not finite")
    learner.fact(word.model_copy(update={"incarnation": 1}))
    learner.fact(joined("b"))
    learner.fact(abandoned(9))
    assert learner.state.in_flight == before.in_flight
    assert learner.state.fragments == before.fragments
    assert (learner.state.sent, learner.state.ended_by) == ((), 0)


def test_an_upload_that_is_given_up_leaves_the_round_to_a_newer_copy(learner: Learner) -> None:
    learner.open(1)
    learner.step(0)
    (ask,) = owed_beside(learner.state)
    assert isinstance(ask, Offer)
    learner.tell(told_of.OfferBegun(ask.round, ask.copy))
    assert owed_beside(learner.state) == ()
    learner.tell(told_of.OfferFailed(ask.round, ask.copy))
    assert owed_beside(learner.state) == ()
    learner.step(0)
    assert len(owed_beside(learner.state)) == 1
    learner.tell(told_of.OfferStored(ask.round, ask.copy, DELTA, 1.0))
    assert learner.state.drafts == ()


def test_one_delta_of_a_fragment_is_made_at_a_time(learner: Learner) -> None:
    learner.open(1)
    learner.step(0)
    (ask,) = owed_beside(learner.state)
    assert isinstance(ask, Offer)
    learner.tell(told_of.OfferBegun(ask.round, ask.copy))
    learner.close_window(1), learner.merge(1)
    learner.open(5)
    learner.step(0)
    assert [type(found) for found in owed_beside(learner.state)] == [Fetch]
    learner.tell(told_of.OfferStored(ask.round, ask.copy, DELTA, 1.0))
    assert [type(found) for found in owed_beside(learner.state)] == [Fetch, Offer]


def test_a_draft_that_holds_merged_work_is_dropped(learner: Learner) -> None:
    learner.open(1)
    learner.step(0)
    position = learner.fact(learner.answer())
    learner.step(0)
    copy = learner.state.fragments[0].copy
    assert copy is not None
    learner.tell(told_of.OfferBegun(1, copy))
    learner.tell(told_of.OfferStored(1, copy, DELTA, 1.0))
    learner.close_window(1, position)
    learner.merge(1, position)
    assert (learner.state.drafts, learner.state.sent) == ((), ())
    assert learner.state.fragments[0].merged_step == 1


def test_an_adoption_waits_for_the_offer_that_was_copied_before_it(learner: Learner) -> None:
    learner.open(1)
    learner.step(0, 1)
    (ask,) = owed_beside(learner.state)
    assert isinstance(ask, Offer)
    learner.tell(told_of.OfferBegun(ask.round, ask.copy))
    learner.close_window(1), learner.merge(1)
    learner.fetch()
    learner.tell(told_of.Adopted(((0, 1),)))
    learner.open(2)
    word = learner.answer()
    assert (word.fragment, word.adopted) == (1, ())
    learner.fact(word)
    learner.tell(told_of.OfferStored(ask.round, ask.copy, DELTA, 1.0))
    late = next_word(learner.state)
    assert isinstance(late, facts.DeltaOffered)
    assert (late.fragment, late.base_version, len(late.adopted)) == (0, 0, 1)


def test_superseded_offers_and_offers_left_out_are_no_longer_waited_for(learner: Learner) -> None:
    learner.open(1), learner.open(2)
    learner.step(0, 1)
    first = learner.fact(learner.answer())
    second = learner.fact(learner.answer())
    learner.close_window(1, superseded=(first,))
    learner.close_window(2, second)
    assert [sent.position for sent in learner.state.sent] == [second]
    learner.merge(2, left_out=(parts.LeftOut(position=second, reason="blob missing"),))
    assert learner.state.sent == () and learner.state.refresh == ""


def test_a_broken_fetch_is_asked_for_again(learner: Learner) -> None:
    learner.open(1), learner.close_window(1), learner.merge(1)
    learner.tell(told_of.FetchBegun(0, 1))
    assert owed_beside(learner.state) == ()
    learner.tell(told_of.FetchFailed(0, 1))
    assert [type(ask) for ask in owed_beside(learner.state)] == [Fetch]


def test_checkpoints_are_due_each_so_many_steps_one_at_a_time() -> None:
    learner = Learner(training={"checkpoint_steps": 2})
    learner.join()
    learner.step(), learner.step()
    assert owed_at_boundary(learner.state)[-1] == StoreCheckpoint(2)
    learner.tell(told_of.CheckpointTaken(2))
    learner.step(), learner.step()
    assert owed_at_boundary(learner.state) == (CopyFragments(()),)
    learner.tell(told_of.CheckpointFailed())
    assert owed_at_boundary(learner.state)[-1] == StoreCheckpoint(4)
    learner.tell(told_of.CheckpointTaken(4))
    learner.tell(told_of.CheckpointSaved(4, 0, manifest("c", codec="raw")))
    word = next_word(learner.state)
    assert isinstance(word, facts.CheckpointStored) and (word.said, word.learner_step) == (1, 4)
    learner.tell(told_of.Spoken(word))
    learner.fact(word)
    assert learner.state.in_flight is None


def test_at_the_end_all_fragments_are_fetched_and_written_at_once(learner: Learner) -> None:
    learner.open(1), learner.close_window(1), learner.merge(1)
    learner.step(0, 1, 2, 3)
    learner.close()
    assert [type(ask) for ask in owed_beside(learner.state)] == [Fetch] * 4
    assert owed_at_boundary(learner.state) == (CopyFragments(()),)
    learner.fetch()
    versions = ((0, 1), (1, 0), (2, 0), (3, 0))
    assert owed_at_boundary(learner.state) == (CopyFragments(()), Adopt(versions, "close"))
    learner.tell(told_of.Adopted(versions, "close"))
    assert owed_at_boundary(learner.state) == (Leave(),)
    learner.tell(told_of.LeaveWanted(Leaving("finished", digest("model"))))
    learner.tell(told_of.LeaveWanted(Leaving("failed")))
    word = next_word(learner.state)
    assert isinstance(word, facts.LearnerLeft)
    assert (word.reason, word.digest) == ("finished", digest("model"))
    assert [(a.fragment, a.version) for a in word.adopted] == [(0, 1)]
    learner.tell(told_of.Spoken(word))
    learner.fact(word)
    assert learner.state.left and next_word(learner.state) is None


def test_to_heal_a_learner_offers_nothing_until_all_is_overwritten(learner: Learner) -> None:
    learner.open(1), learner.open(2)
    learner.step(0, 1)
    learner.refuse(learner.answer(), "not finite: loss nan")
    assert {type(ask) for ask in owed_beside(learner.state)} == {Fetch}
    assert owed_at_boundary(learner.state, [3]) == (CopyFragments(()),)
    learner.fetch()
    (_, adopt) = owed_at_boundary(learner.state)
    assert isinstance(adopt, Adopt) and (len(adopt.versions), adopt.refresh) == (4, "heal")
    learner.tell(told_of.Adopted(adopt.versions, "heal"))
    assert learner.state.refresh == ""
    assert [(a.fragment, a.version) for a in learner.state.adoptions] == list(adopt.versions)
    assert owed_beside(learner.state) == ()


def test_a_late_refusal_of_work_from_before_the_healing_does_not_heal_again(
    learner: Learner,
) -> None:
    learner.open(1)
    learner.step(0)
    word = learner.answer()
    learner.refuse(word, "not finite")
    learner.fetch()
    (_, adopt) = owed_at_boundary(learner.state)
    assert isinstance(adopt, Adopt)
    learner.tell(told_of.Adopted(adopt.versions, "heal"))
    learner.refuse(word, "not finite")
    assert learner.state.refresh == ""


def test_messages_of_ours_that_could_not_be_read_are_kept_as_a_complaint(learner: Learner) -> None:
    for speaker in ("a", "b"):
        source = f"in.trial.home.{speaker}.learner_joined"
        learner.fact(facts.MessageRefused(source=source, reason=f"of {speaker}", count=1))
    assert learner.state.complaint == "of a"


def test_a_newer_life_ends_this_one_and_its_words(learner: Learner) -> None:
    learner.open(1)
    learner.step(0)
    position = learner.fact(joined("a", nonce=b"x" * 16))
    assert learner.state.ended_by == position
    assert owed_beside(learner.state) == () and owed_at_boundary(learner.state) == ()
    assert next_word(learner.state) is None


def test_the_run_s_clock_is_that_of_the_newest_merge_in_the_model(learner: Learner) -> None:
    learner.open(1), learner.close_window(1), learner.merge(1)
    learner.step(0)
    assert (learner.state.step, learner.state.clock, learner.state.closing) == (1, START, False)
    (fetch,) = owed_beside(learner.state)
    assert isinstance(fetch, Fetch) and fetch.clock == RunClock(1, 77)
    learner.fetch()
    learner.tell(told_of.Adopted(((0, 1),), clock=fetch.clock))
    assert learner.state.clock == RunClock(1, 77)
    learner.close()
    assert learner.state.closing
