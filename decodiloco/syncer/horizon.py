"""The horizon in the syncer's state: which snapshot is next, what was let go of, what was asked.

Knows positions; must not know blobs. Which facts are kept is said by the leader, in the fact.
"""

from __future__ import annotations

from decodiloco.syncer.state import Horizon, Snapshot, State
from streams.events import HorizonRaised, RetentionAsked, SnapshotStored, StoreSwept
from streams.frozen import replace


def snapshot_stored(state: State, event: SnapshotStored) -> State:
    """A snapshot is stored. The first one behind the horizon is the next horizon, in time."""
    state = replace(state, snapshot_step=state.step)
    found, before = state.retention, position(state)
    if not state.keep_merges or found.next is not None or event.position <= before:
        return state
    snapshot = Snapshot(event.position, state.step, event.manifest)
    return replace(state, retention=replace(found, next=snapshot))


def raised(state: State, event: HorizonRaised) -> State:
    """Bytes up to a snapshot's position may go, but those of the kept facts."""
    found = state.retention
    assert found.next is not None, "a horizon is a snapshot"
    assert (event.position, event.snapshot) == (found.next.position, found.next.manifest)
    before = found.horizon
    assert before is None or before.swept, "one horizon is swept after the other"
    assert position(state) < event.position < state.position
    assert all(kept <= event.position for kept in event.kept)
    horizon = Horizon(
        position=event.position,
        raised_at=state.position,
        kept=event.kept,
        after=before.position if before else 0,
        kept_before=before.kept if before else (),
    )
    return replace(state, retention=replace(found, next=None, horizon=horizon))


def swept(state: State, event: StoreSwept) -> State:
    """What the horizon let go of is deleted."""
    horizon = state.retention.horizon
    assert horizon is not None and not horizon.swept, "a horizon is swept once"
    assert horizon.position == event.position
    done = replace(horizon, swept=True, after=0, kept_before=())
    return replace(state, retention=replace(state.retention, horizon=done))


def asked(state: State, event: RetentionAsked) -> State:
    """An operator says how many merges to keep from now on."""
    found = replace(state.retention, asked=event.keep_merges)
    return replace(state, retention=found if event.keep_merges else replace(found, next=None))


def position(state: State) -> int:
    """Facts up to here may have lost their bytes; 0: none has."""
    horizon = state.retention.horizon
    return horizon.position if horizon else 0


def is_ripe(state: State) -> bool:
    """Whether enough merges stand behind the next horizon."""
    following = state.retention.next
    return following is not None and state.step - following.step >= state.keep_merges
