"""How many extra learners there are at which time, and when each of them is there. Pure.

One availability drives `replay goodput --scavenge` and `decodiloco up --spot`. It must not know
processes, nor what learners do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Availability:
    """Extra learners as a step function that repeats: `spans` of (seconds, learners)."""

    spans: tuple[tuple[float, float], ...]

    def forever(self) -> Iterator[tuple[float, float]]:
        """The spans, again and again."""
        assert sum(length for length, _ in self.spans) > 0.0
        while True:
            yield from self.spans

    @property
    def most(self) -> int:
        """The most learners of any span, parts of a learner rounded."""
        return max(round(learners) for _, learners in self.spans)

    def stays(self, seat: int) -> Iterator[tuple[float, float]]:
        """From when to when the learner of this seat (0 is the first) is there, in seconds.

        Of several, those that came last leave first. A span that goes on in the next one is one
        stay; whoever is in all of them stays for ever.
        """
        there = [round(learners) > seat for _, learners in self.spans]
        if all(there) or not any(there):
            if all(there):
                yield 0.0, math.inf
            return
        now, begun = 0.0, None
        for length, learners in self.forever():
            if round(learners) > seat:
                begun = now if begun is None else begun
            elif begun is not None:
                yield begun, now
                begun = None
            now += length
