"""How much of their living time learners spent stepping, from the moments at which steps began.

Pure. Time in which a process was dead, joined, or was stopped by a signal of ours is no living
time. A step takes its pace; what a gap takes beyond the pace is a stall, and is never made good.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

EDGES = (1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""Upper edges of the histogram's bins, in paces; the last bin has none."""

Pauses = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Stepping:
    """What the step records of some learners say; times in seconds."""

    steps: int
    living_seconds: float
    stalled_seconds: float
    longest_gap_seconds: float
    histogram: tuple[int, ...]

    @property
    def share(self) -> float:
        """Part of the living time that was not stalled, 0 to 1; 1 for no time."""
        if self.living_seconds == 0:
            return 1.0
        return 1.0 - self.stalled_seconds / self.living_seconds


def lives_of(entries: Iterable[Mapping[str, object]]) -> list[list[float]]:
    """The moments of each life's steps, in the order of a seat's journal."""
    lives: list[list[float]] = []
    for entry in entries:
        if "life" in entry:
            lives.append([])
        elif "finished" not in entry and "left" not in entry and lives:
            moment = entry["at"]
            assert isinstance(moment, float)
            lives[-1].append(moment)
    return lives


def gaps_of(moments: Sequence[float], pauses: Pauses) -> list[float]:
    """Seconds between the beginnings of steps, without those in which the process was stopped."""
    gaps = []
    for begin, end in itertools.pairwise(moments):
        stopped = sum(max(0.0, min(end, to) - max(begin, since)) for since, to in pauses)
        gaps.append(max(0.0, end - begin - stopped))
    return gaps


def stepping(gaps: Sequence[float], pace_seconds: float) -> Stepping:
    """The account of these gaps."""
    counts = [0] * (len(EDGES) + 1)
    for gap in gaps:
        counts[sum(gap > edge * pace_seconds for edge in EDGES)] += 1
    return Stepping(
        steps=len(gaps),
        living_seconds=sum(gaps),
        stalled_seconds=sum(max(0.0, gap - pace_seconds) for gap in gaps),
        longest_gap_seconds=max(gaps, default=0.0),
        histogram=tuple(counts),
    )


def bins(pace_seconds: float) -> list[str]:
    """What the histogram's bins are called."""
    edges = [f"{edge * pace_seconds:.2f}" for edge in EDGES]
    names = [f"to {edges[0]} s"]
    names += [f"{low} to {high} s" for low, high in itertools.pairwise(edges)]
    return [*names, f"over {edges[-1]} s"]
