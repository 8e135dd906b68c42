"""What must hold of letting go: nothing that is needed, and nothing before the fact. Pure.

Counted again from the facts alone, with nothing of the syncer's state and its snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from decodiloco.opening import Opening
from decodiloco.store.keys import named_by
from replay.invariants.ledger import Ledger
from replay.invariants.rule import Invariant
from replay.reach import Reach
from streams.envelope import Envelope
from streams.events import (
    CheckpointStored,
    Event,
    FragmentMerged,
    HorizonRaised,
    RetentionAsked,
    SnapshotStored,
    StoreSwept,
)
from streams.manifest import Manifest

VERSIONS_KEPT = 2  # of each fragment the newest so many


class HorizonKeepsWhatIsNeeded(Invariant):
    """A horizon is a stored snapshot; it keeps open offers, versions and checkpoints in use."""

    name = "horizon keeps what is needed"

    def __init__(self) -> None:
        super().__init__()
        self._keep_merges: int | None = None
        self._snapshots: dict[int, tuple[Manifest, int]] = {}  # by position: and merges by then
        self._merges: dict[int, list[int]] = {}  # by fragment: where its last versions were made
        self._checkpoints: dict[str, list[int]] = {}
        self._settled: dict[int, int] = {}  # offers, and after which position they had ended
        self._open: frozenset[int] = frozenset()
        self._reach = Reach()
        self._swept = 0

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        if self._keep_merges is None:
            self._keep_merges = ledger.opening.run.retention.keep_merges or 0
        self._note_settled(ledger)
        position, event = envelope.position, envelope.event
        match event:
            case RetentionAsked():
                self._keep_merges = event.keep_merges
            case FragmentMerged():
                self._merges.setdefault(event.fragment, []).append(position)
            case CheckpointStored():
                self._checkpoints.setdefault(event.learner, []).append(position)
            case SnapshotStored():
                self._snapshots.setdefault(event.position, (event.manifest, ledger.step))
            case HorizonRaised():
                self._raised(ledger, event, position)
                self._reach = self._reach.then(envelope)
            case StoreSwept():
                told = f"swept below {event.position}, the horizon is {self._reach.position}"
                is_next = self._swept < event.position == self._reach.position
                self.hold(is_next, told, position)
                self._swept = event.position
            case _:
                pass
        self._let_go()

    def _note_settled(self, ledger: Ledger) -> None:
        """Offers that the last fact brought to their end."""
        if len(ledger.offers) == len(self._open) and all(
            each in self._open for each in ledger.offers
        ):
            return
        now = frozenset(ledger.offers)
        self._settled.update((each, ledger.position) for each in sorted(self._open - now))
        self._open = now

    def _raised(self, ledger: Ledger, event: HorizonRaised, position: int) -> None:
        manifest, step = self._snapshots.get(event.position, (None, 0))
        told = f"the horizon {event.position} is no stored snapshot"
        self.hold(manifest == event.snapshot, told, position)
        told = f"the horizon went from {self._reach.position} to {event.position}"
        self.hold(self._reach.position < event.position < position, told, position)
        self.hold(self._swept == self._reach.position, "the last horizon is not swept", position)
        behind = ledger.step - step
        told = f"{behind} merges stand behind the horizon; {self._keep_merges} are to be kept"
        self.hold(0 < (self._keep_merges or 0) <= behind, told, position)
        kept = frozenset(event.kept)
        for what, needed in self._needed(event.position):
            told = f"the horizon {event.position} lets go of {needed}, {what}"
            self.hold(needed in kept, told, position)

    def _needed(self, horizon: int) -> Iterator[tuple[str, int]]:
        """What is needed below a horizon, and why."""
        for fragment in sorted(self._merges):
            made = self._merges[fragment]
            below = [each for each in made if each <= horizon]
            for each in (*below[-1:], *(each for each in made[-VERSIONS_KEPT:] if each in below)):
                yield f"a version of fragment {fragment} in use", each
        for learner in sorted(self._checkpoints):
            told = [each for each in self._checkpoints[learner] if each <= horizon]
            yield from ((f"the newest checkpoint of {learner}", each) for each in told[-1:])
        for each in sorted(self._open):
            if each <= horizon:
                yield "an offer that waits", each
        for each in sorted(self._settled):
            if each <= horizon < self._settled[each]:
                yield "an offer that waited there", each

    def _let_go(self) -> None:
        """Forgets what no horizon to come can need: all but the last, where none is to come."""
        is_on, horizon = bool(self._keep_merges), self._reach.position
        if not is_on:
            self._snapshots.clear()
            self._settled.clear()
        for made in self._merges.values():
            while len(made) > VERSIONS_KEPT and (not is_on or made[1] <= horizon):
                del made[0]
        for told in self._checkpoints.values():
            while len(told) > 1 and (not is_on or told[1] <= horizon):
                del told[0]
        while self._settled and is_on:
            first = next(iter(self._settled))
            if self._settled[first] > horizon:
                break
            del self._settled[first]


class OnlyBelowTheHorizon(Invariant):
    """A blob goes only if a fact on the tape lets go of all that names it; all else is there."""

    name = "only below the horizon"

    def __init__(self) -> None:
        super().__init__()
        self._reach = Reach()
        self._named: dict[str, list[int]] = {}
        self._read = 0

    def look(self, records: Sequence[Envelope], run: str, key: str) -> None:
        """A blob is about to be deleted, while so many records stand."""
        for envelope in records[self._read :]:
            self._reach = self._reach.then(envelope)
            for name, _ in named_by(run, envelope.event):
                self._named.setdefault(name, []).append(envelope.position)
        self._read = len(records)
        naming = self._named.get(key, [])
        self.hold(bool(naming), f"{key} is deleted, and no fact names it", len(records))
        stays = [position for position in naming if self._reach.has(position)]
        told = f"{key} is deleted; the facts at {stays} still need it"
        self.hold(not stays, told, len(records))

    def end(
        self,
        records: Sequence[Envelope],
        opening: Opening,
        size: Callable[[str], int | None],
        is_excused: Callable[[str], bool],
    ) -> None:
        """Whatever was not let go of is in the store when all is over."""
        reach = Reach()
        for envelope in records:
            reach = reach.then(envelope)
        for envelope in records:
            if reach.position and reach.has(envelope.position):
                self._there(opening, envelope.event, envelope.position, size, is_excused)

    def _there(
        self,
        opening: Opening,
        event: Event,
        position: int,
        size: Callable[[str], int | None],
        is_excused: Callable[[str], bool],
    ) -> None:
        for key, manifest in named_by(opening.run.name, event, opening.fragments):
            if not is_excused(key):
                self.hold(size(key) == manifest.bytes, f"{key} is gone too early", position)
