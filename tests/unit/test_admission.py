"""The word gates: what becomes of a letter, one reason at a time."""

from __future__ import annotations

import math

import pytest

from decodiloco.syncer.admission import Admitted, Ignored, Unreadable, admit
from decodiloco.syncer.offer_gates import payload_bytes
from streams.envelope import Source
from streams.events import DeltaRefused
from streams.inbox import Letter
from tests.builders import (
    adopted,
    checkpointed,
    closing,
    digest,
    evaluated,
    joined,
    left,
    manifest,
)
from tests.desk import Desk


@pytest.fixture
def desk() -> Desk:
    """Two learners, one open round of fragment 0, and learner a four steps on."""
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.open_round()
    desk.train("a", 4)
    return desk


REFUSED = {
    "old incarnation": {"incarnation": 2},
    "unknown incarnation": {"incarnation": 900},
    "counters: inner_steps 0": {"inner_steps": 0},
    "counters: inner_steps -3": {"inner_steps": -3},
    "counters: inner_steps 9": {"inner_steps": 9},
    "counters: tokens 0": {"tokens": 0},
    "counters: tokens -5": {"tokens": -5},
    "counters: tokens 900": {"tokens": 900},
    f"counters: inner_steps 4 of learner_step {2**62}": {"learner_step": 2**62},
    f"counters: {2**40} tokens in 4 steps": {"tokens": 2**40, "tokens_trained": 2**40},
    f"counters: {2**40} tokens in a life": {"tokens_trained": 2**40},
    "unknown round 0": {"round": 0},
    "unknown round 2": {"round": 2, "fragment": 1},
    "fragment 3 is not": {"fragment": 3},
    "unknown base version 1": {"base_version": 1},
    "codec fp32": {"manifest": manifest("x", 400, "fp32")},
    "size 128": {"manifest": manifest("x", 128, "bf16")},
    "size 99999999": {"manifest": manifest("x", 99_999_999, "bf16")},
    "not finite: loss nan": {"loss": math.nan},
    "not finite: loss inf": {"loss": math.inf},
    "adopted: no fragment 7": {"adopted": (adopted(fragment=7),)},
    "adopted: no version 1": {"adopted": (adopted(fragment=1, version=1),)},
    "held: no fragment 7": {"held": (adopted(fragment=7),)},
    "held: no version 1": {"held": (adopted(fragment=1, version=1),)},
    "residuals: this run feeds none back": {"residuals": (3,)},
    "held: 900 tokens at step 2": {
        "held": (adopted(version=0, learner_step=2, tokens_trained=900),)
    },
}


@pytest.mark.parametrize("reason", REFUSED)
def test_an_unsound_offer_is_refused_with_its_reason(desk: Desk, reason: str) -> None:
    verdict = desk.say(desk.offer("a", 1, **REFUSED[reason]))
    assert isinstance(verdict, Admitted) and isinstance(verdict.event, DeltaRefused)
    assert verdict.event.reason.startswith(reason)
    assert verdict.event.said == 1


@pytest.mark.parametrize(
    ("residuals", "reason"),
    [((4, 3), "not in order"), ((3, 3), "not in order"), ((3, 10**6), "nothing is at position")],
)
def test_residuals_are_positions_of_older_facts_in_order(
    residuals: tuple[int, ...], reason: str
) -> None:
    desk = Desk(codecs={"delta": "int4"})
    desk.join("a")
    desk.open_round()
    desk.train("a", 4)
    named = manifest("x", 4000, "int4")
    verdict = desk.say(desk.offer("a", 1, residuals=residuals, manifest=named))
    assert isinstance(verdict, Admitted) and isinstance(verdict.event, DeltaRefused)
    assert verdict.event.reason.startswith(f"residuals: {reason}")


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_an_offer_in_blocks_is_as_long_as_its_blocks_are(codec: str) -> None:
    desk = Desk(codecs={"delta": codec})
    desk.join("a")
    desk.open_round()
    desk.train("a", 4)
    least = payload_bytes(desk.state.layout, 0, codec)
    short = desk.say(desk.offer("a", 1, manifest=manifest("x", least, codec)))
    assert isinstance(short, Admitted) and isinstance(short.event, DeltaRefused)
    assert short.event.reason.startswith(f"size {least}")
    word = desk.offer("a", 1, manifest=manifest("x", least + 200, codec))
    assert desk.say(word) == Admitted(word)


def test_steps_of_an_earlier_life_cannot_be_offered_by_a_new_one(desk: Desk) -> None:
    desk.say(desk.offer("a", 1))
    desk.join("a")
    verdict = desk.say(desk.offer("a", 1, inner_steps=4, tokens=100))
    assert isinstance(verdict, Admitted) and isinstance(verdict.event, DeltaRefused)
    assert verdict.event.reason == "counters: 4 steps in a life of 0"


def test_a_sound_offer_becomes_the_fact_of_the_same_words(desk: Desk) -> None:
    word = desk.offer("a", 1)
    assert desk.say(word) == Admitted(word)


def test_a_refusal_is_no_answer_and_the_learner_may_offer_again(desk: Desk) -> None:
    desk.say(desk.offer("a", 1, loss=math.nan))
    assert desk.state.waiting(0) == ()
    again = desk.offer("a", 1)
    assert desk.say(again) == Admitted(again)
    assert [offer.learner for offer in desk.state.waiting(0)] == ["a"]


def test_a_word_that_comes_twice_is_ignored(desk: Desk) -> None:
    word = desk.offer("a", 1)
    desk.say(word)
    assert isinstance(desk.say(word), Ignored)


@pytest.mark.parametrize("kind", ["offer", "join", "farewell"])
def test_a_word_from_beyond_a_restored_tape_is_not_heard(desk: Desk, kind: str) -> None:
    ahead = desk.state.position + 1
    word = {
        "offer": desk.offer("a", 1, seen=ahead),
        "join": joined("c", seen=ahead),
        "farewell": left("a", incarnation=desk.offer("a", 1).incarnation, said=1, seen=ahead),
    }[kind]

    verdict = desk.say(word)

    assert isinstance(verdict, Unreadable)
    assert verdict.reason == "it has seen facts that this tape does not hold"


def test_a_letter_behind_the_cursor_is_ignored(desk: Desk) -> None:
    letter = desk.letter(desk.offer("a", 1))
    desk.sequence -= 1
    desk.say(desk.offer("a", 1))
    assert admit(desk.state, letter) == Ignored("this letter is behind the cursor")


def test_work_that_is_merged_cannot_be_offered_again(desk: Desk) -> None:
    word = desk.offer("a", 1)
    desk.say(word)
    desk.close_window(1)
    assert refusal(desk, desk.offer("a", 1)).startswith("overlaps"), "it is being merged"
    desk.merge(1)
    desk.open_round()
    desk.train("a", 2)
    assert refusal(desk, desk.offer("a", 1)).startswith("overlaps: begins at step 0")


def refusal(desk: Desk, word: object) -> str:
    verdict = desk.say(word)
    assert isinstance(verdict, Admitted) and isinstance(verdict.event, DeltaRefused)
    return verdict.event.reason


def test_an_offer_two_versions_behind_is_too_old() -> None:
    desk = Desk(fragments=1)
    desk.join("a"), desk.join("b")
    for number in (1, 2):
        desk.open_round()
        step = desk.steps["a"]
        seen = (adopted(0, number - 1, learner_step=step, tokens_trained=100 * step),)
        desk.train("a", 4)
        desk.say(
            desk.offer("a", number, adopted=seen if number > 1 else (), base_version=number - 1,
                       inner_steps=4, tokens=400)
        )  # fmt: skip
        desk.close_window(number), desk.merge(number)
    desk.train("b", 4)
    assert refusal(desk, desk.offer("b", 1)) == "too old: 2 versions behind"


def test_an_offer_may_not_begin_before_its_base_was_adopted(desk: Desk) -> None:
    desk.say(desk.offer("b", 1, inner_steps=1, learner_step=1, tokens=100, tokens_trained=100))
    desk.close_window(1), desk.merge(1)
    desk.open_round()
    seen = (adopted(0, 1, learner_step=3, tokens_trained=300),)
    word = desk.offer("a", 1, adopted=seen, base_version=1, inner_steps=4)
    assert refusal(desk, word) == "counters: begins at step 0, before its base was adopted"


def test_a_version_may_be_written_again_but_versions_do_not_go_back(desk: Desk) -> None:
    desk.say(desk.offer("b", 1, inner_steps=1, learner_step=1, tokens=100, tokens_trained=100))
    desk.close_window(1), desk.merge(1)
    desk.open_round()
    again = tuple(adopted(0, 1, learner_step=step, tokens_trained=100 * step) for step in (1, 2))
    back = adopted(0, 0, learner_step=3, tokens_trained=300)
    told = refusal(desk, desk.offer("a", 2, adopted=(*again, back)))
    assert told == "adopted: version 0 of fragment 0 goes back"
    verdict = desk.say(desk.offer("a", 2, adopted=again, said=2))
    assert isinstance(verdict, Admitted) and verdict.event.kind == "delta_offered"
    assert desk.state.learners["a"].adopted[0] == 1


def test_a_life_that_has_left_says_nothing_more(desk: Desk) -> None:
    life = desk.state.learners["a"].incarnation
    farewell = left("a", incarnation=life, said=1, reason="asked")
    desk.say(farewell)
    assert refusal(desk, desk.offer("a", 1, said=2)) == "this life has left"
    verdict = desk.say(checkpointed("a", incarnation=life, said=3))
    assert verdict == Ignored("said by a life that has ended")


def test_counters_of_a_farewell_may_not_go_back(desk: Desk) -> None:
    desk.say(desk.offer("a", 1))
    life = desk.state.learners["a"].incarnation
    verdict = desk.say(left("a", incarnation=life, said=2, learner_step=1, tokens_trained=1))
    assert isinstance(verdict, Unreadable) and verdict.reason == "counters go back"


def test_who_has_not_joined_says_nothing(desk: Desk) -> None:
    desk.said["ghost"], desk.steps["ghost"] = 0, 4
    word = desk.offer("a", 1).model_copy(update={"learner": "ghost"})
    verdict = desk.say(word)
    assert isinstance(verdict, Unreadable)
    assert verdict == Unreadable("in.trial.home.ghost", "this learner has not joined")


def test_nobody_speaks_under_another_id(desk: Desk) -> None:
    letter = desk.letter(desk.offer("a", 1))
    forged = Letter(letter.source, "b", letter.kind, letter.payload)
    verdict = admit(desk.state, forged)
    assert verdict == Unreadable("in.trial.home.b", "said under another's id or kind")


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x93" * 40, b"\xff" * 20_000])
def test_bytes_that_are_no_word_are_counted(desk: Desk, payload: bytes) -> None:
    letter = Letter(Source("home", "life", 99), "a", "delta_offered", payload)
    assert isinstance(admit(desk.state, letter), Unreadable)


JOINS = {
    "the model's layout is not the run's": {"layout_digest": digest("other")},
    "joins region far in another's inbox": {"region": "far"},
    "joins at versions that do not exist": {"versions": (0, 0, 0)},
    "joins at versions that do not exist ": {"versions": (9, 0, 0, 0)},
}


@pytest.mark.parametrize("reason", JOINS)
def test_an_unsound_join_is_counted_with_its_reason(desk: Desk, reason: str) -> None:
    word = joined("c", **{"layout_digest": desk.opening.layout.digest, **JOINS[reason]})
    verdict = desk.say(word)
    assert verdict == Unreadable("in.trial.home.c", reason.strip())


def test_a_life_goes_on_where_the_tape_says_whatever_its_join_says(desk: Desk) -> None:
    desk.say(desk.offer("a", 1, cursor=b"here"))
    behind = {
        "seen": desk.state.position,
        "learner_step": 1,
        "tokens_trained": 7,
        "cursor": b"there",
        "slot": 9,
    }
    word = joined("a", layout_digest=desk.opening.layout.digest, nonce=b"n" * 16, **behind)
    told = {"learner_step": 4, "tokens_trained": 400, "cursor": b"here", "slot": 0}
    assert desk.say(word) == Admitted(word.model_copy(update=told))


def test_a_join_that_comes_twice_is_one_life(desk: Desk) -> None:
    word = joined("c", layout_digest=desk.opening.layout.digest)
    assert isinstance(desk.say(word), Admitted)
    assert desk.say(word) == Ignored("this life has joined already")
    assert desk.state.learners["c"].slot == 2


def test_speakers_are_heard_once_a_word_and_again_in_a_new_life(desk: Desk) -> None:
    first = {"step": 0, "versions": (0, 0, 0, 0), "tokens": 0}
    assert isinstance(desk.say(evaluated(**first)), Admitted)
    assert isinstance(desk.say(evaluated(**first)), Ignored)
    assert isinstance(desk.say(evaluated(said=2, **first)), Admitted)
    assert isinstance(desk.say(evaluated(life=8, **first)), Admitted)
    assert isinstance(desk.say(evaluated(life=8, said=0, **first)), Unreadable)


def test_a_run_is_asked_to_close_once(desk: Desk) -> None:
    assert isinstance(desk.say(closing()), Admitted)
    assert desk.state.closing == "asked"
    assert desk.say(closing(speaker="other")) == Ignored("the run is closing already")
