"""What the syncer decided, decided again: each word admitted, each ask owed, as the tape says.

Both are pure in the state before the fact, so a tape that was written by our rules gives the same
facts again. Durations were measured by a clock, and are taken from the fact. Pure.
"""

from __future__ import annotations

from typing import TypeGuard

from decodiloco.syncer.admission import Admitted, admit
from decodiloco.syncer.drafting import Timed, Waited, from_timed
from decodiloco.syncer.owed import BeginClosing, CloseWindow, DeclareLost, OpenRound, owed
from decodiloco.syncer.state import State
from replay.errors import Differs
from streams.codec import encode_event
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    EvaluationReported,
    Event,
    HardshipInjected,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    RetentionAsked,
    RoundOpened,
    RunClosing,
    WindowClosed,
    Word,
    speaker_of,
)
from streams.inbox import Letter


def check_decision(before: State, envelope: Envelope) -> None:
    """Raises Differs when the syncer, in this state, would not have written this fact."""
    event = envelope.event
    match event:
        case RoundOpened() | WindowClosed() | LearnerLost() | RunClosing(said=0):
            _check_owed(before, event, envelope)
        case (
            LearnerJoined()
            | LearnerLeft()
            | DeltaOffered()
            | CheckpointStored()
            | EvaluationReported()
            | HardshipInjected()
            | RetentionAsked()
            | RunClosing()
        ):
            _check_admitted(before, event, envelope)
        case _:
            pass


def _check_admitted(before: State, word: Word, envelope: Envelope) -> None:
    """The word passes its gates and comes through them as it stands on the tape."""
    if envelope.source is None:
        raise Differs(f"{word.kind} came from no inbox", envelope.position)
    letter = Letter(envelope.source, speaker_of(word), word.kind, encode_event(word))
    verdict = admit(before, letter)
    if not isinstance(verdict, Admitted):
        raise Differs(f"{word.kind} could not be admitted: {verdict.reason}", envelope.position)
    if verdict.event != word:
        raise Differs(
            f"{word.kind} would be admitted as another fact: {_parted(word, verdict.event)}",
            envelope.position,
        )


def _check_owed(
    before: State, event: RoundOpened | WindowClosed | LearnerLost | RunClosing, envelope: Envelope
) -> None:
    """The state owed this fact, and just as it stands on the tape."""
    made: Event | None = None
    for ask in owed(before):
        if _asks_for(ask, event):
            made = from_timed(ask, _waited(event), envelope.writer).decide(before)
            break
    if made is None:
        raise Differs(f"{event.kind} was not due where it stands", envelope.position)
    if made != event:
        raise Differs(
            f"{event.kind} would be written otherwise: {_parted(event, made)}", envelope.position
        )


def _asks_for(
    ask: object, event: RoundOpened | WindowClosed | LearnerLost | RunClosing
) -> TypeGuard[Timed]:
    match event, ask:
        case RoundOpened(), OpenRound():
            return True
        case WindowClosed(), CloseWindow():
            return ask.round == event.round
        case LearnerLost(), DeclareLost():
            return ask.learner == event.learner
        case RunClosing(), BeginClosing():
            return True
        case _:
            return False


def _waited(event: Event) -> Waited:
    match event:
        case WindowClosed():
            return Waited(event.quorum_seconds, event.waited_seconds)
        case LearnerLost():
            return Waited(waited_seconds=event.silent_seconds)
        case _:
            return Waited()


def _parted(said: Event, made: Event) -> str:
    """The first field in which two facts differ."""
    if said.kind != made.kind:
        return f"a {made.kind}"
    there, here = said.model_dump(), made.model_dump()
    name = next(name for name in there if there[name] != here[name])
    return f"{name} {_short(here[name])}, the tape says {_short(there[name])}"


def _short(value: object) -> str:
    return value.hex()[:16] if isinstance(value, bytes) else str(value)[:80]
