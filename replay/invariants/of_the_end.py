"""What must hold of a run's end, and of a world as a whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replay.invariants.ledger import Ledger
from replay.invariants.rule import Invariant
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    FragmentMerged,
    LearnerJoined,
    LearnerLeft,
    RoundOpened,
    RunClosed,
    RunClosing,
    SyncerTookOver,
    WindowClosed,
)


class ClosedAsItStood(Invariant):
    """RunClosed names the versions, step and tokens of that moment, and nothing is added."""

    name = "closed as it stood"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        if isinstance(event, RunClosed):
            told = (event.step, event.tokens, list(event.versions))
            found = (ledger.step, ledger.tokens, ledger.versions)
            self.hold(told == found, f"closed at {told}; the facts come to {found}", position)
            self.hold(bool(ledger.closing_at), "closed without RunClosing", position)
        elif ledger.closed is not None:
            added = isinstance(
                event,
                DeltaOffered | FragmentMerged | LearnerJoined | RoundOpened | RunClosing
                | WindowClosed,
            )  # fmt: skip
            self.hold(not added, f"{event.kind} after RunClosed", position)


class FinishedWithTheModel(Invariant):
    """A learner that has finished holds exactly the model that the run closed with."""

    name = "finished with the model"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        if isinstance(event, LearnerLeft) and event.reason == "finished":
            closed = ledger.closed
            self.hold(closed is not None, f"{event.learner} finished an open run", position)
            assert closed is not None
            told = f"{event.learner} finished with another model"
            self.hold(event.digest == closed.digest, told, position)


class KnownAnswer(Invariant):
    """Each syncer proved its arithmetic by the known answer before it wrote."""

    name = "known answer"

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self._answer = answer

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, SyncerTookOver):
            same = event.self_test == self._answer
            self.hold(same, f"{event.syncer} computes otherwise", envelope.position)


class AcknowledgedStands(Invariant):
    """All that a writer was told is stored stands on the tape, and nothing nobody sent."""

    name = "acknowledged stands"

    def look(
        self,
        records: Sequence[bytes],
        attempted: Mapping[bytes, int],
        acknowledged: Mapping[bytes, int],
    ) -> None:
        """The tape (digests in order) against the journals of those who wrote it."""
        standing = set(records)
        for digest, position in acknowledged.items():
            told = "a record was acknowledged, and does not stand on the tape"
            self.hold(digest in standing, told, position)
        for position, digest in enumerate(records, 1):
            if position > 1:
                self.hold(digest in attempted, "a record that nobody sent", position)


class RecordingGoesOn(Invariant):
    """A recording whose file was torn goes on behind its last whole record, and is the tape."""

    name = "recording goes on"


class SameBytes(Invariant):
    """Whoever carries a merge out, and however often: the bytes are the same."""

    name = "same bytes from all"


class GoesOn(Invariant):
    """Once all is healed, the run goes on, closes and comes to rest within a bound."""

    name = "goes on"
