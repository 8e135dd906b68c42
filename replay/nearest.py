"""The newest stored snapshot before a moment, and how far it can be trusted.

A snapshot is what a syncer said of its state. Its bytes are those that a fact on the tape names by
their digest; what follows it on the tape says whether it was right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from decodiloco.errors import BlobCorrupt, BlobMissing
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.store.keys import snapshot_key
from decodiloco.syncer.state import State
from decodiloco.syncer.stored_snapshot import TRIES_MAX, UNUSABLE, read_named
from replay.errors import Differs
from replay.progress import Note
from replay.records import Records
from replay.refold import next_state
from streams.envelope import Envelope
from streams.errors import ChainBroken
from streams.events import FragmentMerged, SnapshotStored


@dataclass(frozen=True, slots=True)
class Nearest:
    """A stored state, and the position of the fact that names it."""

    state: State
    named_at: int
    key: str


@dataclass(slots=True)
class Stretch:
    """A fold from a snapshot on. `agreed_at`: the newest merge whose state digest was ours.

    The fact that names the snapshot is in the stretch, so its chain leads from the snapshot's
    state to the very fact that it is trusted for.
    """

    nearest: Nearest
    records: Records
    agreed_at: int = 0

    def states(self) -> Iterator[State]:
        """The snapshot's state, and each one after it, to the end of the tape.

        Raises Differs, naming the snapshot, for facts that do not follow from it.
        """
        state = self.nearest.state
        yield state
        for envelope in self.records.read(state.position):
            state = self._next(state, envelope)
            yield state

    def _next(self, state: State, envelope: Envelope) -> State:
        try:
            after = next_state(state, envelope)
        except (Differs, ChainBroken) as error:
            what = error.what if isinstance(error, Differs) else str(error)
            raise Differs(
                f"{what}. This was folded from the snapshot of position "
                f"{self.nearest.state.position}: `replay verify` tells whether that or the tape is "
                "wrong, `replay state --from-start` folds without it",
                envelope.position,
                self.nearest.key,
            ) from error
        if isinstance(envelope.event, FragmentMerged):
            self.agreed_at = envelope.position
        return after


def nearest(
    records: Records,
    store: BlobStore,
    opening: Opening,
    upto: int,
    note: Note,
) -> Nearest | None:
    """The newest snapshot that the tape names up to a position, or None.

    One that cannot be used is noted, and the one before it is tried.
    """
    for envelope in islice(records.back(SnapshotStored.kind, upto), TRIES_MAX):
        event = envelope.event
        assert isinstance(event, SnapshotStored)
        try:
            state = read_named(store, opening, envelope)
        except (BlobMissing, BlobCorrupt) as error:
            note(f"{UNUSABLE}: {error}")
            continue
        key = snapshot_key(opening.run.name, event.position, event.manifest)
        return Nearest(state, envelope.position, key)
    return None
