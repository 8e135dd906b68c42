"""A learner's stretches as a function of time: seconds stepped up to a moment, and its inverse."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from replay.goodput.learner import Stretches


class Timeline:
    """Asked for moments in any order; each answer costs one binary search."""

    def __init__(self, stretches: Stretches) -> None:
        self._begins, self._ends = stretches.begins, stretches.ends
        self._shares = stretches.shares
        lengths = [end - begin for begin, end in zip(self._begins, self._ends, strict=True)]
        self._stepped = [0.0, *accumulate(lengths)]
        work = (length * share for length, share in zip(lengths, self._shares, strict=True))
        self._worked = [0.0, *accumulate(work)]

    def stepped_until(self, moment: float) -> float:
        """Seconds of stepping before this moment."""
        return self._until(moment, self._stepped, weighted=False)

    def worked_until(self, moment: float) -> float:
        """The same, each second by the share of slices that took part."""
        return self._until(moment, self._worked, weighted=True)

    def moment_of(self, stepped_seconds: float) -> float:
        """When so many seconds have been stepped; infinity when the life is too short."""
        index = bisect_right(self._stepped, stepped_seconds) - 1
        if index >= len(self._begins):
            ends = self._ends[-1] if self._ends else 0.0
            return ends if stepped_seconds == self._stepped[-1] else float("inf")
        return self._begins[index] + (stepped_seconds - self._stepped[index])

    def _until(self, moment: float, sums: list[float], weighted: bool) -> float:
        index = bisect_right(self._begins, moment) - 1
        if index < 0:
            return 0.0
        inside = min(moment, self._ends[index]) - self._begins[index]
        return sums[index] + inside * (self._shares[index] if weighted else 1.0)
