"""All invariants, told one fact after another; the first that breaks is raised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache

from decodiloco.merge.self_test import self_test
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.state import State
from replay.errors import InvariantBroken
from replay.invariants import (
    of_bytes,
    of_gates,
    of_rounds,
    of_state,
    of_tape,
    of_the_end,
    of_the_horizon,
    of_tokens,
)
from replay.invariants.ledger import Ledger
from replay.invariants.rule import Invariant
from replay.reach import EVERYTHING, Reach
from streams.envelope import Envelope
from streams.errors import ChainBroken
from streams.events import FragmentMerged, RunClosed, SnapshotStored

CLOCK_EVERY = 16  # facts between two checks that cost a fold of their own
SNAPSHOT_SHARE = 4  # of so many snapshots one is read back: it costs as much as fifty facts


def is_delta(key: str) -> bool:
    """Whether a blob is a learner's: it may say that it stored one, and be left out for it."""
    return "/delta/" in key


@cache
def known_answer() -> bytes:
    """The digest that each syncer's arithmetic must give, as this process computes it."""
    return self_test()


class FactsFollow(Invariant):
    """Every fact can be folded where it stands."""

    name = "facts follow"


class NoMachineStumbles(Invariant):
    """No assertion of a machine fails, and none ends of what it is told."""

    name = "no machine stumbles"


_OF_FACTS: tuple[type[Invariant], ...] = (
    of_tape.OneChain,
    of_tape.FencesGrow,
    of_tape.LettersOnce,
    of_tape.WordsOnce,
    of_tape.OwnWords,
    of_tape.LivesInOrder,
    of_tape.DataGoOn,
    of_rounds.RoundsInOrder,
    of_rounds.VersionsByOne,
    of_rounds.WindowByPosition,
    of_rounds.Quorum,
    of_rounds.JudgedOnce,
    of_rounds.StepsOnce,
    of_rounds.NoVersionBack,
    of_rounds.BaseIsReal,
    of_gates.QuarantinedForStrikes,
    of_tokens.CountersGrow,
    of_tokens.RefusalsTellWhy,
    of_the_horizon.HorizonKeepsWhatIsNeeded,
    of_the_end.ClosedAsItStood,
    of_the_end.FinishedWithTheModel,
)


def every_invariant() -> tuple[type[Invariant], ...]:
    """All invariants, by class, in the order in which `Invariants.every` has them."""
    return (
        *_OF_FACTS,
        of_the_end.KnownAnswer,
        of_bytes.BytesBeforeWords,
        of_bytes.MergedFromTheseBytes,
        FactsFollow,
        of_state.DigestOfTheState,
        of_state.StateAsTold,
        of_tokens.FatesAddUp,
        of_state.BoundedState,
        of_state.SnapshotIsTheState,
        of_state.NoClock,
        of_the_horizon.OnlyBelowTheHorizon,
        NoMachineStumbles,
        of_the_end.AcknowledgedStands,
        of_the_end.RecordingGoesOn,
        of_the_end.SameBytes,
        of_the_end.GoesOn,
    )


class Invariants:
    """The invariants over one run. `tell` each record in order, then `end`.

    `store` is looked into for the bytes that facts name; None leaves bytes out. A key that
    `is_excused` may be absent. `second` is another fold, held against the production one. `reach`
    is how far back the store has bytes by now.
    """

    def __init__(
        self,
        opening: Opening,
        store: BlobStore | None = None,
        is_excused: Callable[[str], bool] = is_delta,
        second: of_state.SecondFold | None = None,
        reach: Reach = EVERYTHING,
    ) -> None:
        self.ledger = Ledger(opening)
        self.state: State = begin(opening)
        self.liveness = of_the_end.GoesOn()
        self.recording = of_the_end.RecordingGoesOn()
        self.same_bytes = of_the_end.SameBytes()
        self.deletions = of_the_horizon.OnlyBelowTheHorizon()
        self.stumbles = NoMachineStumbles()
        self._second = second
        self._records: list[bytes] = []
        self._facts: list[Invariant] = [
            *(kind() for kind in _OF_FACTS),
            of_the_end.KnownAnswer(known_answer()),
        ]
        if store is not None:
            self._facts.append(of_bytes.BytesBeforeWords(store, is_excused, reach))
            self._facts.append(of_bytes.MergedFromTheseBytes(store, reach))
        self._follow = FactsFollow()
        self.digest_of_the_state = of_state.DigestOfTheState()
        self._bounded = of_state.BoundedState()
        self._no_clock = of_state.NoClock()
        self._snapshot = of_state.SnapshotIsTheState()
        self._as_told = of_state.StateAsTold()
        self._fates = of_tokens.FatesAddUp()
        self._acknowledged = of_the_end.AcknowledgedStands()

    @property
    def every(self) -> tuple[Invariant, ...]:
        """All of them, in the order in which they are told."""
        return (
            *self._facts,
            self._follow,
            self.digest_of_the_state,
            self._as_told,
            self._fates,
            self._bounded,
            self._snapshot,
            self._no_clock,
            self.deletions,
            self.stumbles,
            self._acknowledged,
            self.recording,
            self.same_bytes,
            self.liveness,
        )

    def counts(self) -> Counter[str]:
        """How often each was checked."""
        return Counter({one.name: one.checked for one in self.every})

    def tell(self, envelope: Envelope) -> None:
        """One record. Raises InvariantBroken at the first that does not hold."""
        for one in self._facts:
            one.tell(self.ledger, envelope)
        before, event = self.state, envelope.event
        if isinstance(event, FragmentMerged):
            self.digest_of_the_state.look(before, self._second, event, envelope.position)
        self.state = self._folded(before, envelope)
        self.ledger.tell(envelope)
        if self._second is not None:
            self._second.tell(envelope)
        self._records.append(envelope.digest)
        self._as_told.look(self.ledger, self.state)
        if isinstance(event, FragmentMerged | RunClosed):
            self._fates.look(self.ledger, self.state)
            self._bounded.look(self.state)
        if isinstance(event, SnapshotStored) and event.position % SNAPSHOT_SHARE == 0:
            self._snapshot.look(self.state.opening, self.state)
        if envelope.position % CLOCK_EVERY == 0:
            self._no_clock.look(before, envelope, self.state)

    def end(
        self,
        attempted: Mapping[bytes, int] | None = None,
        acknowledged: Mapping[bytes, int] | None = None,
    ) -> None:
        """The last facts, and what the writers kept in mind of what they wrote, where they did."""
        self._fates.look(self.ledger, self.state)
        self._snapshot.look(self.state.opening, self.state)
        if attempted is not None and acknowledged is not None:
            self._acknowledged.look(self._records, attempted, acknowledged)

    def _folded(self, before: State, envelope: Envelope) -> State:
        try:
            after = fold(before, envelope)
        except (ChainBroken, AssertionError, LookupError, ValueError) as error:
            what = f"{envelope.event.kind}: {type(error).__name__}: {error}".rstrip(": ")
            raise InvariantBroken(self._follow.name, what, envelope.position) from error
        self._follow.checked += 1
        return after
