"""When one learner steps, with which share of its slices, and where its lives begin and end.

Pure arithmetic on stretches of stepping; knows neither runs nor tapes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Literal

from decodiloco.local.availability import Availability
from replay.goodput.learner import Lived, Stretches

TOUCHING = 1e-9  # stretches that are nearer than so many seconds have no pause between them


@dataclass(frozen=True, slots=True)
class Life:
    """From when to when a learner's process is there, and how it ends.

    `killed`: without a word, all slices are gone. `preempted`: it is told, and says so. `never`:
    it is there to the end of the run.
    """

    begins_seconds: float
    ends_seconds: float
    ends: Literal["killed", "preempted", "never"]


class Schedule:
    """One learner's lives, and its stretches of stepping within them.

    A step needs its whole length of stepping: what a pause cuts goes on after it.
    """

    def __init__(self, stretches: Stretches, lives: Sequence[Life]) -> None:
        self.lives = tuple(lives)
        self._begins, self._ends = stretches.begins, stretches.ends
        self._shares = stretches.shares
        lengths = [end - begin for begin, end in zip(self._begins, self._ends, strict=True)]
        self._stepped = [0.0, *accumulate(lengths)]
        work = (length * share for length, share in zip(lengths, self._shares, strict=True))
        self._worked = [0.0, *accumulate(work)]

    def step_end(self, begin_seconds: float, length_seconds: float) -> float:
        """When a step that begins at this moment is done; infinity when it never is."""
        wanted = self._until(begin_seconds, self._stepped, weighted=False) + length_seconds
        index = bisect_left(self._stepped, wanted - TOUCHING) - 1
        if index >= len(self._begins):
            return math.inf
        return max(begin_seconds, self._begins[index] + (wanted - self._stepped[index]))

    def share_between(self, begin_seconds: float, end_seconds: float) -> float:
        """The mean share of slices that took part in the stepping between two moments, 0 to 1."""
        span = (begin_seconds, end_seconds)
        begin, end = (self._until(moment, self._stepped, weighted=False) for moment in span)
        if end <= begin:
            return 1.0
        first, last = (self._until(moment, self._worked, weighted=True) for moment in span)
        return min(1.0, (last - first) / (end - begin))

    def resumes_at(self, moment_seconds: float) -> float:
        """This moment when the learner steps, else the end of its pause (infinity: none)."""
        index = bisect_right(self._begins, moment_seconds) - 1
        if index >= 0 and moment_seconds < self._ends[index]:
            return moment_seconds
        return self._begins[index + 1] if index + 1 < len(self._begins) else math.inf

    def _until(self, moment: float, sums: list[float], weighted: bool) -> float:
        index = bisect_right(self._begins, moment) - 1
        if index < 0:
            return 0.0
        inside = min(moment, self._ends[index]) - self._begins[index]
        return sums[index] + inside * (self._shares[index] if weighted else 1.0)


def undisturbed() -> Schedule:
    """A learner whose machines never fail."""
    return Schedule(Stretches([0.0], [math.inf], [1.0]), [Life(0.0, math.inf, "never")])


def under_failures(lived: Lived) -> Schedule:
    """A learner of the goodput model: a pause is a life that waits, an outage ends a life.

    It comes back as a new life when it steps again.
    """
    begins, ends = lived.stretches.begins, lived.stretches.ends
    lives: list[Life] = []
    born = 0.0
    for index in range(1, len(begins)):
        first = bisect_left(lived.outages, ends[index - 1] - TOUCHING)
        if first < len(lived.outages) and lived.outages[first] < begins[index]:
            lives.append(Life(born, ends[index - 1], "killed"))
            born = begins[index]
    return Schedule(lived.stretches, [*lives, Life(born, math.inf, "never")])


def scavenged(availability: Availability, until_seconds: float) -> list[Schedule]:
    """Learners that come and go: each stay is a life, told when it is over."""
    return [
        _there(list(takewhile(lambda stay: stay[0] < until_seconds, availability.stays(seat))))
        for seat in range(availability.most)
    ]


def _there(stays: Sequence[tuple[float, float]]) -> Schedule:
    stretches = Stretches([a for a, _ in stays], [b for _, b in stays], [1.0] * len(stays))
    return Schedule(stretches, [Life(a, b, _end(b)) for a, b in stays])


def _end(moment: float) -> Literal["preempted", "never"]:
    return "never" if math.isinf(moment) else "preempted"
