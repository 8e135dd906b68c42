"""A second syncer that writes nothing: it folds what the first one wrote, and owes checks for it.

Told records in order, it gives the work on bytes that each asks for. Memory is bounded, however
long the run is. It must not know where records come from, nor who carries the checks out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from decodiloco.merge.self_test import self_test
from decodiloco.opening import Opening
from decodiloco.store.blobs import BlobStore
from decodiloco.syncer.machine import begin
from decodiloco.syncer.owed import StoreSnapshot, owed
from decodiloco.syncer.state import State
from replay.blob_checks import Check
from replay.fact_bytes import Named, checks_of
from replay.facts_check import FactsCheck
from replay.refold import Folded, next_state
from streams.envelope import Envelope
from streams.errors import Corrupt
from streams.events import DeltaOffered, SnapshotStored

STATES_MAX = 4096
"""States that are kept while a snapshot is due: it may be of any of them."""

MERGES_MAX = 10_000
"""Merges of which it is known which versions stood after them, for evaluations to come."""


@dataclass(frozen=True, slots=True)
class Owed:
    """One fact, folded, and the checks on bytes that it asks for."""

    envelope: Envelope
    step: int
    checks: tuple[Check, ...]


@dataclass(slots=True)
class Told:
    """What came of some records; `differs` at the first that does not follow, which is `at`."""

    owed: list[Owed] = field(default_factory=list)
    differs: Corrupt | None = None
    at: Envelope | None = None


class Shadow:
    """The state of a run as its tape says it, from `state` on; checks bytes from `first` on.

    Between the state it begins with, which is a stored snapshot's or the opening's, and `first`
    only the facts are checked.
    """

    def __init__(
        self, store: BlobStore, opening: Opening, state: State | None = None, first: int = 1
    ) -> None:
        self.state = begin(opening) if state is None else state
        self.unjudged = 0
        self._first = first
        self._named = Named(store, opening, {})
        answer = self_test()
        self._facts = FactsCheck.after(answer, state) if state else FactsCheck(answer)
        self._states: deque[State] = deque(maxlen=STATES_MAX)

    def tell(self, records: Sequence[Envelope]) -> Told:
        """Folds the records that follow those told before, up to the first that differs."""
        told = Told()
        for envelope in records:
            try:
                told.owed.append(self._tell(envelope))
            except Corrupt as error:
                told.differs, told.at = error, envelope
                break
        return told

    def settle(self) -> None:
        """Raises Differs when the tokens of a learner do not add up."""
        self._facts.fates(self.state)

    def _tell(self, envelope: Envelope) -> Owed:
        before = self.state
        self._facts.let_go(before, MERGES_MAX)
        self._facts.tell(before, envelope)
        self.state = next_state(before, envelope)
        checks = self._checks(Folded(before, envelope, self.state))
        self._keep()
        return Owed(envelope, self.state.step, checks)

    def _checks(self, folded: Folded) -> tuple[Check, ...]:
        """The checks that a fact asks for. A delta is read once, in the merge that takes it."""
        event = folded.envelope.event
        if folded.envelope.position < self._first or isinstance(event, DeltaOffered):
            return ()
        states: dict[int, State] = {}
        if isinstance(event, SnapshotStored):
            states = {state.position: state for state in self._states}
            if event.position not in states:
                self.unjudged += 1
                return ()
        return tuple(checks_of(folded, self._named, states))

    def _keep(self) -> None:
        """Keeps the states of which a snapshot is due, and those after, until it is stored."""
        if any(isinstance(ask, StoreSnapshot) for ask in owed(self.state)):
            self._states.append(self.state)
        else:
            self._states.clear()
