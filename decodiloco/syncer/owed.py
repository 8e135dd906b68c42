"""What a state still owes the world: asks, each with a stable key. Only the leader looks.

An ask may wait: `after_seconds` since the record at position `since`, on the clock of whoever
carries it out. A new syncer starts such a wait afresh.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from decodiloco.fragments.schedule import fragment_of
from decodiloco.syncer import horizon
from decodiloco.syncer.grace import Pace, pace_of
from decodiloco.syncer.quorum import verdict
from decodiloco.syncer.standing import is_to_go
from decodiloco.syncer.state import Round, State
from decodiloco.syncer.weights import merge_order

__all__ = [
    "Ask",
    "BeginClosing",
    "CloseRun",
    "CloseWindow",
    "DeclareLost",
    "MergeFragment",
    "OpenRound",
    "RaiseHorizon",
    "StoreSnapshot",
    "SweepStore",
    "merge_order",
    "owed",
]

LIVES_HELD = 4096  # at most 1,024 learners are live at once


@dataclass(frozen=True, slots=True)
class OpenRound:
    """Open the next round, when its pace has passed."""

    round: int
    fragment: int
    version: int
    pace_seconds: float
    grace_seconds_max: float
    since: int
    after_seconds: float

    @property
    def key(self) -> str:
        return f"open round {self.round}"


@dataclass(frozen=True, slots=True)
class CloseWindow:
    """Close a window: who is in is what the tape says at that moment."""

    round: int
    reason: str
    quorum_at: int
    since: int
    after_seconds: float

    @property
    def key(self) -> str:
        return f"close window {self.round}"


@dataclass(frozen=True, slots=True)
class MergeFragment:
    """Merge a closed round from the stored deltas."""

    round: int
    closed_at: int
    since: int = 0
    after_seconds: float = 0.0

    @property
    def key(self) -> str:
        return f"merge round {self.round} closed at {self.closed_at}"


@dataclass(frozen=True, slots=True)
class DeclareLost:
    """Declare a learner lost when its pulse was not heard for so long, or quarantined at once."""

    learner: str
    incarnation: int
    since: int
    after_seconds: float
    reason: Literal["silent", "quarantined"] = "silent"
    why: str = ""

    @property
    def key(self) -> str:
        return f"lose {self.learner} of life {self.incarnation}"


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """Store the state as it stands; the last snapshot was recorded at this step."""

    last_step: int
    since: int = 0
    after_seconds: float = 0.0

    @property
    def key(self) -> str:
        return f"snapshot after that of step {self.last_step}"


@dataclass(frozen=True, slots=True)
class RaiseHorizon:
    """Say that bytes up to the snapshot of this position may go, and which are kept."""

    position: int
    since: int = 0
    after_seconds: float = 0.0

    @property
    def key(self) -> str:
        return f"raise horizon to {self.position}"


@dataclass(frozen=True, slots=True)
class SweepStore:
    """Delete what the horizon at this position let go of."""

    position: int
    since: int = 0
    after_seconds: float = 0.0

    @property
    def key(self) -> str:
        return f"sweep below {self.position}"


@dataclass(frozen=True, slots=True)
class BeginClosing:
    """Say that the run closes: its end is reached."""

    reason: Literal["steps", "tokens"]
    since: int = 0
    after_seconds: float = 0.0

    @property
    def key(self) -> str:
        return "begin closing"


@dataclass(frozen=True, slots=True)
class CloseRun:
    """Close the run at the versions of this step."""

    step: int
    since: int
    after_seconds: float

    @property
    def key(self) -> str:
        return f"close run at step {self.step}, as of {self.since}"


Ask = (
    OpenRound
    | CloseWindow
    | MergeFragment
    | DeclareLost
    | StoreSnapshot
    | RaiseHorizon
    | SweepStore
    | BeginClosing
    | CloseRun
)


def owed(state: State) -> tuple[Ask, ...]:
    """All asks of a state, in a fixed order. Asked of the same state again, it does not look."""
    for held, asks in tuple(_newest):
        if held is state:
            return asks
    asks = tuple(_owed(state))
    _newest.append((state, asks))
    return asks


_newest: deque[tuple[State, tuple[Ask, ...]]] = deque(maxlen=1)  # a leader asks at every turn


def _owed(state: State) -> Iterator[Ask]:
    if state.position == 0:
        return
    yield from _owed_to_learners(state)
    if state.closed is not None:
        return
    for number in sorted(state.rounds):
        yield from _owed_by_round(state, number)
    if state.closing is None:
        yield from _owed_by_pace(state)
    else:
        yield from _owed_by_closing(state)
    if state.step - state.snapshot_step >= state.config.snapshot_every_merges:
        yield StoreSnapshot(state.snapshot_step)
    yield from _owed_by_retention(state)


def _owed_by_retention(state: State) -> Iterator[Ask]:
    """One horizon is raised and swept after the other. A run that closes keeps what it has."""
    found = state.retention
    if found.horizon is not None and not found.horizon.swept:
        yield SweepStore(found.horizon.position)
    elif found.next is not None and horizon.is_ripe(state) and state.closing is None:
        yield RaiseHorizon(found.next.position)


def _owed_to_learners(state: State) -> Iterator[Ask]:
    """Nobody waits for who is silent; who has had its strikes is not even heard any more."""
    lost_seconds = state.config.times.lost_seconds
    for name in sorted(state.learners):
        learner = state.learners[name]
        life = learner.incarnation
        if learner.status not in ("live", "lost"):
            continue
        if learner.marks and state.closed is None and is_to_go(state, learner):
            yield DeclareLost(name, life, life, 0.0, "quarantined", learner.marked_for)
        elif learner.status == "live":
            yield _once_silent(name, life, lost_seconds)


@lru_cache(LIVES_HELD)
def _once_silent(name: str, life: int, lost_seconds: float) -> DeclareLost:
    """Owed for every live learner in every state, and always the same: made once a life."""
    return DeclareLost(name, life, life, lost_seconds)


def _owed_by_round(state: State, number: int) -> Iterator[Ask]:
    round_ = state.rounds[number]
    if not round_.is_open:
        yield MergeFragment(number, round_.closed_at)
        return
    found = verdict(state, round_)
    if found.action == "close":
        yield CloseWindow(number, found.reason, found.quorum_at, round_.since, 0.0)
    elif found.action == "later":
        yield CloseWindow(
            number, found.reason, found.quorum_at, round_.since, round_.grace_seconds_max
        )


def _owed_by_pace(state: State) -> Iterator[Ask]:
    end = state.config.end
    if end.steps is not None and state.step >= end.steps:
        yield BeginClosing("steps")
        return
    if end.tokens is not None and state.tokens >= end.tokens:
        yield BeginClosing("tokens")
        return
    needed = max(state.config.quorum, state.config.learners_min)
    if len(state.learners) < needed or not state.live:
        return
    pace = pace_of(state)
    if len(state.rounds) >= pace.overlap:
        return
    wait = pace.pace_seconds if state.last_opened else 0.0
    yield from _open(state, pace, wait)


def _owed_by_closing(state: State) -> Iterator[Ask]:
    """One last pass opens each fragment once, as soon as it is free; then the run is closed.

    With too few learners there for another merge it is closed when the others were given up and
    what is in hand is merged.
    """
    more = state.next_round <= state.closing_rounds[-1]
    if not more and not state.rounds:
        yield CloseRun(state.step, state.closing_at, 0.0)
    elif len(state.live) >= state.config.quorum:
        if more:
            yield from _open(state, pace_of(state), 0.0)
    elif not any(_comes_to_an_end(state, round_) for round_ in state.rounds.values()):
        since = max(state.closing_at, state.liveness_changed)
        yield CloseRun(state.step, since, state.config.times.lost_seconds)


def _comes_to_an_end(state: State, round_: Round) -> bool:
    """Whether a round needs nobody any more: it is being merged, or has its quorum."""
    return not round_.is_open or verdict(state, round_).action != "wait"


def _open(state: State, pace: Pace, wait_seconds: float) -> Iterator[Ask]:
    fragment = fragment_of(state.next_round, len(state.fragments))
    if state.round_of(fragment) is not None:
        return
    yield OpenRound(
        round=state.next_round,
        fragment=fragment,
        version=state.fragments[fragment].version + 1,
        pace_seconds=pace.pace_seconds,
        grace_seconds_max=pace.window_seconds,
        since=state.last_opened,
        after_seconds=wait_seconds,
    )
