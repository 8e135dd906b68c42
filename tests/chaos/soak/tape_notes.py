"""What a tape tells beside its figures: how often what happened, and reasons. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    DeltaRefused,
    Event,
    FragmentMerged,
    LearnerJoined,
    LearnerLost,
    MergeAbandoned,
    MessageRefused,
    SyncerTookOver,
)

COUNTED: dict[str, type[Event]] = {
    "offers": DeltaOffered,
    "merges": FragmentMerged,
    "abandoned merges": MergeAbandoned,
    "joins": LearnerJoined,
    "learners declared lost": LearnerLost,
    "takeovers": SyncerTookOver,
}
REASON_LENGTH = 60


def notes_of(tape: Sequence[Envelope]) -> dict[str, object]:
    """Counts by kind, and why deltas and messages were refused or left out."""
    kinds = Counter(envelope.event.kind for envelope in tape)
    left_out: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    unreadable: Counter[str] = Counter()
    for envelope in tape:
        match envelope.event:
            case FragmentMerged() | MergeAbandoned() as event:
                left_out.update(_plain(each.reason) for each in event.left_out)
            case DeltaRefused() as event:
                refused[_plain(event.reason)] += 1
            case MessageRefused() as event:
                unreadable[_plain(event.reason)] += event.count
            case _:
                pass
    return {
        "facts": len(tape),
        **{name: kinds[kind.kind] for name, kind in COUNTED.items()},
        "deltas left out": dict(left_out),
        "offers refused": dict(refused),
        "messages refused": dict(unreadable),
    }


def _plain(reason: str) -> str:
    """A reason without the numbers and keys that make each one different."""
    words = [word for word in reason.split() if not any(sign.isdigit() for sign in word)]
    return " ".join(words)[:REASON_LENGTH]
