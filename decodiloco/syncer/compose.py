"""Drafts into a batch of records that follows the tape's end, folding on the way. Pure.

A draft is decided only here, against the state as it will stand at its place in the batch, so a
batch is as good as one fact by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decodiloco.syncer.machine import apply, fold
from decodiloco.syncer.state import State
from streams.codec import seal
from streams.envelope import Envelope, Source
from streams.events import Event, SyncerTookOver
from streams.frozen import replace
from streams.tape import BATCH_MAX, Chain

Decide = Callable[[State], Event | None]


@dataclass(frozen=True, slots=True)
class Draft:
    """A fact still to be decided, and the inbox message it comes from, if any."""

    decide: Decide
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Pen:
    """Who writes: a syncer's name and its fence."""

    writer: str
    fence: int


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A record that is to be written, and the state that its fold gives."""

    envelope: Envelope
    state: State


def compose(state: State, drafts: Sequence[Draft], pen: Pen, time_seconds: float) -> list[Envelope]:
    """The records that these drafts become, at most BATCH_MAX; a draft may become none."""
    return [one.envelope for one in composed(state, drafts, pen, time_seconds)]


def composed(
    state: State, drafts: Sequence[Draft], pen: Pen, time_seconds: float
) -> list[Foreseen]:
    """The same records, each with the state behind it."""
    batch: list[Foreseen] = []
    for draft in drafts[:BATCH_MAX]:
        event = draft.decide(state)
        if event is None:
            continue
        chain = Chain(state.run, state.position, state.digest)
        fence = event.fence if isinstance(event, SyncerTookOver) else pen.fence
        envelope = seal(
            state.position + 1, chain.tip, fence, pen.writer, draft.source, time_seconds, event
        )
        state = fold(state, envelope)
        batch.append(Foreseen(envelope, state))
    return batch


def foresee(state: State, event: Event) -> State:
    """The state as if this fact stood next on the tape (no chain, no source)."""
    return apply(replace(state, position=state.position + 1), event)
