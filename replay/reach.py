"""How far back the bytes of a run are kept: its newest horizon, and what is kept below. Pure.

Facts are never let go of: chain, fold and every count go back to the first fact all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from replay.errors import BeyondHorizon
from streams.envelope import Envelope
from streams.events import HorizonRaised


@dataclass(frozen=True, slots=True)
class Reach:
    """Facts up to `position` have no bytes any more, but for the first one and the `kept` ones.

    `raised_at` is the position of the fact that says so; 0 where all bytes are kept.
    """

    position: int = 0
    raised_at: int = 0
    kept: frozenset[int] = frozenset()

    def then(self, envelope: Envelope) -> Reach:
        """The reach after one more fact."""
        event = envelope.event
        if type(event) is not HorizonRaised:  # asked of every fact: pydantic's isinstance is slow
            return self
        return Reach(event.position, envelope.position, frozenset(event.kept))

    def is_whole(self, position: int) -> bool:
        """Whether all that a fact there needs is kept: its bytes, and those it was made from."""
        return position > self.position or position == 1

    def has(self, position: int) -> bool:
        """Whether the bytes are kept that a fact there names."""
        return self.is_whole(position) or position in self.kept

    def beyond(self, run: str, what: str) -> BeyondHorizon:
        """The failure of asking for bytes that were let go of."""
        return BeyondHorizon(
            f"run {run}: {what} lies beyond the horizon: bytes up to position {self.position} were "
            f"let go of at position {self.raised_at}. Ask for position {self.position} or later, "
            "or name a store that still has them with --store"
        )


EVERYTHING = Reach()


def reach_of(envelopes: Iterable[Envelope]) -> Reach:
    """How far back bytes are kept at the end of a tape."""
    reach = EVERYTHING
    for envelope in envelopes:
        reach = reach.then(envelope)
    return reach
