"""The syncer's state from the tape's facts, in order. Knows no clock, no store and no network.

`fold` is run alike by the leader, by standbys, by `replay` and by the simulator. It trusts the
chain, which it checks, and the gates, which admission applied before a fact was written. What
each fact does stands in one table, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from decodiloco.fragments.schedule import fragment_of
from decodiloco.opening import Opening
from decodiloco.syncer import horizon, offers, rounds
from decodiloco.syncer.fates import Account
from decodiloco.syncer.state import RULES, Learner, Merged, State
from streams.chain import check_follows
from streams.envelope import Envelope, Source, genesis
from streams.errors import ChainBroken
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    EvaluationReported,
    Event,
    Fact,
    FragmentMerged,
    HardshipInjected,
    HorizonRaised,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    MergeAbandoned,
    MessageRefused,
    RetentionAsked,
    RoundOpened,
    RunClosed,
    RunClosing,
    RunOpened,
    SnapshotStored,
    StoreSwept,
    SyncerTookOver,
    WindowClosed,
)
from streams.frozen import replace

Speech = EvaluationReported | HardshipInjected | RetentionAsked | RunClosing


def begin(opening: Opening) -> State:
    """The state before the first fact: version 0 of every fragment, nobody there."""
    return State(
        opening=opening,
        run=opening.run.name,
        fragments=tuple(Merged(0, manifest) for manifest in opening.fragments),
    )


def fold(state: State, envelope: Envelope) -> State:
    """The state one fact later. Raises ChainBroken where the tape does not follow from itself."""
    tip = state.digest if state.position else genesis(state.run)
    check_follows(envelope, state.position, tip)
    _check_fence(state, envelope)
    inboxes = _heard(state, envelope.source) if envelope.source is not None else state.inboxes
    state = replace(state, position=envelope.position, digest=envelope.digest, inboxes=inboxes)
    return apply(state, envelope.event)


def apply(state: State, event: Event) -> State:
    """The state with this fact, which stands at `state.position`."""
    return TRANSITIONS[type(event)](state, event)


def _check_fence(state: State, envelope: Envelope) -> None:
    event = envelope.event
    kind = type(event)
    if (kind is RunOpened) != (envelope.position == 1):
        raise ChainBroken(envelope.position, "RunOpened is the first fact, and only the first")
    if kind is RunOpened and envelope.fence != 0:
        raise ChainBroken(envelope.position, "RunOpened has fence 0")
    if kind is SyncerTookOver:
        assert isinstance(event, SyncerTookOver)
        if not event.fence == envelope.fence == state.fence + 1:
            raise ChainBroken(
                envelope.position, f"a takeover under fence {event.fence} after {state.fence}"
            )
        if event.rules != RULES:
            raise ChainBroken(
                envelope.position, f"rules {event.rules}; this build follows rules {RULES}"
            )
    elif envelope.fence != state.fence:
        raise ChainBroken(
            envelope.position,
            f"written under fence {envelope.fence}, but {state.fence} is in force",
        )


def _heard(state: State, source: Source) -> Mapping[str, tuple[str, int]]:
    life, sequence = state.inboxes.get(source.inbox, (source.life, 0))
    sequence = max(sequence, source.sequence) if life == source.life else source.sequence
    return {**state.inboxes, source.inbox: (source.life, sequence)}


def _opened(state: State, event: RunOpened) -> State:
    return replace(state, store=event.store, rules=event.rules)


def _took_over(state: State, event: SyncerTookOver) -> State:
    return replace(state, fence=event.fence, leader=event.syncer, rules=event.rules)


def _nothing(state: State, _: MessageRefused) -> State:
    return state


def _joined(state: State, event: LearnerJoined) -> State:
    state = _ended(state, event.learner)
    before = state.learners.get(event.learner)
    fragments = len(state.fragments)
    learner = Learner(
        id=event.learner,
        slot=event.slot,
        incarnation=state.position,
        nonce=event.nonce,
        region=event.region,
        status="live",
        said=0,
        joined_step=event.learner_step,
        joined_tokens=event.tokens_trained,
        learner_step=event.learner_step,
        tokens_trained=event.tokens_trained,
        cursor=event.cursor,
        loss=before.loss if before else None,
        step_seconds=before.step_seconds if before else None,
        upload_seconds=before.upload_seconds if before else None,
        fetch_seconds=before.fetch_seconds if before else None,
        adopted=event.versions,
        anchor_steps=(event.learner_step,) * fragments,
        accounts=before.accounts if before else (Account(),) * fragments,
    )
    return replace(
        state,
        learners={**state.learners, event.learner: learner},
        liveness_changed=state.position,
    )


def _left(state: State, event: LearnerLeft) -> State:
    learner = state.learners[event.learner]
    carry = state.config.adoption.carry and event.reason != "finished"  # the end overwrites
    learner = offers.adopted(learner, event.adopted, carry)
    learner = replace(
        learner,
        said=event.said,
        learner_step=max(learner.learner_step, event.learner_step),
        tokens_trained=max(learner.tokens_trained, event.tokens_trained),
        cursor=event.cursor,
    )
    state = replace(state, learners={**state.learners, event.learner: learner})
    return _ended(state, event.learner)


def _lost(state: State, event: LearnerLost) -> State:
    """Nobody waits for it any more; its next word makes it live again, so nothing is settled.

    A quarantined life is over instead, and what it offered is in no further window.
    """
    if event.reason == "quarantined":
        return offers.turned_away(_ended(state, event.learner, "quarantined"))
    learner = replace(state.learners[event.learner], status="lost")
    return replace(
        state,
        learners={**state.learners, event.learner: learner},
        liveness_changed=state.position,
    )


def _ended(state: State, name: str, status: Literal["left", "quarantined"] = "left") -> State:
    """A life is over: what it held in its live parameters only is lost."""
    learner = state.learners.get(name)
    if learner is None:
        return state
    learner = replace(
        learner,
        status=status,
        accounts=tuple(account.died(learner.tokens_trained) for account in learner.accounts),
    )
    return replace(
        state,
        learners={**state.learners, name: learner},
        liveness_changed=state.position,
    )


def _checkpointed(state: State, event: CheckpointStored) -> State:
    return offers.said(state, event.learner, event.said)


def _retention_asked(state: State, event: RetentionAsked) -> State:
    return horizon.asked(_spoken(state, event), event)


def _spoken(state: State, event: Speech) -> State:
    said = (event.life, event.said)
    return replace(state, speakers={**state.speakers, event.speaker: said})


def _closing(state: State, event: RunClosing) -> State:
    if event.said:
        state = _spoken(state, event)
    if state.closing is not None:
        return state
    first = state.next_round
    ours = range(first, first + len(state.fragments))
    assert sorted(fragment_of(number, len(state.fragments)) for number in ours) == list(
        range(len(state.fragments))
    )
    return replace(
        state, closing=event.reason, closing_at=state.position, closing_rounds=tuple(ours)
    )


def _closed(state: State, event: RunClosed) -> State:
    """Offers that still wait came too late for the last merge of their fragment."""
    state = offers.settled(state, ((position, "left_out") for position in state.offers))
    return replace(state, closed=event, rounds={})


TRANSITIONS: dict[type[Fact], Callable[[State, Any], State]] = {
    RunOpened: _opened,
    SyncerTookOver: _took_over,
    LearnerJoined: _joined,
    LearnerLeft: _left,
    LearnerLost: _lost,
    RoundOpened: rounds.opened,
    DeltaOffered: offers.offered,
    DeltaRefused: offers.refused,
    WindowClosed: rounds.closed,
    FragmentMerged: rounds.merged,
    MergeAbandoned: rounds.abandoned,
    CheckpointStored: _checkpointed,
    EvaluationReported: _spoken,
    HardshipInjected: _spoken,
    SnapshotStored: horizon.snapshot_stored,
    HorizonRaised: horizon.raised,
    StoreSwept: horizon.swept,
    RetentionAsked: _retention_asked,
    RunClosing: _closing,
    RunClosed: _closed,
    MessageRefused: _nothing,
}
"""What each fact does to the state; a fact of no kind in here cannot be folded."""
