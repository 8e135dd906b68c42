"""What must hold of strikes and quarantine, by the facts alone. Pure."""

from __future__ import annotations

from replay.invariants.ledger import STRIKE, Ledger
from replay.invariants.rule import Invariant
from streams.envelope import Envelope
from streams.events import DeltaOffered, LearnerLost, WindowClosed


class QuarantinedForStrikes(Invariant):
    """A life is quarantined for as many strikes as the run allows and no fewer, and that is all."""

    name = "quarantined for strikes"

    def tell(self, ledger: Ledger, envelope: Envelope) -> None:
        event, position = envelope.event, envelope.position
        match event:
            case LearnerLost(reason="quarantined"):
                life, strikes = ledger.lives[event.learner], ledger.opening.run.gates.strikes
                told = f"{event.learner} is quarantined with {life.marks} marks"
                self.hold(0 < strikes * STRIKE <= life.marks, told, position)
                told = f"life {event.incarnation} is quarantined, {life.incarnation} is the newest"
                self.hold(event.incarnation == life.incarnation, told, position)
            case DeltaOffered() | LearnerLost():
                is_over = ledger.lives[event.learner].is_quarantined
                told = f"{event.kind} of {event.learner}, which is quarantined"
                self.hold(not is_over, told, position)
            case WindowClosed():
                names = [ledger.offers[each].learner for each in event.offers]
                inside = [name for name in names if ledger.lives[name].is_quarantined]
                self.hold(not inside, f"offers of {inside}, which are quarantined", position)
            case _:
                return
