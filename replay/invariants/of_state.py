"""What must hold of the folded state: its digest, its size, and that no clock moves it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from decodiloco.errors import BlobCorrupt
from decodiloco.opening import Opening
from decodiloco.syncer.machine import fold
from decodiloco.syncer.snapshot import decode_state, encode_state, state_digest
from decodiloco.syncer.state import State
from replay.invariants.ledger import Ledger
from replay.invariants.rule import Invariant
from streams.envelope import Envelope
from streams.events import FragmentMerged

ANOTHER_TIME_SECONDS = 1.0
SPANS_MAX = 512  # of unsettled tokens of one learner and fragment


class SecondFold(Protocol):
    """Another implementation of the fold, told the same facts."""

    def tell(self, envelope: Envelope) -> None:
        """One fact more."""
        ...

    def digest(self) -> bytes:
        """State digest v1 of the facts so far."""
        ...


class DigestOfTheState(Invariant):
    """The state digest in each merge is that of a fold of its own, from the first fact on."""

    name = "digest of the state"

    def look(
        self, state: State, second: SecondFold | None, event: FragmentMerged, position: int
    ) -> None:
        """The state before a merge against what the merge says of it."""
        told = "this merge was written from another state"
        self.hold(event.state_digest == state_digest(state), told, position)
        if second is not None:
            told = "a plain fold of the same facts comes to another state"
            self.hold(event.state_digest == second.digest(), told, position)


class BoundedState(Invariant):
    """What a syncer keeps in mind grows with learners and fragments, not with time."""

    name = "bounded state"

    def look(self, state: State) -> None:
        """Counts what might pile up."""
        learners, fragments = len(state.learners), len(state.fragments)
        for what, count, most in (
            ("offers", len(state.offers), 2 * learners * fragments),
            ("rounds", len(state.rounds), fragments),
            ("inboxes", len(state.inboxes), len(state.config.regions)),
            ("untold superseded offers", len(state.superseded), 64 + 8 * learners * fragments),
        ):
            self.hold(count <= most, f"{count} {what}; at most {most}", state.position)
        for learner in state.learners.values():
            spans = max(len(account.spans) for account in learner.accounts)
            told = "" if spans <= SPANS_MAX else f"{learner.id} has {spans} spans of open tokens"
            self.hold(spans <= SPANS_MAX, told, state.position)


class NoClock(Invariant):
    """Other times and other writers' names on the same facts give the same state."""

    name = "no clock"

    def look(self, before: State, envelope: Envelope, after: State) -> None:
        """The same fact, written at another time."""
        other = replace(envelope, time_seconds=ANOTHER_TIME_SECONDS, writer="another")
        same = fold(before, replace(other, digest=envelope.digest)) == after
        self.hold(same, "the state depends on the time of a fact", envelope.position)


class SnapshotIsTheState(Invariant):
    """A state read back from a snapshot is the state, to the last field."""

    name = "snapshot is the state"

    def look(self, opening: Opening, state: State) -> None:
        """There and back."""
        try:
            again = decode_state(opening, encode_state(state))
        except BlobCorrupt as error:
            self.hold(False, str(error), state.position)
            return
        self.hold(again == state, "a snapshot decodes to another state", state.position)


class StateAsTold(Invariant):
    """Versions, step, fence, lives and their marks in the state are those that the facts tell."""

    name = "state as told"

    def look(self, ledger: Ledger, state: State) -> None:
        """The state against the ledger, after the same facts."""
        ours = (ledger.position, ledger.digest, ledger.fence, ledger.step, tuple(ledger.versions))
        theirs = (state.position, state.digest, state.fence, state.step, state.versions)
        same = ours == theirs
        told = "" if same else f"state {theirs[2:]}, facts {ours[2:]}"
        self.hold(same, told, state.position)
        lives = {n: (one.incarnation, one.said, one.marks) for n, one in ledger.lives.items()}
        known = {n: (one.incarnation, one.said, one.marks) for n, one in state.learners.items()}
        same = lives == known
        self.hold(same, "" if same else f"lives {known}, facts {lives}", state.position)
        same = ledger.offers.keys() == state.offers.keys()
        told = "" if same else f"offers {sorted(state.offers)}, facts {sorted(ledger.offers)}"
        self.hold(same, told, state.position)
