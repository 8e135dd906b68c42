"""One learner's life under failures: when it steps, with how many slices, and what else it does.

Time is cut by failures, not by chips or steps: the failures of n chips are one Poisson process
of rate n / MTBI (superposition), and a failure that hits a slice which is away already is thinned
out, so the cost of a life goes with its failures. Uniform draws come from outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from replay.goodput.returns import returns_of
from replay.goodput.settings import Scenario

CLASSES = (
    "useful",  # steps that count, by the share of slices that took part
    "missing",  # slices away while the others step
    "lost_step",  # the step in which a chip failed, where it is lost
    "detection",  # until a failure is noticed
    "down_scale",  # to go on without a slice
    "up_scale",  # to take slices back in
    "waiting",  # for slices to come back
    "restart",  # to start again, not elastic
)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Times of stepping without a pause, and the share of slices that take part; equal lengths.

    Plain lists: a life of 2.4 million chips has hundreds of thousands of them.
    """

    begins: list[float]
    ends: list[float]
    shares: list[float]


@dataclass(frozen=True, slots=True)
class Lived:
    """A whole life: seconds by class (they add up to its length), its stretches, its failures.

    `outages` are the moments from which it had no slice, or waited for all to start again.
    """

    seconds: dict[str, float]
    stretches: Stretches
    failures: int
    outages: list[float]


def live(
    scenario: Scenario, learner: int, until_seconds: float, uniforms: Iterator[float]
) -> Lived:
    """The life of one learner from 0 to `until_seconds`, all slices there at the start."""
    life = _Life(scenario, learner, until_seconds, uniforms)
    while life.now < until_seconds:
        life.go_on()
    return Lived(life.seconds, life.stretches, life.failures, life.outages)


class _Life:
    """The state of a life and its moves; `gap` is the hazard left until the next failure, in s."""

    def __init__(
        self, scenario: Scenario, learner: int, until: float, uniforms: Iterator[float]
    ) -> None:
        law, costs = scenario.failures, scenario.costs
        self.until, self.uniforms, self.costs = until, uniforms, costs
        self.returns = returns_of(law.return_seconds, law.return_a, law.return_c)
        self.rate = scenario.failures_per_second()
        self.slices = scenario.slices()
        self.step = scenario.step_seconds(learner)
        self.elastic = scenario.cluster.elastic
        self.on_wall = law.clock == "wall"
        self.keeps = costs.failing_step == "kept"
        self.seconds = dict.fromkeys(CLASSES, 0.0)
        self.stretches = Stretches([], [], [])
        self.outages: list[float] = []
        self.away: list[float] = []  # heap of the moments at which slices are back
        self.now = 0.0
        self.failures = 0
        self.gap = self._next_gap()

    def go_on(self) -> None:
        """One move: wait for slices, take them back in, or step until something happens."""
        if self.away and not self.elastic:
            self._restart()
        elif len(self.away) >= self.slices and self.away[0] > self.now:
            self._pause("waiting", self.away[0] - self.now)
        elif self.away and self.away[0] <= self.now:
            self._grow()
        else:
            self._train()

    def _train(self) -> None:
        """Steps until a slice is back, a chip has failed, or the end."""
        step, now = self.step, self.now
        whole = self.gap // step  # steps that no failure touches
        wanted = math.ceil((self.until - now) / step)
        if self.away:
            wanted = min(wanted, max(1, math.ceil((self.away[0] - now) / step)))
        share = 1.0 - len(self.away) / self.slices
        if wanted <= whole:
            self.gap -= wanted * step
            self._stretch(wanted * step, 0.0, share)
            return
        # The step in which the failure strikes runs to its end; whoever fails in it leaves then.
        length = (whole + 1) * step
        self.gap -= length
        end = now + length
        fell = False
        while self.gap <= 0.0:
            fell = self._strike(end) or fell
            self.gap += self._next_gap()
        self._stretch(length, 0.0 if self.keeps or not fell else step, share)
        if fell and self.elastic:
            self._shrink()

    def _stretch(self, length: float, lost: float, share: float) -> None:
        """Books stepping time, cut at the end of the life."""
        begin, end = self.now, min(self.now + length, self.until)
        kept = max(0.0, min(end, begin + length - lost) - begin)
        self.seconds["useful"] += kept * share
        self.seconds["lost_step"] += (end - begin - kept) * share
        self.seconds["missing"] += (end - begin) * (1.0 - share)
        self.stretches.begins.append(begin)
        self.stretches.ends.append(end)
        self.stretches.shares.append(share)
        self.now = end

    def _shrink(self) -> None:
        """Goes on without the fallen slices; a failure meanwhile begins it again."""
        while self.now < self.until:
            if self._pause("detection", self.costs.detection_seconds) and self._pause(
                "down_scale", self.costs.down_seconds
            ):
                return

    def _grow(self) -> None:
        """Takes back every slice that is there when the reconfiguration ends."""
        if self._pause("up_scale", self.costs.up_seconds):
            while self.away and self.away[0] <= self.now:
                heappop(self.away)
        elif self.now < self.until:
            self._shrink()

    def _restart(self) -> None:
        """Not elastic: waits for every slice, then starts again; a failure begins it again."""
        while self.now < self.until:
            if not self._pause("detection", self.costs.detection_seconds):
                continue
            back = max(self.away, default=self.now)
            if not self._pause("waiting", max(0.0, back - self.now)):
                continue
            if self._pause("restart", self.costs.restart_seconds):
                self.away.clear()
                return

    def _pause(self, kind: str, length: float) -> bool:
        """Spends time without stepping; False when a failure cut it short (wall clock only)."""
        if kind in ("waiting", "restart"):
            self.outages.append(self.now)
        while self.on_wall and self.gap < length and self.now < self.until:
            length -= self.gap
            self._spend(kind, self.gap)
            fell = self._strike(self.now)
            self.gap = self._next_gap()
            if fell:
                return False
        if self.on_wall:
            self.gap -= length
        self._spend(kind, length)
        return True

    def _spend(self, kind: str, length: float) -> None:
        end = min(self.now + length, self.until)
        self.seconds[kind] += end - self.now
        self.now = end

    def _strike(self, at: float) -> bool:
        """A failure of the whole cluster's process: does it hit a slice that is there?"""
        if not self.elastic:  # slices that are back wait for the others, and can fail again
            while self.away and self.away[0] <= at:
                heappop(self.away)
        if self.away and next(self.uniforms) * self.slices < len(self.away):
            return False
        heappush(self.away, at + self.returns.delay_seconds(next(self.uniforms)))
        self.failures += 1
        return True

    def _next_gap(self) -> float:
        return -math.log1p(-next(self.uniforms)) / self.rate
