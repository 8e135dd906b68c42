"""Moments in order: what happens next, and when. Knows no clock but its own, and draws nothing.

Two things at one moment happen in the order in which they were asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

Happen = Callable[[], None]

MOMENTS_MAX = 5_000_000  # a world that goes on for longer is stuck in a circle


class Heap:
    """The world's only clock, in seconds from its beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self._moments: list[tuple[float, int, Happen]] = []
        self._count = 0
        self._is_stirred = False

    def stir(self) -> None:
        """Something has changed that `run` may be waiting for."""
        self._is_stirred = True

    def later(self, seconds: float, happen: Happen) -> None:
        """Lets something happen so many seconds from now."""
        assert seconds >= 0.0, seconds
        self._count += 1
        heapq.heappush(self._moments, (self.now + seconds, self._count, happen))

    def run(self, until: Callable[[], bool], seconds_max: float) -> bool:
        """Goes on until something holds, at most so many seconds; whether it holds.

        It is looked at first, last, and after each moment that has stirred.
        """
        end, moments, next_of = self.now + seconds_max, self._moments, heapq.heappop
        self._is_stirred = True
        while True:
            if self._is_stirred:
                self._is_stirred = False
                if until():
                    return True
            if not moments or moments[0][0] > end:
                self.now = end
                return until()
            assert self._count < MOMENTS_MAX, "this world never comes to rest"
            self.now, _, happen = next_of(moments)
            happen()
