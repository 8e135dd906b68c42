"""The vector clocks of a run, derived: what each fact's speaker could have known. Pure.

A learner's word carries `seen`, the last position it had folded, and its own `learner_step`; the
syncer has seen all that stands on the tape before what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.envelope import Envelope
from streams.events import DeltaOffered, LearnerJoined, LearnerLeft

Steps = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Clock:
    """How much of the tape, and how many steps of each learner, a fact's speaker knew of."""

    seen: int
    steps: Steps

    def before(self, other: Clock) -> bool:
        """Whether all that this speaker knew was known to the other too."""
        return self.seen <= other.seen and all(
            step <= other.steps.get(name, 0) for name, step in self.steps.items()
        )

    def __str__(self) -> str:
        steps = " ".join(f"{name}:{self.steps[name]}" for name in sorted(self.steps))
        return f"@{self.seen} {steps}".rstrip()


@dataclass(slots=True)
class Clocks:
    """The clocks of a tape, told one envelope after another from the first."""

    _known: list[Steps] = field(default_factory=lambda: [{}])
    _own: dict[str, Steps] = field(default_factory=dict)

    def tell(self, envelope: Envelope) -> Clock:
        """The clock of this fact."""
        assert envelope.position == len(self._known), "clocks are told every fact, in order"
        event = envelope.event
        before = self._known[-1]
        match event:
            case LearnerJoined() | LearnerLeft() | DeltaOffered():
                seen = min(event.seen, envelope.position - 1)
                steps = dict(self._known[seen])
                _raise_to(steps, self._own.get(event.learner, {}))
                _raise_to(steps, {event.learner: event.learner_step})
                self._own[event.learner] = steps
                known = dict(before)
                _raise_to(known, steps)
                self._known.append(known)
                return Clock(seen, steps)
            case _:
                self._known.append(before)
                return Clock(envelope.position - 1, before)


def _raise_to(steps: dict[str, int], others: Steps) -> None:
    for name, step in others.items():
        steps[name] = max(step, steps.get(name, 0))
