"""Every state of a run against every word and every ask of the syncer: one table, no gap.

A cell says what becomes of a word there (a fact, a refusal, nothing, or no word at all), and
which asks are owed. Facts that follow go through the fold, and must leave a state that is sound.
"""

from __future__ import annotations

from typing import get_args

import pytest

from decodiloco.syncer.admission import Admitted, Ignored, Unreadable, Verdict, admit
from decodiloco.syncer.drafting import (
    Waited,
    from_close,
    from_horizon,
    from_snapshot,
    from_sweep,
    from_timed,
    while_owed,
)
from decodiloco.syncer.owed import (
    Ask,
    BeginClosing,
    CloseRun,
    CloseWindow,
    DeclareLost,
    MergeFragment,
    OpenRound,
    RaiseHorizon,
    StoreSnapshot,
    SweepStore,
    owed,
)
from decodiloco.syncer.snapshot import decode_state, encode_state, state_digest
from decodiloco.syncer.state import State
from streams.events import WORDS, DeltaRefused, Word
from tests.builders import (
    checkpointed,
    closing,
    digest,
    evaluated,
    hardship,
    joined,
    left,
    manifest,
    offered,
    retention,
    snapshot_stored,
)
from tests.desk import Desk
from tests.states import STATES, desk_at


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
        "retention_asked": retention(3),
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


# Rows: states. Columns: a word of each kind, in this order; then what is owed, by kind.
KINDS = (
    "learner_joined",
    "learner_left",
    "checkpoint_stored",
    "delta_offered",
    "evaluation_reported",
    "hardship_injected",
    "retention_asked",
    "run_closing",
)
FACT, NOTHING, UNREADABLE = "fact", "ignored", "unreadable"
REFUSED = "refused"
SPOKEN = (FACT, FACT, FACT)  # evaluator, injector, and who asks for retention
CLOSING = (FACT, FACT, UNREADABLE)  # a run that closes keeps what it has
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
    "a snapshot has enough merges behind it": (*LEARNER, REFUSED, *SPOKEN, FACT),
    "a horizon is raised": (*LEARNER, REFUSED, *SPOKEN, FACT),
    "a learner is lost": (*LEARNER, FACT, *SPOKEN, FACT),
    "a learner has left": (*GONE, REFUSED, *SPOKEN, FACT),
    "the run is closing": (*LEARNER, REFUSED, *CLOSING, NOTHING),
    "it closes below its quorum": (*GONE, REFUSED, *CLOSING, NOTHING),
    "it closes below its quorum while it merges": (*GONE, REFUSED, *CLOSING, NOTHING),
    "the last pass is merged": (*LEARNER, REFUSED, *CLOSING, NOTHING),
    "the run is closed": (UNREADABLE, FACT, FACT, REFUSED, *CLOSING, NOTHING),
    "the run is over": (UNREADABLE, NOTHING, NOTHING, REFUSED, *CLOSING, NOTHING),
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
    "a snapshot has enough merges behind it": (
        DeclareLost,
        DeclareLost,
        BeginClosing,
        StoreSnapshot,
        RaiseHorizon,
    ),
    "a horizon is raised": (DeclareLost, DeclareLost, BeginClosing, StoreSnapshot, SweepStore),
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
        case RaiseHorizon():
            desk.put(from_horizon(ask, snapshot_stored(ask.position).manifest, ()))
        case SweepStore():
            desk.put(from_sweep(ask, 3, 4096))
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
