"""Every state of a run against every word and every ask of the syncer: one table, no gap.

A cell says what becomes of a word there (a fact, a refusal, nothing, or no word at all), and
which asks are owed. Facts that follow go through the fold, and must leave a state that is sound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from decodiloco.syncer.admission import Admitted, Ignored, Unreadable, Verdict, admit
from decodiloco.syncer.drafting import Waited, from_close, from_snapshot, from_timed, while_owed
from decodiloco.syncer.owed import (
    Ask,
    BeginClosing,
    CloseRun,
    CloseWindow,
    DeclareLost,
    MergeFragment,
    OpenRound,
    StoreSnapshot,
    owed,
)
from decodiloco.syncer.snapshot import decode_state, encode_state, state_digest
from decodiloco.syncer.state import State
from streams.events import WORDS, DeltaRefused, LearnerLost, Word
from tests.builders import (
    checkpointed,
    closed,
    closing,
    digest,
    evaluated,
    hardship,
    joined,
    left,
    manifest,
    offered,
)
from tests.desk import Desk

STATES: dict[str, Callable[[Desk], None]] = {}


def a_state(describe: Callable[[Desk], None]) -> Callable[[Desk], None]:
    STATES[describe.__name__.replace("_", " ")] = describe
    return describe


@a_state
def nobody_has_joined(desk: Desk) -> None:
    """Opened, and a syncer leads."""


@a_state
def fewer_than_the_quorum_have_joined(desk: Desk) -> None:
    desk.join("a")


@a_state
def all_have_joined(desk: Desk) -> None:
    desk.join("a"), desk.join("b")


@a_state
def a_round_is_open(desk: Desk) -> None:
    all_have_joined(desk)
    desk.open_round()


@a_state
def one_has_answered(desk: Desk) -> None:
    a_round_is_open(desk)
    desk.answer("b", 1)


@a_state
def a_quorum_has_answered(desk: Desk) -> None:
    one_has_answered(desk)
    desk.join("c")
    desk.answer("c", 1)


@a_state
def all_have_answered(desk: Desk) -> None:
    one_has_answered(desk)
    desk.answer("a", 1)


@a_state
def a_window_is_closed(desk: Desk) -> None:
    all_have_answered(desk)
    desk.close_window(1)


@a_state
def a_round_is_merged(desk: Desk) -> None:
    a_window_is_closed(desk)
    desk.merge(1)


@a_state
def the_end_is_reached(desk: Desk) -> None:
    all_have_joined(desk)
    for number in (1, 2):
        a_round(desk, number)


@a_state
def a_learner_is_lost(desk: Desk) -> None:
    a_round_is_open(desk)
    life = desk.state.learners["a"].incarnation
    desk.write(LearnerLost(learner="a", incarnation=life, reason="silent", silent_seconds=10.0))


@a_state
def a_learner_has_left(desk: Desk) -> None:
    a_round_is_open(desk)
    desk.say(farewell(desk))


@a_state
def the_run_is_closing(desk: Desk) -> None:
    all_have_joined(desk)
    desk.say(closing())


@a_state
def it_closes_below_its_quorum(desk: Desk) -> None:
    the_run_is_closing(desk)
    desk.open_round()
    desk.say(farewell(desk))


@a_state
def it_closes_below_its_quorum_while_it_merges(desk: Desk) -> None:
    the_run_is_closing(desk)
    desk.open_round()
    desk.answer("a", 1), desk.answer("b", 1)
    desk.close_window(1)
    desk.say(farewell(desk))


@a_state
def the_last_pass_is_merged(desk: Desk) -> None:
    the_run_is_closing(desk)
    for number in (1, 2):
        a_round(desk, number)


@a_state
def the_run_is_closed(desk: Desk) -> None:
    the_last_pass_is_merged(desk)
    desk.write(closed(step=2, tokens=desk.state.tokens, versions=(1, 1)))


@a_state
def the_run_is_over(desk: Desk) -> None:
    the_run_is_closed(desk)
    for name in ("a", "b"):
        desk.say(farewell(desk, name))


def a_round(desk: Desk, number: int) -> None:
    desk.open_round()
    desk.answer("a", number), desk.answer("b", number)
    desk.close_window(number), desk.merge(number)


def farewell(desk: Desk, name: str = "a") -> Word:
    learner = desk.state.learners[name]
    return left(
        name,
        incarnation=learner.incarnation,
        said=learner.said + 1,
        reason="asked",
        learner_step=learner.learner_step,
        tokens_trained=learner.tokens_trained,
    )


def words_of(desk: Desk) -> dict[str, Word]:
    """Each kind of word as learner a, or whoever says it, would soundly say it now."""
    known = desk.state.learners.get("a")
    step, tokens = (known.learner_step, known.tokens_trained) if known else (0, 0)
    life, said = (known.incarnation, known.said + 1) if known else (3, 1)
    words: dict[str, Word] = {
        "learner_joined": joined(
            "a",
            layout_digest=desk.opening.layout.digest,
            nonce=b"another nonce 16",
            seen=desk.state.position,
            versions=desk.state.versions,
            learner_step=step,
            tokens_trained=tokens,
        ),
        "learner_left": left(
            "a",
            incarnation=life,
            said=said,
            reason="asked",
            learner_step=step,
            tokens_trained=tokens,
        ),
        "checkpoint_stored": checkpointed(
            "a", learner_step=step, incarnation=life, said=said, step=desk.state.step
        ),
        "evaluation_reported": evaluated(
            versions=desk.state.versions, step=desk.state.step, tokens=desk.state.tokens
        ),
        "hardship_injected": hardship(),
        "run_closing": closing(life=8),
    }
    if known is None:
        words["delta_offered"] = offered("a", round=1)
        return words
    desk.train("a")
    round_number = max(desk.state.rounds, default=max(1, desk.state.next_round - 1))
    words["delta_offered"] = desk.offer("a", round_number, said=said)
    return words


def told(verdict: Verdict) -> str:
    if isinstance(verdict, Ignored):
        return f"ignored: {verdict.reason}"
    if isinstance(verdict, Unreadable):
        return f"unreadable: {verdict.reason}"
    if isinstance(verdict.event, DeltaRefused):
        return f"refused: {verdict.event.reason}"
    return "fact"


def desk_at(name: str) -> Desk:
    desk = Desk(fragments=2, quorum=2, snapshot_merges=1, end={"steps": 2})
    STATES[name](desk)
    return desk


# Rows: states. Columns: a word of each kind, in this order; then what is owed, by kind.
KINDS = (
    "learner_joined",
    "learner_left",
    "checkpoint_stored",
    "delta_offered",
    "evaluation_reported",
    "hardship_injected",
    "run_closing",
)
FACT, NOTHING, UNREADABLE = "fact", "ignored", "unreadable"
REFUSED = "refused"
SPOKEN = (FACT, FACT)  # evaluator and injector may always speak
LEARNER = (FACT, FACT, FACT)  # a learner that lives may join anew, leave, and store
GONE = (FACT, NOTHING, NOTHING)
WORDS_TABLE: dict[str, tuple[str, ...]] = {
    "nobody has joined": (FACT, *[UNREADABLE] * 3, *SPOKEN, FACT),
    "fewer than the quorum have joined": (*LEARNER, REFUSED, *SPOKEN, FACT),
    "all have joined": (*LEARNER, REFUSED, *SPOKEN, FACT),
    "a round is open": (*LEARNER, FACT, *SPOKEN, FACT),
    "one has answered": (*LEARNER, FACT, *SPOKEN, FACT),
    "a quorum has answered": (*LEARNER, FACT, *SPOKEN, FACT),
    "all have answered": (*LEARNER, FACT, *SPOKEN, FACT),
    "a window is closed": (*LEARNER, REFUSED, *SPOKEN, FACT),
    "a round is merged": (*LEARNER, REFUSED, *SPOKEN, FACT),
    "the end is reached": (*LEARNER, REFUSED, *SPOKEN, FACT),
    "a learner is lost": (*LEARNER, FACT, *SPOKEN, FACT),
    "a learner has left": (*GONE, REFUSED, *SPOKEN, FACT),
    "the run is closing": (*LEARNER, REFUSED, *SPOKEN, NOTHING),
    "it closes below its quorum": (*GONE, REFUSED, *SPOKEN, NOTHING),
    "it closes below its quorum while it merges": (*GONE, REFUSED, *SPOKEN, NOTHING),
    "the last pass is merged": (*LEARNER, REFUSED, *SPOKEN, NOTHING),
    "the run is closed": (UNREADABLE, FACT, FACT, REFUSED, *SPOKEN, NOTHING),
    "the run is over": (UNREADABLE, NOTHING, NOTHING, REFUSED, *SPOKEN, NOTHING),
}
ASKS_TABLE: dict[str, tuple[type[Ask], ...]] = {
    "nobody has joined": (),
    "fewer than the quorum have joined": (DeclareLost,),
    "all have joined": (DeclareLost, DeclareLost, OpenRound),
    "a round is open": (DeclareLost, DeclareLost),
    "one has answered": (DeclareLost, DeclareLost),
    "a quorum has answered": (DeclareLost, DeclareLost, DeclareLost, CloseWindow),
    "all have answered": (DeclareLost, DeclareLost, CloseWindow),
    "a window is closed": (DeclareLost, DeclareLost, MergeFragment),
    "a round is merged": (DeclareLost, DeclareLost, OpenRound, StoreSnapshot),
    "the end is reached": (DeclareLost, DeclareLost, BeginClosing, StoreSnapshot),
    "a learner is lost": (DeclareLost,),
    "a learner has left": (DeclareLost,),
    "the run is closing": (DeclareLost, DeclareLost, OpenRound),
    "it closes below its quorum": (DeclareLost, CloseRun),
    "it closes below its quorum while it merges": (DeclareLost, MergeFragment),
    "the last pass is merged": (DeclareLost, DeclareLost, CloseRun, StoreSnapshot),
    "the run is closed": (DeclareLost, DeclareLost),
    "the run is over": (),
}


def test_the_table_has_every_state_and_every_kind_of_word_and_ask() -> None:
    assert set(WORDS_TABLE) == set(ASKS_TABLE) == set(STATES)
    assert set(KINDS) == {word.kind for word in WORDS}
    assert {ask for row in ASKS_TABLE.values() for ask in row} == set(get_args(Ask))


@pytest.mark.parametrize("name", STATES)
def test_every_word_becomes_what_the_table_says(name: str) -> None:
    desk = desk_at(name)
    words = words_of(desk)
    found = {kind: told(admit(desk.state, desk.letter(words[kind]))) for kind in KINDS}
    assert {kind: text.split(":")[0] for kind, text in found.items()} == dict(
        zip(KINDS, WORDS_TABLE[name], strict=True)
    ), found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STATES)
def test_a_word_leaves_a_sound_state_and_counts_once(name: str, kind: str) -> None:
    desk = desk_at(name)
    word = words_of(desk)[kind]
    before = desk.state
    verdict = desk.say(word)
    if isinstance(verdict, Admitted):
        assert state_digest(desk.state) != state_digest(before)
        is_sound(desk.state)
        again = told(desk.say(word))
        assert again.startswith(NOTHING) or verdict.event.kind == "delta_refused"
    else:
        assert desk.state == before


@pytest.mark.parametrize("name", STATES)
def test_what_is_owed_is_what_the_table_says_and_is_owed_once(name: str) -> None:
    asks = owed(desk_at(name).state)
    assert tuple(type(ask) for ask in asks) == ASKS_TABLE[name]
    assert len({ask.key for ask in asks}) == len(asks)
    for ask in asks:
        desk = desk_at(name)
        carry_out(desk, ask)
        is_sound(desk.state)
        assert ask not in owed(desk.state), f"{ask.key} is still owed"


def carry_out(desk: Desk, ask: Ask) -> None:
    """Does what is owed, as the service would."""
    match ask:
        case MergeFragment():
            desk.merge(ask.round)
        case StoreSnapshot():
            blob = manifest("snapshot", codec="msgpack")
            desk.put(from_snapshot(desk.state.position, blob))
        case CloseRun():
            desk.put(while_owed(ask, from_close(desk.state.versions, digest("model"))))
        case _:
            desk.put(from_timed(ask, Waited(1.0, 2.0), "syncer-1"))


def is_sound(state: State) -> None:
    """A snapshot says it all, and every token has one fate."""
    again = decode_state(state.opening, encode_state(state))
    assert again == state and owed(again) == owed(state)
    assert state_digest(again) == state_digest(state)
    for learner in state.learners.values():
        for fragment in range(len(state.fragments)):
            assert sum(learner.fates(fragment).values()) == learner.tokens_trained


def test_a_draft_of_an_ask_that_is_owed_no_more_becomes_nothing() -> None:
    desk = desk_at("it closes below its quorum")
    (ask,) = [ask for ask in owed(desk.state) if isinstance(ask, CloseRun)]
    draft = while_owed(ask, from_close(desk.state.versions, digest("model")))
    assert draft.decide(desk.state) is not None
    desk.join("a")
    assert draft.decide(desk.state) is None, "there is a quorum again"
