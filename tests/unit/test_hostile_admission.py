"""What a liar may say, judged at the desk: lies that would spoil the account, the pace, a fact.

Each of these once stopped every syncer of a run, or made its proof fail.
"""

from __future__ import annotations

import pytest

from decodiloco.merge.fragment import Abandoned
from decodiloco.merge.gates import reason
from decodiloco.syncer import admission
from decodiloco.syncer.admission import Admitted, Unreadable
from decodiloco.syncer.compose import Draft
from decodiloco.syncer.drafting import LEFT_OUT_MAX, SUPERSEDED_MAX, from_merge
from decodiloco.syncer.grace import pace_of
from decodiloco.syncer.leadership import Heartbeats
from decodiloco.syncer.owed import MergeFragment
from decodiloco.syncer.refusals import SUBJECTS_MAX, Refusals
from decodiloco.syncer.state import TOKENS_MAX
from decodiloco.times import REFUSALS_SECONDS
from streams.codec import encode_event
from streams.envelope import Source
from streams.events import DeltaRefused, MessageRefused, RoundOpened, WindowClosed
from streams.inbox import Letter
from streams.pulse import Beat
from tests.builders import adopted, checkpointed, closing, evaluated, left, left_out
from tests.desk import Desk


@pytest.fixture
def desk() -> Desk:
    """Two learners; one merged version of fragment 0, round 2 is open; a is at step 4."""
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.open_round()
    desk.answer("b", 1), desk.close_window(1), desk.merge(1)
    desk.open_round()
    desk.train("a", 4)
    return desk


LIES = {
    "counters: 9e+04 seconds": {"step_seconds": 9e4},
    "counters: 1e+300 seconds": {"upload_seconds": 1e300},
    "counters: 0 tokens at step 0, 1 at step 0": {"tokens": 399},
    "adopted: fetched for 1e+300": {"adopted": (adopted(fetch_seconds=1e300),)},
    "adopted: 400 tokens at step 4, 9": {"adopted": (adopted(tokens_trained=2**53),)},
    "adopted: 401 tokens at step 2": {"adopted": (adopted(learner_step=2, tokens_trained=401),)},
}


@pytest.mark.parametrize("told", LIES)
def test_a_lie_about_counters_or_durations_is_refused(desk: Desk, told: str) -> None:
    verdict = desk.say(desk.offer("a", 2, **LIES[told]))
    assert isinstance(verdict, Admitted) and isinstance(verdict.event, DeltaRefused)
    assert verdict.event.reason[:12] == told[:12]


def test_tokens_that_are_merged_are_not_offered_again_under_other_steps(desk: Desk) -> None:
    desk.say(desk.offer("a", 2)), desk.close_window(2), desk.merge(2)
    for number in (3, 4, 5):
        desk.open_round()
        desk.answer("a", number), desk.close_window(number), desk.merge(number)
    desk.open_round()
    lie = {"learner_step": 8, "tokens_trained": 600, "inner_steps": 2, "tokens": 300}
    word = desk.offer("a", 6, **lie)
    verdict = desk.say(word)
    assert isinstance(verdict, Admitted) and isinstance(verdict.event, DeltaRefused)
    assert verdict.event.reason == "overlaps: begins at token 300; settled or merging up to 400"


def test_a_sum_of_huge_counters_still_goes_into_a_fact(desk: Desk) -> None:
    for name in ("a", "b"):
        life = desk.state.learners[name].incarnation
        desk.say(left(name, incarnation=life, said=50, learner_step=2**53, tokens_trained=2**53,
                      reason="asked"))  # fmt: skip
    desk.join("c")
    assert desk.state.tokens == TOKENS_MAX
    desk.answer("c", 2), desk.close_window(2), desk.merge(2)
    desk.open_round()
    assert isinstance(desk.tape[-1].event, RoundOpened)
    assert desk.tape[-1].event.tokens == TOKENS_MAX


def test_steps_of_next_to_no_seconds_leave_a_pace(desk: Desk) -> None:
    for seconds in (5e-324, 86_400.0):
        desk.answer("a", 2, step_seconds=seconds, upload_seconds=86_400.0)
        desk.answer("b", 2, step_seconds=seconds, upload_seconds=86_400.0)
        pace = pace_of(desk.state)
        assert 1 <= pace.overlap <= 3 and pace.window_seconds < 1e6


FAREWELLS = {
    "finished, but the run is not closed": {"reason": "finished"},
    "counters: 0 tokens at step 0": {"tokens_trained": 2**53},
    "adopted: no fragment 9": {"adopted": (adopted(fragment=9),)},
}


@pytest.mark.parametrize("told", FAREWELLS)
def test_a_farewell_that_cannot_be_is_counted(desk: Desk, told: str) -> None:
    life = desk.state.learners["a"].incarnation
    fields = {"reason": "asked", "learner_step": 4, "tokens_trained": 400, **FAREWELLS[told]}
    verdict = desk.say(left("a", incarnation=life, said=9, **fields))
    assert isinstance(verdict, Unreadable) and verdict.reason.startswith(told)


NEVER_STOOD = {
    "a step that is not there": {"step": 2},
    "versions that do not make that step": {"versions": (0, 0, 0, 0)},
    "versions that are not there": {"versions": (0, 1, 0, 0)},
    "another number of fragments": {"versions": (1,)},
    "tokens that nobody trained": {"tokens": 10**6},
}


@pytest.mark.parametrize("what", NEVER_STOOD)
def test_an_evaluation_of_what_never_stood_is_counted(desk: Desk, what: str) -> None:
    sound = {"step": 1, "versions": (1, 0, 0, 0), "tokens": 400}
    assert isinstance(desk.say(evaluated(**sound)), Admitted)
    verdict = desk.say(evaluated(said=2, **{**sound, **NEVER_STOOD[what]}))
    assert verdict == Unreadable("in.trial.home.evaluator", "evaluates versions that never stood")


def test_a_checkpoint_from_the_future_is_counted(desk: Desk) -> None:
    life = desk.state.learners["a"].incarnation
    verdict = desk.say(checkpointed("a", incarnation=life, said=1, step=2**53))
    assert isinstance(verdict, Unreadable)


def test_ids_and_speakers_are_limited(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "LEARNERS_MAX", 2)
    monkeypatch.setattr(admission, "SPEAKERS_MAX", 0)
    with pytest.raises(KeyError):
        desk.join("c")
    desk.join("a")
    assert sorted(desk.state.learners) == ["a", "b"]
    assert isinstance(desk.say(closing()), Unreadable)


def test_a_refusal_after_the_end_says_nothing_of_unbelievable_tokens(desk: Desk) -> None:
    life = desk.state.learners["a"].incarnation
    desk.say(left("a", incarnation=life, said=1, reason="asked"))
    word = desk.offer("a", 2, said=2, learner_step=2**62, tokens_trained=2**62, tokens=2**61)
    verdict = desk.say(word)
    assert isinstance(verdict, Admitted) and isinstance(verdict.event, DeltaRefused)
    assert verdict.event.reason.startswith("counters")


def test_a_thousand_offers_and_superseded_ones_fit_into_a_fact() -> None:
    far = tuple(range(2**53 - 1024, 2**53))
    window = WindowClosed(round=1, fragment=0, version=1, offers=far,
                          superseded=far[:SUPERSEDED_MAX], reason="all answered",
                          quorum_seconds=1.0, waited_seconds=1.0)  # fmt: skip
    assert len(encode_event(window)) < 16 * 1024


def test_more_unfit_offers_than_a_fact_can_tell_reopen_the_round() -> None:
    desk = Desk(learners_min=1)
    names = [f"h{number:02d}" for number in range(40)]
    for name in names:
        desk.join(name)
    desk.open_round()
    for name in names:
        desk.answer(name, 1)
    desk.close_window(1)
    positions = desk.state.rounds[1].offers
    unfit = Abandoned(tuple(left_out(p, "\\ud800" * 28) for p in positions))
    (ask,) = desk.asks(MergeFragment)
    assert isinstance(ask, MergeFragment)
    desk.put(from_merge(ask, unfit, 1.0))
    assert desk.state.rounds[1].is_open
    assert [offer.position for offer in desk.state.waiting(0)] == list(positions[LEFT_OUT_MAX:])


def test_a_reason_holds_nothing_that_a_fact_cannot() -> None:
    assert reason("wrong tensors", "\ud800 is not of this fragment").startswith(
        "wrong tensors: \\ud800"
    )
    assert len(reason("wrong tensors", "\U0001f4a3" * 500).encode()) == 200


class Counting:
    """Letters of one inbox, counted on a clock in hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sequence = 0
        self.refusals = Refusals(lambda: self.now)

    def take(self, subject: str, times: int = 1) -> None:
        for _ in range(times):
            self.sequence += 1
            letter = Letter(Source("home", "life", self.sequence), "x", "y", b"")
            self.refusals.take(letter, Unreadable(subject, "no word"))
            self.refusals.take(letter, Unreadable(subject, "no word"))

    def due(self, limit: int) -> list[tuple[str, int]]:
        return [told(draft) for draft in self.refusals.due(limit)]


def told(draft: Draft) -> tuple[str, int]:
    event = draft.decide(Desk().state)
    assert isinstance(event, MessageRefused)
    return event.source, event.count


def test_what_did_not_fit_into_a_batch_is_counted_in_the_next() -> None:
    counting = Counting()
    for subject in ("in.r.home.a", "in.r.home.b", "in.r.home.c"):
        counting.take(subject, 3)
    assert counting.due(0) == []
    assert counting.due(2) == [("in.r.home.a", 3), ("in.r.home.b", 3)]
    counting.take("in.r.home.a")
    assert counting.due(9) == [("in.r.home.c", 3)]
    counting.now = REFUSALS_SECONDS
    assert counting.due(9) == [("in.r.home.a", 1)]


def test_beyond_so_many_subjects_an_inbox_is_counted_as_one() -> None:
    counting = Counting()
    for number in range(SUBJECTS_MAX + 20):
        counting.take(f"in.r.home.x{number}")
    drafts = counting.due(2 * SUBJECTS_MAX)
    assert len(drafts) == SUBJECTS_MAX + 1 and ("in.r.home.*", 20) in drafts


def test_a_beat_that_claims_a_fence_of_the_future_is_no_leader_for_ever() -> None:
    now = [0.0]
    desk = Desk()
    hearts = Heartbeats("one", desk.opening.run.times, lambda: now[0])
    hearts.take(Beat("syncer", "liar", {"fence": 2**62, "leading": 1}))
    for _ in range(10):
        now[0] += 0.5
        hearts.take(Beat("syncer", "one", {"fence": 1, "leading": 0}))
    assert hearts.leader_silent_seconds(desk.state) == 5.0
    hearts.take(Beat("syncer", "two", {"fence": 1, "leading": 1}))
    assert hearts.leader_silent_seconds(desk.state) == 0.0


def test_a_lie_leaves_no_trace_but_its_refusal(desk: Desk) -> None:
    before = desk.state.learners["a"]
    desk.say(desk.offer("a", 2, learner_step=2**53, tokens_trained=2**53 + 1))
    after = desk.state.learners["a"]
    assert (after.learner_step, after.tokens_trained, after.accounts) == (
        before.learner_step, before.tokens_trained, before.accounts
    )  # fmt: skip
    assert after.said == before.said + 1
