"""Words into facts, or refusals: the word gates. Pure: a verdict from the state and a letter.

A refusal is recorded, so that whoever spoke can settle it. What cannot be read, or is said under
another's name, is counted instead (`Unreadable`). A word that was folded already is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from decodiloco.syncer import offer_gates
from decodiloco.syncer.state import Learner, State
from streams.codec import decode_word
from streams.errors import Unreadable as CannotRead
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    EvaluationReported,
    Event,
    HardshipInjected,
    LearnerJoined,
    LearnerLeft,
    RetentionAsked,
    RunClosing,
    Word,
    speaker_of,
)
from streams.inbox import Letter
from streams.printing import printable

LEARNERS_MAX = 1024  # ids in a run's life: all of them may stand in one fact
SPEAKERS_MAX = 1024


@dataclass(frozen=True, slots=True)
class Admitted:
    """The fact that this letter becomes (a refusal is a fact too)."""

    event: Event


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing becomes of it: the tape holds this word already, or does not need it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """No word, or one that its speaker may not say: counted under the inbox subject."""

    subject: str
    reason: str


Verdict = Admitted | Ignored | Unreadable


def admit(state: State, letter: Letter) -> Verdict:
    """What becomes of a letter, given everything that the tape says so far."""
    subject = f"in.{state.run}.{letter.source.inbox}.{printable(letter.speaker)}"[:300]
    life, sequence = state.inboxes.get(letter.source.inbox, ("", 0))
    if life == letter.source.life and letter.source.sequence <= sequence:
        return Ignored("this letter is behind the cursor")
    try:
        word = decode_word(letter.payload)
    except CannotRead as error:
        return Unreadable(subject, str(error)[:200])
    if speaker_of(word) != letter.speaker or word.kind != letter.kind:
        return Unreadable(subject, "said under another's id or kind")
    return _judge(state, word, letter, subject)


def _judge(state: State, word: Word, letter: Letter, subject: str) -> Verdict:
    if isinstance(word, (LearnerJoined, LearnerLeft, DeltaOffered)) and word.seen > state.position:
        # It lived through the loss of a tape that was restored to an earlier end.
        return Unreadable(subject, "it has seen facts that this tape does not hold")
    match word:
        case LearnerJoined():
            return _join(state, word, letter, subject)
        case EvaluationReported() | HardshipInjected() | RetentionAsked() | RunClosing():
            return _speak(state, word, subject)
        case LearnerLeft() | DeltaOffered() | CheckpointStored():
            learner = state.learners.get(word.learner)
            if learner is None:
                return Unreadable(subject, "this learner has not joined")
            if word.incarnation == learner.incarnation and word.said <= learner.said:
                return Ignored("this word is on the tape already")
            if isinstance(word, DeltaOffered):
                return _offer(state, learner, word)
            return _tell(state, learner, word, subject)
        case _:
            assert_never(word)


def _join(state: State, word: LearnerJoined, letter: Letter, subject: str) -> Verdict:
    """A new life goes on where the last admitted word of this id was.

    What the joiner itself says of that is not asked: a life that still speaks would be ahead of
    each of its words, and could never be succeeded. Only a joiner that has seen the newest life
    may succeed it: a late copy of an old life's word would end a life that is well.
    """
    known = state.learners.get(word.learner)
    if known is not None and known.nonce == word.nonce:
        return Ignored("this life has joined already")
    if known is not None and word.seen < known.incarnation:
        return Ignored("said before the newest life of this learner began")
    if state.closed is not None:
        return Unreadable(subject, "the run is closed")
    if word.layout_digest != state.layout.digest:
        return Unreadable(subject, "the model's layout is not the run's")
    if word.region != letter.source.inbox:
        return Unreadable(subject, f"joins region {word.region} in another's inbox")
    if len(word.versions) != len(state.fragments) or any(
        said > real for said, real in zip(word.versions, state.versions, strict=True)
    ):
        return Unreadable(subject, "joins at versions that do not exist")
    if known is None and len(state.learners) >= LEARNERS_MAX:
        return Unreadable(subject, f"this run has {LEARNERS_MAX} learners; take the id of one")
    filled: dict[str, object] = {
        "slot": known.slot if known else len(state.learners),
        "learner_step": known.learner_step if known else 0,
        "tokens_trained": known.tokens_trained if known else 0,
        "cursor": known.cursor if known else b"",
    }
    return Admitted(word.model_copy(update=filled))


def _speak(
    state: State,
    word: EvaluationReported | HardshipInjected | RetentionAsked | RunClosing,
    subject: str,
) -> Verdict:
    life, said = state.speakers.get(word.speaker, (0, 0))
    if word.said < 1 or word.life < 1:
        return Unreadable(subject, "life and said begin at 1")
    if life == word.life and word.said <= said:
        return Ignored("this word is on the tape already")
    if word.speaker not in state.speakers and len(state.speakers) >= SPEAKERS_MAX:
        return Unreadable(subject, f"this run has heard {SPEAKERS_MAX} speakers")
    if isinstance(word, RunClosing) and state.closing is not None:
        return Ignored("the run is closing already")
    if isinstance(word, RetentionAsked) and state.closing is not None:
        return Unreadable(subject, "a run that closes keeps what it has")
    if isinstance(word, EvaluationReported) and not _stood(state, word):
        return Unreadable(subject, "evaluates versions that never stood")
    return Admitted(word)


def _stood(state: State, word: EvaluationReported) -> bool:
    """Whether these versions may have stood at that step: each merge makes one version."""
    return (
        len(word.versions) == len(state.fragments)
        and all(said <= now for said, now in zip(word.versions, state.versions, strict=True))
        and sum(word.versions) == word.step <= state.step
        and word.tokens <= state.tokens
    )


def _tell(
    state: State, learner: Learner, word: LearnerLeft | CheckpointStored, subject: str
) -> Verdict:
    is_over = learner.status in ("left", "quarantined")
    if word.incarnation != learner.incarnation or is_over:
        return Ignored("said by a life that has ended")
    if isinstance(word, LearnerLeft):
        fault = offer_gates.farewell_fault(state, learner, word)
        if fault is not None:
            return Unreadable(subject, fault)
    elif word.step > state.step or word.learner_step < learner.joined_step:
        return Unreadable(subject, "a checkpoint of a step that was not")
    return Admitted(word)


def _offer(state: State, learner: Learner, word: DeltaOffered) -> Verdict:
    reason = offer_gates.fault(state, learner, word)
    if reason is None:
        return Admitted(word)
    return Admitted(
        DeltaRefused(
            learner=word.learner,
            incarnation=word.incarnation,
            said=word.said,
            round=word.round,
            fragment=word.fragment,
            learner_step=word.learner_step,
            inner_steps=word.inner_steps,
            tokens=word.tokens,
            tokens_trained=word.tokens_trained,
            reason=reason[:200],
        )
    )
