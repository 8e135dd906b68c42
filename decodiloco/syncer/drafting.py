"""Asks and letters into drafts: the facts a leader writes, decided at their place in the batch.

Pure: durations that a fact carries are handed in by whoever measured them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from decodiloco.merge.order import Abandoned, StoredMerge
from decodiloco.syncer.admission import Admitted, Unreadable, admit
from decodiloco.syncer.compose import Draft
from decodiloco.syncer.owed import (
    Ask,
    BeginClosing,
    CloseWindow,
    DeclareLost,
    MergeFragment,
    OpenRound,
    RaiseHorizon,
    SweepStore,
    owed,
)
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import State
from streams.events import (
    Event,
    FragmentMerged,
    HorizonRaised,
    LearnerLost,
    MergeAbandoned,
    MessageRefused,
    RoundOpened,
    RunClosed,
    RunClosing,
    SnapshotStored,
    StoreSwept,
    WindowClosed,
)
from streams.inbox import Letter
from streams.manifest import Manifest

LEFT_OUT_MAX = 24  # with their reasons and a thousand contributions this fills a fact
SUPERSEDED_MAX = 512

Timed = OpenRound | CloseWindow | DeclareLost | BeginClosing


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds from a round's opening to its quorum and to now; of a learner's silence."""

    quorum_seconds: float = 0.0
    waited_seconds: float = 0.0


def from_letter(letter: Letter, unreadable: Callable[[Letter, Unreadable], None]) -> Draft:
    """What an inbox letter becomes. What cannot be read is handed to `unreadable`."""

    def decide(state: State) -> Event | None:
        verdict = admit(state, letter)
        if isinstance(verdict, Unreadable):
            unreadable(letter, verdict)
        return verdict.event if isinstance(verdict, Admitted) else None

    return Draft(decide, letter.source)


def from_refusals(letter: Letter, reason: str, count: int, subject: str) -> Draft:
    """Letters of one subject that could not be read, counted up to this one."""
    event = MessageRefused(source=subject, reason=reason, count=count)
    return Draft(lambda state: event, letter.source)


def from_timed(ask: Timed, waited: Waited, syncer: str) -> Draft:
    """What a due ask becomes, if the state still owes it when its turn comes."""

    def decide(state: State) -> Event | None:
        for still in owed(state):
            if still.key == ask.key and isinstance(still, type(ask)):
                return _timed(state, still, waited, syncer)
        return None

    return Draft(decide)


def from_merge(ask: MergeFragment, result: StoredMerge | Abandoned, merge_seconds: float) -> Draft:
    """A merge that was carried out, if its window is still the one that it was made for.

    When more offers are unfit than one fact can tell, the first of them are told, and the round
    goes on without these.
    """

    def decide(state: State) -> Event | None:
        round_ = state.rounds.get(ask.round)
        if round_ is None or round_.closed_at != ask.closed_at or state.closed is not None:
            return None
        if isinstance(result, Abandoned) or len(result.left_out) > LEFT_OUT_MAX:
            return MergeAbandoned(round=ask.round, left_out=result.left_out[:LEFT_OUT_MAX])
        return FragmentMerged(
            round=ask.round,
            fragment=round_.fragment,
            version=round_.version,
            step=state.step + 1,
            contributions=result.contributions,
            doubted=result.doubted,
            left_out=result.left_out,
            parameters=result.parameters,
            momentum=result.momentum,
            report=result.report,
            outer_gradient_norm=result.outer_gradient_norm,
            merge_seconds=merge_seconds,
            state_digest=state_digest(state),
        )

    return Draft(decide)


def from_snapshot(position: int, manifest: Manifest) -> Draft:
    """A snapshot that is stored: the state as it stood at `position`."""
    event = SnapshotStored(position=position, manifest=manifest)
    return Draft(lambda state: event if state.closed is None else None)


def from_horizon(ask: RaiseHorizon, snapshot: Manifest, kept: tuple[int, ...]) -> Draft:
    """A horizon whose kept facts were counted. What is new by then stands above it."""
    event = HorizonRaised(position=ask.position, snapshot=snapshot, kept=kept)
    return while_owed(ask, Draft(lambda _: event))


def from_sweep(ask: SweepStore, blobs: int, size_bytes: int) -> Draft:
    """A sweep that is done."""
    event = StoreSwept(position=ask.position, blobs=blobs, bytes=size_bytes)
    return while_owed(ask, Draft(lambda _: event))


def from_close(versions: tuple[int, ...], digest: bytes) -> Draft:
    """The run's last fact of its own, if the versions are still those of the digest."""

    def decide(state: State) -> Event | None:
        if state.closed is not None or state.closing is None or state.versions != versions:
            return None
        return RunClosed(
            reason=state.closing,
            step=state.step,
            tokens=state.tokens,
            versions=versions,
            digest=digest,
        )

    return Draft(decide)


def while_owed(ask: Ask, draft: Draft) -> Draft:
    """The same draft, if just this is still owed when its turn comes."""
    return Draft(lambda state: draft.decide(state) if ask in owed(state) else None, draft.source)


def _timed(state: State, ask: object, waited: Waited, syncer: str) -> Event | None:
    match ask:
        case OpenRound():
            return RoundOpened(
                round=ask.round,
                fragment=ask.fragment,
                version=ask.version,
                pace_seconds=ask.pace_seconds,
                grace_seconds_max=ask.grace_seconds_max,
                tokens=state.tokens,
            )
        case CloseWindow():
            return _window(state, ask, waited)
        case DeclareLost():
            return LearnerLost(
                learner=ask.learner,
                incarnation=ask.incarnation,
                reason=ask.reason,
                silent_seconds=waited.waited_seconds if ask.reason == "silent" else 0.0,
                why=ask.why,
            )
        case BeginClosing():
            return RunClosing(speaker=syncer, life=0, said=0, reason=ask.reason)
        case _:
            raise AssertionError(f"{ask} is carried out otherwise")


def _window(state: State, ask: CloseWindow, waited: Waited) -> WindowClosed:
    round_ = state.rounds[ask.round]
    return WindowClosed(
        round=ask.round,
        fragment=round_.fragment,
        version=round_.version,
        offers=tuple(offer.position for offer in state.waiting(round_.fragment)),
        superseded=tuple(
            position for position, fragment in state.superseded if fragment == round_.fragment
        )[-SUPERSEDED_MAX:],
        reason=ask.reason,
        quorum_seconds=waited.quorum_seconds,
        waited_seconds=waited.waited_seconds,
    )
