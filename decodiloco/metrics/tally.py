"""Counts and histograms by name and labels, as they grow. Pure; knows no metric by name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

Labels = tuple[str, ...]
Values = dict[str, dict[Labels, float]]


@dataclass(slots=True)
class Histogram:
    """How often a value fell below each bound; values above the last count in `sum` and `count`."""

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Histogram:
        return cls(bounds, [0] * (len(bounds) + 1))

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Pairs of a bound, as text, and the number of values at most as large."""
        total = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            total += count
            yield ("+Inf" if bound is None else repr(bound)), total


@dataclass(slots=True)
class Tally:
    """Counters that only grow."""

    counts: Values = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        """Counts something under its labels."""
        counts = self.counts.setdefault(name, {})
        counts[labels] = counts.get(labels, 0) + by

    def observe(self, name: str, value: float, bounds: tuple[float, ...]) -> None:
        """Puts a value into the histogram of this name."""
        if name not in self.histograms:
            self.histograms[name] = Histogram.empty(bounds)
        self.histograms[name].observe(value)
