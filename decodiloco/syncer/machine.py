"""The syncer's state from the tape's facts, in order. Knows no clock, no store and no network.

`fold` is run alike by the leader, by standbys, by `replay` and by the simulator. It trusts the
chain, which it checks, and the gates, which admission applied before a fact was written.
"""

from __future__ import annotations

from typing import Literal, assert_never

from decodiloco.fragments.schedule import fragment_of
from decodiloco.opening import Opening
from decodiloco.syncer import horizon, offers, rounds
from decodiloco.syncer.fates import Account
from decodiloco.syncer.state import RULES, Learner, Merged, State
from streams.chain import Chain
from streams.envelope import Envelope, Source
from streams.errors import ChainBroken
from streams.events import (
    CheckpointStored,
    DeltaOffered,
    DeltaRefused,
    EvaluationReported,
    Event,
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


def begin(opening: Opening) -> State:
    """The state before the first fact: version 0 of every fragment, nobody there."""
    return State(
        opening=opening,
        run=opening.run.name,
        fragments=tuple(Merged(0, manifest) for manifest in opening.fragments),
    )


def fold(state: State, envelope: Envelope) -> State:
    """The state one fact later. Raises ChainBroken where the tape does not follow from itself."""
    chain = Chain(state.run, state.position, state.digest).then(envelope)
    _check_fence(state, envelope)
    state = replace(state, position=chain.position, digest=chain.digest)
    if envelope.source is not None:
        state = _heard(state, envelope.source)
    return apply(state, envelope.event)


def apply(state: State, event: Event) -> State:
    """The state with this fact, which stands at `state.position`."""
    match event:
        case RunOpened():
            return replace(state, store=event.store, rules=event.rules)
        case SyncerTookOver():
            return replace(state, fence=event.fence, leader=event.syncer, rules=event.rules)
        case LearnerJoined():
            return _joined(state, event)
        case LearnerLeft():
            return _left(state, event)
        case LearnerLost():
            return _lost(state, event)
        case RoundOpened():
            return rounds.opened(state, event)
        case DeltaOffered():
            return offers.offered(state, event)
        case DeltaRefused():
            return offers.refused(state, event)
        case WindowClosed():
            return rounds.closed(state, event)
        case FragmentMerged():
            return rounds.merged(state, event)
        case MergeAbandoned():
            return rounds.abandoned(state, event)
        case CheckpointStored():
            return offers.said(state, event.learner, event.said)
        case EvaluationReported() | HardshipInjected():
            return _spoke(state, event.speaker, event.life, event.said)
        case RunClosing():
            return _closing(state, event)
        case SnapshotStored():
            return horizon.snapshot_stored(state, event)
        case HorizonRaised():
            return horizon.raised(state, event)
        case StoreSwept():
            return horizon.swept(state, event)
        case RetentionAsked():
            state = _spoke(state, event.speaker, event.life, event.said)
            return horizon.asked(state, event)
        case RunClosed():
            return _closed(state, event)
        case MessageRefused():
            return state
        case _:
            assert_never(event)


def _check_fence(state: State, envelope: Envelope) -> None:
    event = envelope.event
    if isinstance(event, RunOpened) != (envelope.position == 1):
        raise ChainBroken(envelope.position, "RunOpened is the first fact, and only the first")
    if isinstance(event, RunOpened) and envelope.fence != 0:
        raise ChainBroken(envelope.position, "RunOpened has fence 0")
    if isinstance(event, SyncerTookOver):
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


def _heard(state: State, source: Source) -> State:
    life, sequence = state.inboxes.get(source.inbox, (source.life, 0))
    sequence = max(sequence, source.sequence) if life == source.life else source.sequence
    return replace(state, inboxes={**state.inboxes, source.inbox: (source.life, sequence)})


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


def _spoke(state: State, speaker: str, life: int, said: int) -> State:
    return replace(state, speakers={**state.speakers, speaker: (life, said)})


def _closing(state: State, event: RunClosing) -> State:
    if event.said:
        state = _spoke(state, event.speaker, event.life, event.said)
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
    for position in sorted(state.offers):
        state = offers.settled(state, position, "left_out")
    return replace(state, closed=event, rounds={})
