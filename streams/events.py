"""Every fact that a run can hold, as frozen models in one closed union.

Words are what learners, evaluators, injectors and operators say to an inbox; the syncer's
admission turns a word into the fact of the same kind, or refuses it. The rest is said by the
syncer alone. Counts are integers, durations are seconds, digests are blake3.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, StringConstraints

from streams.manifest import Digest, Manifest
from streams.parts import (
    FRAGMENTS_MAX,
    KEPT_MAX,
    RESIDUALS_MAX,
    Adoption,
    Count,
    Cursor,
    Finite,
    Integer,
    LeftOut,
    Moments,
    Name,
    Part,
    Reason,
    Seconds,
)


class Fact(Part):
    """One thing that happened."""

    kind: ClassVar[str]


class RunOpened(Fact):
    """The first fact of a run. It names the stored opening: config, layout, first fragments."""

    kind = "run_opened"
    run: Name
    config_digest: Digest
    layout_digest: Digest
    store: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    opening: Manifest
    rules: Count


class LearnerJoined(Fact):
    """A learner's life begins. Its position on the tape is the learner's incarnation.

    `slot` counts the distinct learners that joined before this one first did; it picks the
    learner's data shard. Admission fills it in, and `learner_step`, `tokens_trained` and `cursor`
    as the last admitted word of this id left them.
    """

    kind = "learner_joined"
    learner: Name
    slot: Count
    nonce: Annotated[bytes, Field(min_length=16, max_length=16)]
    seen: Count
    region: Name
    layout_digest: Digest
    fingerprint: Annotated[str, StringConstraints(max_length=400)]
    cursor: Cursor
    learner_step: Count
    tokens_trained: Count
    versions: Annotated[tuple[Count, ...], Field(max_length=FRAGMENTS_MAX)]
    moments: Moments


class LearnerLeft(Fact):
    """A learner says that it stops, why, and how far it came."""

    kind = "learner_left"
    learner: Name
    incarnation: Count
    said: Count
    seen: Count
    reason: Literal["finished", "asked", "preempted", "failed"]
    learner_step: Count
    tokens_trained: Count
    cursor: Cursor
    adopted: Annotated[tuple[Adoption, ...], Field(max_length=64)]
    digest: Annotated[bytes, Field(max_length=32)]


class LearnerLost(Fact):
    """A learner was silent for too long, or too many of its deltas were unfit: it is quarantined.

    A quarantined life is over; a new one may join. `why` is what it was marked for last.
    """

    kind = "learner_lost"
    learner: Name
    incarnation: Count
    reason: Literal["silent", "quarantined"]
    silent_seconds: Seconds
    why: Annotated[str, StringConstraints(max_length=200)] = ""


class RoundOpened(Fact):
    """Deltas of one fragment are collected from now on, towards this version."""

    kind = "round_opened"
    round: Count
    fragment: Count
    version: Count
    pace_seconds: Seconds
    grace_seconds_max: Seconds
    tokens: Count


class DeltaOffered(Fact):
    """A learner's delta is durable in the store. It covers the learner's last `inner_steps`.

    `adopted` are adoptions that count from here on; `held` are made, too, and will be in the
    `adopted` of a later word, once an older offer of their fragment is said. They are told for
    whoever trains this life again: it may die before. `residuals` are positions of merged offers
    of this learner and fragment: what coding lost of them is in this delta.
    """

    kind = "delta_offered"
    learner: Name
    incarnation: Count
    said: Count
    seen: Count
    round: Count
    fragment: Count
    base_version: Count
    learner_step: Integer
    inner_steps: Integer
    tokens: Integer
    tokens_trained: Integer
    step_seconds: Seconds
    upload_seconds: Seconds
    loss: float
    cursor: Cursor
    adopted: Annotated[tuple[Adoption, ...], Field(max_length=64)]
    held: Annotated[tuple[Adoption, ...], Field(max_length=64)] = ()
    residuals: Annotated[tuple[Count, ...], Field(max_length=RESIDUALS_MAX)] = ()
    manifest: Manifest


class DeltaRefused(Fact):
    """An offer that did not pass the word gates, and why. A refusal is no answer."""

    kind = "delta_refused"
    learner: Name
    incarnation: Count
    said: Count
    round: Count
    fragment: Count
    learner_step: Integer
    inner_steps: Integer
    tokens: Integer
    tokens_trained: Integer
    reason: Reason


class MessageRefused(Fact):
    """Messages of one inbox subject that could not be read or may not be said, counted."""

    kind = "message_refused"
    source: Annotated[str, StringConstraints(min_length=1, max_length=300)]
    reason: Reason
    count: Count


class WindowClosed(Fact):
    """Who is in a merge: the positions of the offers. From here on nobody is added."""

    kind = "window_closed"
    round: Count
    fragment: Count
    version: Count
    offers: Annotated[tuple[Count, ...], Field(max_length=1024)]
    superseded: Annotated[tuple[Count, ...], Field(max_length=1024)]
    reason: Reason
    quorum_seconds: Seconds
    waited_seconds: Seconds


class FragmentMerged(Fact):
    """A new version of a fragment: its parameters, momentum and merge report are stored.

    `doubted` are those of the contributions that agree no more with the others than chance would.
    """

    kind = "fragment_merged"
    round: Count
    fragment: Count
    version: Count
    step: Count
    contributions: Annotated[tuple[Count, ...], Field(max_length=1024)]
    doubted: Annotated[tuple[Count, ...], Field(max_length=1024)] = ()
    left_out: Annotated[tuple[LeftOut, ...], Field(max_length=64)]
    parameters: Manifest
    momentum: Manifest
    report: Manifest
    outer_gradient_norm: Finite
    merge_seconds: Seconds
    state_digest: Digest


class MergeAbandoned(Fact):
    """Fewer than a quorum passed the merge. The round is open again."""

    kind = "merge_abandoned"
    round: Count
    left_out: Annotated[tuple[LeftOut, ...], Field(max_length=64)]


class EvaluationReported(Fact):
    """The loss (nats per token) of the merged model at these versions on held-out text."""

    kind = "evaluation_reported"
    speaker: Name
    life: Count
    said: Count
    step: Count
    versions: Annotated[tuple[Count, ...], Field(max_length=FRAGMENTS_MAX)]
    tokens: Count
    loss: Finite
    dataset_digest: Digest


class CheckpointStored(Fact):
    """A learner's inner optimizer moments and random states are durable in the store.

    So are its residuals of the offers at these positions, which no merge has made good yet.
    """

    kind = "checkpoint_stored"
    learner: Name
    incarnation: Count
    said: Count
    learner_step: Count
    step: Count
    residuals: Annotated[tuple[Count, ...], Field(max_length=KEPT_MAX)] = ()
    manifest: Manifest


class SnapshotStored(Fact):
    """The syncer's state as it stood at this position is durable in the store."""

    kind = "snapshot_stored"
    position: Count
    manifest: Manifest


class HorizonRaised(Fact):
    """The bytes that facts up to this position name may be deleted, but those of `kept` facts.

    `snapshot` is the stored state of the position, from which merges can be made again. What
    RunOpened names is always kept.
    """

    kind = "horizon_raised"
    position: Count
    snapshot: Manifest
    kept: Annotated[tuple[Count, ...], Field(max_length=KEPT_MAX)]


class StoreSwept(Fact):
    """What the horizon at this position let go of is deleted: so many blobs and bytes."""

    kind = "store_swept"
    position: Count
    blobs: Count
    bytes: Count


class RetentionAsked(Fact):
    """From now on the bytes of at least so many newest merges are kept; 0: all bytes."""

    kind = "retention_asked"
    speaker: Name
    life: Count
    said: Count
    keep_merges: Count


class SyncerTookOver(Fact):
    """A syncer begins to write. Facts under a lower fence are refused from here on."""

    kind = "syncer_took_over"
    syncer: Name
    fence: Count
    rules: Count
    self_test: Digest
    fingerprint: Annotated[str, StringConstraints(max_length=400)]


class HardshipInjected(Fact):
    """A fault is about to be put into this run on purpose."""

    kind = "hardship_injected"
    speaker: Name
    life: Count
    said: Count
    hardship: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    target: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    seed: Count


class RunClosing(Fact):
    """No new paced rounds: each fragment is opened once more, then the run is closed."""

    kind = "run_closing"
    speaker: Name
    life: Count
    said: Count
    reason: Literal["steps", "tokens", "asked"]


class RunClosed(Fact):
    """The last fact: the versions that every learner now overwrites to, and their digest."""

    kind = "run_closed"
    reason: Literal["steps", "tokens", "asked"]
    step: Count
    tokens: Count
    versions: Annotated[tuple[Count, ...], Field(max_length=FRAGMENTS_MAX)]
    digest: Digest


LearnerEvent = LearnerJoined | LearnerLeft | LearnerLost | DeltaOffered | DeltaRefused
RunEvent = (
    RunOpened
    | RoundOpened
    | MessageRefused
    | WindowClosed
    | FragmentMerged
    | MergeAbandoned
    | EvaluationReported
    | CheckpointStored
    | SnapshotStored
    | HorizonRaised
    | StoreSwept
    | RetentionAsked
    | SyncerTookOver
    | HardshipInjected
    | RunClosing
    | RunClosed
)
Event = LearnerEvent | RunEvent
Word = (
    LearnerJoined
    | LearnerLeft
    | DeltaOffered
    | CheckpointStored
    | EvaluationReported
    | HardshipInjected
    | RetentionAsked
    | RunClosing
)

EVENTS: tuple[type[Fact], ...] = get_args(Event)
WORDS: tuple[type[Fact], ...] = get_args(Word)
LEARNER_EVENTS: tuple[type[Fact], ...] = get_args(LearnerEvent)
BY_KIND: dict[str, type[Fact]] = {event.kind: event for event in EVENTS}


def learner_of(event: Event) -> str | None:
    """The one learner that a fact is for; None for what all of the run need."""
    match event:
        case LearnerJoined() | LearnerLeft() | LearnerLost() | DeltaOffered() | DeltaRefused():
            return event.learner
        case _:
            return None


def speaker_of(word: Word) -> str:
    """The id under which a word is said: it must be that of the subject it came in on."""
    match word:
        case EvaluationReported() | HardshipInjected() | RetentionAsked() | RunClosing():
            return word.speaker
        case LearnerJoined() | LearnerLeft() | DeltaOffered() | CheckpointStored():
            return word.learner
