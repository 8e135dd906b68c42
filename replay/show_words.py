"""Each fact in a few words: what it says of the run, and what it says of each learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

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
from streams.parts import LeftOut

LEFT_OUT = "left out"
ALARMING = (
    LEFT_OUT,
    "refused",
    "lost",
    "abandoned",
    "hardship",
    "unreadable",
    "took over",
    "leaves: failed",
)

Offers = Mapping[int, DeltaOffered]
Cells = dict[str, str]


def cells_of(event: Event, offers: Offers) -> tuple[str, Cells]:
    """The text of the column `run`, and the texts of the learners that the fact concerns."""
    match event:
        case LearnerJoined() | LearnerLeft() | LearnerLost() | DeltaOffered() | DeltaRefused():
            return "", {event.learner: _of_learner(event)}
        case CheckpointStored():
            size = told_bytes(event.manifest.bytes)
            return "", {event.learner: f"checkpoint at step {event.learner_step}, {size}"}
        case WindowClosed():
            return _closed(event), _each(event.offers, offers, lambda offer: f"in r{event.round}")
        case FragmentMerged():
            return _merged(event), {
                **_each(event.contributions, offers, _merged_offer),
                **_left_out(event.left_out, offers),
            }
        case MergeAbandoned():
            run = f"abandoned r{event.round}: too few passed, open again"
            return run, _left_out(event.left_out, offers)
        case _:
            return _of_run(event), {}


def _of_learner(
    event: LearnerJoined | LearnerLeft | LearnerLost | DeltaOffered | DeltaRefused,
) -> str:
    match event:
        case LearnerJoined():
            again = f" again at step {event.learner_step}" if event.learner_step else ""
            return f"joins{again}, moments {event.moments.source}"
        case LearnerLeft():
            digest = f" {event.digest.hex()[:8]}" if event.digest else ""
            return f"leaves: {event.reason} at step {event.learner_step}{digest}"
        case LearnerLost(reason="quarantined"):
            return f"QUARANTINED: {event.why}"
        case LearnerLost():
            return f"lost: silent for {event.silent_seconds:.1f} s"
        case DeltaOffered():
            return (
                f"r{event.round} f{event.fragment} on v{event.base_version}: "
                f"{event.inner_steps} steps {told_count(event.tokens)} tok loss {event.loss:.4g}"
            )
        case DeltaRefused():
            return f"refused r{event.round} f{event.fragment}: {event.reason}"
        case _:
            assert_never(event)


def _of_run(
    event: RunOpened
    | RoundOpened
    | MessageRefused
    | EvaluationReported
    | SnapshotStored
    | HorizonRaised
    | StoreSwept
    | RetentionAsked
    | SyncerTookOver
    | HardshipInjected
    | RunClosing
    | RunClosed,
) -> str:
    match event:
        case RunOpened():
            return f"run {event.run} opened, blobs in {event.store}"
        case RoundOpened():
            return f"r{event.round} f{event.fragment} opens for v{event.version}"
        case MessageRefused():
            return f"unreadable x{event.count} from {event.source}: {event.reason}"
        case EvaluationReported():
            return f"loss {event.loss:.4f} at step {event.step} ({event.speaker})"
        case SnapshotStored():
            return f"snapshot of position {event.position}, {told_bytes(event.manifest.bytes)}"
        case HorizonRaised():
            return f"horizon raised to position {event.position}, {len(event.kept)} facts kept"
        case StoreSwept():
            size = told_bytes(event.bytes)
            return f"swept below position {event.position}: {event.blobs} blobs, {size}"
        case RetentionAsked():
            kept = f"at least {event.keep_merges} merges" if event.keep_merges else "everything"
            return f"asked to keep {kept} ({event.speaker})"
        case SyncerTookOver():
            return f"took over: {event.syncer}, fence {event.fence}"
        case HardshipInjected():
            return f"hardship {event.hardship} for {event.target}"
        case RunClosing():
            return f"run closing: {event.reason}"
        case RunClosed():
            tokens = told_count(event.tokens)
            return f"run closed: {event.reason}, {tokens} tok, model {event.digest.hex()[:8]}"
        case _:
            assert_never(event)


def _closed(event: WindowClosed) -> str:
    return f"r{event.round} f{event.fragment} closes with {len(event.offers)}: {event.reason}"


def _merged(event: FragmentMerged) -> str:
    return (
        f"r{event.round} f{event.fragment} merged to v{event.version}, "
        f"|g| {event.outer_gradient_norm:.3g}, {1000 * event.merge_seconds:.0f} ms"
    )


def _merged_offer(offer: DeltaOffered) -> str:
    return f"merged {offer.inner_steps} steps {told_count(offer.tokens)} tok"


def _each(positions: tuple[int, ...], offers: Offers, told: Callable[[DeltaOffered], str]) -> Cells:
    return {
        offers[position].learner: told(offers[position])
        for position in positions
        if position in offers
    }


def _left_out(left_out: tuple[LeftOut, ...], offers: Offers) -> Cells:
    return {
        offers[each.position].learner: f"{LEFT_OUT}: {each.reason}"
        for each in left_out
        if each.position in offers
    }


def told_count(count: int) -> str:
    """A count in three or four signs: 812, 6.1k, 2.4M."""
    value = float(count)
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 1000 or unit == "T":
            return f"{value:.0f}{unit}" if not unit or value >= 100 else f"{value:.1f}{unit}"
        value /= 1000
    raise AssertionError("unreachable")


def told_bytes(count: int) -> str:
    """A size in a few signs: 812 B, 6.1 kB, 2.4 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")
