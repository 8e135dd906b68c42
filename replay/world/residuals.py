"""What must hold of residuals where learners are honest, as those of a world are. Pure.

Nothing is folded of residuals, and nobody can look into a learner: one that lies of them spoils
only its own training. So it is the world that looks on here, and no invariant of every run.
"""

from __future__ import annotations

from replay.invariants.ledger import Ledger
from replay.invariants.rule import Invariant
from streams.envelope import Envelope
from streams.events import DeltaOffered, FragmentMerged


class ResidualsOnce(Invariant):
    """A residual is that of a merged offer of the same learner and fragment, and merged once."""

    name = "residuals once"

    def __init__(self) -> None:
        super().__init__()
        self._merged: dict[int, tuple[str, int]] = {}
        self._good: dict[int, int] = {}  # residual -> the offer whose merge made it good

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        if isinstance(event, DeltaOffered):
            for at in event.residuals:
                whose = event.learner, event.fragment
                told = f"{at} is no merged offer of {event.learner} for fragment {event.fragment}"
                self.hold(self._merged.get(at) == whose, told, position)
        if isinstance(event, FragmentMerged):
            for offer in event.contributions:
                self._merge(offer, ledger.offers[offer], position)

    def _merge(self, position: int, offer: DeltaOffered, merged_at: int) -> None:
        for at in offer.residuals:
            told = f"the residual of {at} is merged with {self._good.get(at)} and with {position}"
            self.hold(at not in self._good, told, merged_at)
            self._good[at] = position
        self._merged[position] = offer.learner, offer.fragment
