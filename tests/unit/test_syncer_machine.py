"""The syncer's fold: what each fact does to the state, told as small histories."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from decodiloco.syncer.compose import Draft
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.offers import UNTOLD_MAX
from decodiloco.syncer.owed import CloseRun
from decodiloco.syncer.snapshot import decode_state, encode_state, state_digest
from streams.codec import seal
from streams.envelope import Source
from streams.errors import ChainBroken
from streams.events import DeltaRefused, LearnerLost
from tests.builders import (
    adopted,
    closed,
    closing,
    left,
    left_out,
    message_refused,
    opened,
    round_opened,
    snapshot_stored,
    took_over,
)
from tests.desk import Desk


def a_merged_round(desk: Desk, *names: str) -> int:
    number = desk.open_round()
    for name in names:
        desk.answer(name, number)
    desk.close_window(number)
    return desk.merge(number)


def test_a_round_is_opened_answered_closed_and_merged() -> None:
    desk = Desk()
    desk.join("a"), desk.join("b")
    number = desk.open_round()
    desk.answer("b", number), desk.answer("a", number)
    desk.close_window(number)
    assert [desk.state.offers[p].learner for p in desk.state.rounds[1].offers] == ["a", "b"]
    desk.merge(number)
    assert desk.state.versions == (1, 0, 0, 0)
    assert (desk.state.step, dict(desk.state.rounds), dict(desk.state.offers)) == (1, {}, {})
    assert desk.state.learners["a"].fates(0)["merged"] == 400


def test_an_incarnation_is_the_position_of_the_join_and_a_slot_stays_with_its_id() -> None:
    desk = Desk()
    first = desk.join("a")
    desk.join("b")
    second = desk.join("a")
    learner = desk.state.learners["a"]
    assert (first, second, learner.slot) == (3, 5, 0)
    assert desk.state.learners["b"].slot == 1
    assert learner.status == "live"


def test_a_new_life_loses_what_the_old_one_held_but_not_its_offers() -> None:
    desk = Desk()
    desk.join("a"), desk.join("b")
    number = desk.open_round()
    desk.answer("a", number)
    desk.join("a")
    fates = desk.state.learners["a"].fates(1)
    assert (fates["lost"], fates["open"]) == (400, 0)
    assert desk.state.learners["a"].fates(0)["open"] == 400, "its offer may still be merged"
    desk.answer("b", number)
    desk.close_window(number), desk.merge(number)
    assert desk.state.learners["a"].fates(0)["merged"] == 400


def test_a_newer_offer_supersedes_one_that_still_waits() -> None:
    desk = Desk(quorum=2)
    desk.join("a"), desk.join("b")
    number = desk.open_round()
    desk.answer("a", number)
    old = desk.state.position
    desk.answer("a", number)
    desk.answer("b", number)
    assert old not in desk.state.offers
    desk.close_window(number)
    closed = desk.tape[-1].event
    assert closed.superseded == (old,)
    assert desk.state.superseded == ()
    desk.merge(number)
    assert desk.state.learners["a"].fates(0) == {
        **dict.fromkeys(("left_out", "refused", "superseded", "dropped", "lost", "open"), 0),
        "merged": 800,
    }


def test_a_late_offer_waits_for_the_next_round_and_does_not_count_there() -> None:
    desk = Desk(fragments=1, quorum=1)
    desk.join("a"), desk.join("b")
    first = desk.open_round()
    desk.answer("a", first)
    desk.close_window(first)
    desk.train("b", 4)
    late = desk.offer("b", first)
    desk.say(late)
    desk.merge(first)
    second = desk.open_round()
    assert second == 2
    assert [offer.learner for offer in desk.state.waiting(0)] == ["b"]
    assert not [ask for ask in desk.asks(object) if getattr(ask, "key", "") == "close window 2"]
    desk.train("a", 4)
    seen = adopted(fragment=0, version=1, learner_step=4, tokens_trained=400)
    desk.say(desk.offer("a", second, adopted=(seen,), base_version=1, inner_steps=4, tokens=400))
    desk.close_window(second)
    assert [desk.state.offers[p].learner for p in desk.state.rounds[2].offers] == ["a", "b"]


def test_what_is_left_out_is_settled_and_an_abandoned_round_is_open_again() -> None:
    desk = Desk(quorum=2)
    desk.join("a"), desk.join("b")
    number = desk.open_round()
    desk.answer("a", number)
    bad = desk.state.position
    desk.answer("b", number)
    desk.close_window(number)
    desk.abandon(number, (left_out(bad, "not finite"),))
    round_ = desk.state.rounds[number]
    assert round_.is_open and round_.since == desk.state.position
    assert [offer.learner for offer in desk.state.waiting(0)] == ["b"]
    desk.answer("a", number)
    desk.close_window(number), desk.merge(number)
    assert desk.state.learners["a"].fates(0)["merged"] == 800


def test_what_comes_back_from_an_abandoned_merge_gives_way_to_a_newer_offer() -> None:
    desk = Desk(quorum=2)
    desk.join("a"), desk.join("b")
    number = desk.open_round()
    desk.answer("a", number)
    old = desk.state.position
    desk.answer("b", number)
    bad = desk.state.position
    desk.close_window(number)
    desk.join("a")
    desk.answer("a", number)
    new = desk.state.position
    assert sorted(desk.state.offers) == [old, bad, new], "the old life's work is being merged"
    desk.abandon(number, (left_out(bad),))
    assert sorted(desk.state.offers) == [new]
    desk.answer("b", number)
    desk.close_window(number)
    assert desk.tape[-1].event.superseded == (old,)
    desk.merge(number)
    fates = desk.state.learners["a"].fates(0)
    assert (fates["merged"], fates["lost"]) == (400, 400)


def test_the_cursor_of_an_inbox_grows_within_its_life_and_begins_anew_with_the_next() -> None:
    desk = Desk()
    for life, sequence, kept in (("x", 5, 5), ("x", 3, 5), ("x", 9, 9), ("y", 2, 2)):
        source = Source("home", life, sequence)
        desk.put(Draft(lambda _: message_refused(), source))
        assert desk.state.inboxes == {"home": (life, kept)}


def test_a_refused_word_is_a_sign_of_life_but_not_of_one_that_left() -> None:
    desk = Desk()
    desk.join("a")
    life = desk.state.learners["a"].incarnation
    number = desk.open_round()
    desk.write(LearnerLost(learner="a", incarnation=life, reason="silent", silent_seconds=10.0))
    desk.answer("a", number, loss=math.nan)
    assert isinstance(desk.tape[-1].event, DeltaRefused)
    assert [learner.id for learner in desk.state.live] == ["a"]
    assert desk.state.liveness_changed == desk.state.position
    desk.say(
        left("a", incarnation=life, said=2, learner_step=4, tokens_trained=400, reason="asked")
    )
    desk.said["a"] = 2
    desk.answer("a", number, learner_step=4, tokens_trained=400, inner_steps=4, tokens=400)
    assert isinstance(desk.tape[-1].event, DeltaRefused)
    assert desk.state.live == ()


def test_superseded_offers_that_nobody_is_told_of_do_not_pile_up() -> None:
    desk = Desk(quorum=2)
    desk.join("a"), desk.join("b")
    number = desk.open_round()
    desk.state = replace(desk.state, superseded=((1, 0),) * UNTOLD_MAX)
    desk.answer("a", number)
    first = desk.state.position
    desk.answer("a", number)
    assert len(desk.state.superseded) == UNTOLD_MAX
    assert desk.state.superseded[-1] == (first, 0)


def test_a_merge_may_leave_one_out_and_go_on() -> None:
    desk = Desk()
    desk.join("a"), desk.join("b")
    number = desk.open_round()
    desk.answer("a", number)
    bad = desk.state.position
    desk.answer("b", number)
    desk.close_window(number)
    desk.merge(number, (left_out(bad, "the blob is missing"),))
    fates = desk.state.learners["a"].fates(0)
    assert (fates["merged"], fates["open"]) == (0, 400)
    desk.train("a", 1)
    seen = adopted(fragment=0, version=1, learner_step=5, tokens_trained=500)
    following = desk.open_round()
    desk.say(desk.offer("a", following, adopted=(seen,), tokens=500, inner_steps=5))
    fates = desk.state.learners["a"].fates(0)
    assert (fates["left_out"], fates["dropped"]) == (400, 100)


def test_a_lost_learner_lives_again_with_its_next_word() -> None:
    desk = Desk()
    desk.join("a"), desk.join("b")
    life = desk.state.learners["a"].incarnation
    desk.write(LearnerLost(learner="a", incarnation=life, reason="silent", silent_seconds=10.0))
    assert [learner.id for learner in desk.state.live] == ["b"]
    number = desk.open_round()
    desk.answer("a", number)
    assert [learner.id for learner in desk.state.live] == ["a", "b"]


def test_rounds_open_in_order_and_merge_out_of_order() -> None:
    desk = Desk(window={"overlap": 3})
    desk.join("a")
    first, second = desk.open_round(), desk.open_round()
    desk.answer("a", second)
    desk.close_window(second), desk.merge(second)
    assert (desk.state.versions, desk.state.step) == ((0, 1, 0, 0), 1)
    desk.answer("a", first)
    desk.close_window(first), desk.merge(first)
    assert (desk.state.versions, desk.state.step) == ((1, 1, 0, 0), 2)


def test_the_closing_pass_opens_each_fragment_once() -> None:
    desk = Desk()
    desk.join("a")
    a_merged_round(desk, "a")
    desk.say(closing())
    opened_rounds = [a_merged_round_of(desk) for _ in range(4)]
    assert opened_rounds == [2, 3, 4, 5]
    assert desk.state.versions == (2, 1, 1, 1)
    (ask,) = desk.asks(CloseRun)
    assert ask == CloseRun(5, desk.state.closing_at, 0.0)


def a_merged_round_of(desk: Desk) -> int:
    number = desk.open_round()
    learner = desk.state.learners["a"]
    fragment = (number - 1) % 4
    version = desk.state.versions[fragment]
    seen = ()
    desk.train("a", 4)
    if learner.adopted[fragment] < version:
        step = desk.steps["a"] - 4
        seen = (adopted(fragment, version, learner_step=step, tokens_trained=100 * step),)
        word = desk.offer(
            "a", number, adopted=seen, base_version=version, inner_steps=4, tokens=400
        )
    else:
        word = desk.offer("a", number)
    desk.say(word)
    desk.close_window(number)
    desk.merge(number)
    return number


def test_what_waits_when_the_run_is_closed_is_left_out() -> None:
    desk = Desk(quorum=2)
    life = desk.join("a")
    desk.join("b")
    desk.open_round()
    desk.answer("a", 1)
    desk.write(closed(versions=desk.state.versions))
    assert (dict(desk.state.offers), dict(desk.state.rounds)) == ({}, {})
    desk.say(left("a", incarnation=life, said=2, learner_step=4, tokens_trained=400))
    fates = desk.state.learners["a"].fates(0)
    assert (fates["open"], fates["lost"]) == (0, 400), "not overwritten, so lost with its life"


def test_a_fact_under_a_stale_fence_breaks_the_tape() -> None:
    desk = Desk()
    desk.write(took_over("syncer-2", 2))
    old = seal(4, desk.state.digest, 1, "syncer-1", None, 4.0, snapshot_stored())
    with pytest.raises(ChainBroken, match=r"position 4.*fence 1, but 2 is in force"):
        fold(desk.state, old)


@pytest.mark.parametrize("fence", [1, 3])
def test_a_takeover_raises_the_fence_by_one(fence: int) -> None:
    desk = Desk()
    wrong = seal(3, desk.state.digest, fence, "b", None, 3.0, took_over("b", fence))
    with pytest.raises(ChainBroken, match="position 3"):
        fold(desk.state, wrong)


def test_a_second_opening_breaks_the_tape() -> None:
    desk = Desk()
    again = seal(3, desk.state.digest, 1, "syncer-1", None, 3.0, opened())
    with pytest.raises(ChainBroken, match="RunOpened is the first fact"):
        fold(desk.state, again)


def test_rules_that_this_build_does_not_know_are_refused() -> None:
    desk = Desk()
    strange = seal(3, desk.state.digest, 2, "b", None, 3.0, took_over("b", 2, rules=9))
    with pytest.raises(ChainBroken, match="rules 9"):
        fold(desk.state, strange)


def test_a_missing_record_breaks_the_tape() -> None:
    desk = Desk()
    desk.join("a")
    state = begin(desk.opening)
    state = fold(state, desk.tape[0])
    with pytest.raises(ChainBroken, match="position 2"):
        fold(state, desk.tape[2])


def a_lively_desk() -> Desk:
    desk = Desk(quorum=1)
    desk.join("a"), desk.join("b"), desk.join("c")
    a_merged_round(desk, "a", "b")
    number = desk.open_round()
    desk.answer("a", number)
    desk.say(desk.offer("b", number, loss=float("nan")))
    assert isinstance(desk.tape[-1].event, DeltaRefused)
    desk.write(round_opened(3, 2, 1))
    desk.answer("c", 3)
    return desk


def test_a_fold_from_a_snapshot_equals_one_from_the_start() -> None:
    desk = a_lively_desk()
    for at in range(1, len(desk.tape)):
        state = begin(desk.opening)
        for envelope in desk.tape[:at]:
            state = fold(state, envelope)
        state = decode_state(desk.opening, encode_state(state))
        for envelope in desk.tape[at:]:
            state = fold(state, envelope)
        assert state == desk.state


def test_the_state_digest_tells_states_apart() -> None:
    desk = a_lively_desk()
    state = begin(desk.opening)
    seen = [state_digest(state)]
    for envelope in desk.tape:
        state = fold(state, envelope)
        seen.append(state_digest(state))
    assert len(set(seen)) == len(seen)
    assert seen[-1] == state_digest(desk.state)
