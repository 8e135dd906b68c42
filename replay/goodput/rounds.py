"""The rounds of the method on top of lives: who is in each merge, what is overwritten, who waits.

The rule is that of the protocol page (rounds opened at the pace of the median learner, a quorum,
a grace window, at most `overlap` open at once), told again in a few lines over moments; the
machines themselves run in the seeded world. Failures keep the moments they have in the lives.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from replay.goodput.learner import Lived
from replay.goodput.settings import Scenario
from replay.goodput.trainee import Trainee

STEP, OFFER, CLOSE, READY, WAKE = range(5)  # also the order of things at one moment
UPLOAD_MARGIN = 1.1


@dataclass(frozen=True, slots=True)
class RoundsOutcome:
    """What the rounds came to. Token shares (merged, overwritten, left out, open) add up to 1."""

    opened: int
    merges: int
    contributors: tuple[int, ...]  # merges by number of learners in them, from 0
    weights_effective: float  # mean of (sum w)^2 / sum w^2: learners that really count
    steps_between_versions: float  # what H comes to, in steps of the median learner
    tokens: dict[str, float]
    syncer_wait: float  # share of all time that learners stood still for want of a merge

    @property
    def contributors_mean(self) -> float:
        """Learners in a merge, on average."""
        total = sum(count * times for count, times in enumerate(self.contributors))
        return total / max(1, self.merges)


@dataclass(slots=True)
class _Round:
    fragment: int
    opened: float
    in_time: list[int] = field(default_factory=list)
    closed: bool = False


def run_rounds(
    scenario: Scenario,
    lives: Sequence[Lived],
    until_seconds: float,
    steps: Sequence[Iterator[float]],
    syncer: Iterator[float],
) -> RoundsOutcome:
    """Runs the rounds from 0 to `until_seconds`; `steps` and `syncer` are uniform draws."""
    world = _World(scenario, lives, until_seconds, steps, syncer)
    world.run()
    return world.told()


class _World:
    def __init__(
        self,
        scenario: Scenario,
        lives: Sequence[Lived],
        until: float,
        steps: Sequence[Iterator[float]],
        syncer: Iterator[float],
    ) -> None:
        self.sync, self.until = scenario.sync, until
        self.step_seconds = sorted(scenario.step_seconds(m) for m in range(len(lives)))[
            (len(lives) - 1) // 2
        ]
        self.pace = self.sync.inner_steps / self.sync.fragments
        self.learners = [
            Trainee(life.stretches, scenario.step_seconds(m), self.sync, draws)
            for m, (life, draws) in enumerate(zip(lives, steps, strict=True))
        ]
        self.outages = _outages(self.sync.syncer_mtbf_hours, self.sync.failover_seconds, until,
                                syncer)  # fmt: skip
        self.moments: list[tuple[float, int, int, int]] = []
        self.rounds: list[_Round] = []
        self.unmerged: list[int] = []
        self.busy = [False] * self.sync.fragments
        self.last_opened_steps = -self.pace
        self.contributors = [0] * (len(lives) + 1)
        self.weights = 0.0

    def run(self) -> None:
        """Takes the moments in order of time, then of kind, then of learner or round."""
        for index, learner in enumerate(self.learners):
            self._plan(learner.first_boundary(), STEP, index)
        for _, end in self.outages:
            self._plan(end, WAKE, 0)
        while self.moments and self.moments[0][0] < self.until:
            now, kind, one, other = heappop(self.moments)
            if kind == STEP:
                self._boundary(now, one)
            elif kind == OFFER:
                self._offered(now, one, other)
            elif kind == CLOSE:
                self._close(now, one)
            elif kind == READY:
                self._ready(now, one)
            else:
                self._open(now)

    def told(self) -> RoundsOutcome:
        """The sums, once all is over."""
        merges = sum(self.contributors)
        tokens = dict.fromkeys(("merged", "overwritten", "left_out", "open"), 0.0)
        for learner in self.learners:
            for kind, amount in learner.fates().items():
                tokens[kind] += amount
        trained = sum(tokens.values())
        shares = {kind: amount / trained if trained else 0.0 for kind, amount in tokens.items()}
        waited = sum(learner.waited for learner in self.learners)
        steps = self._median_steps()
        return RoundsOutcome(
            opened=len(self.rounds),
            merges=merges,
            contributors=tuple(self.contributors),
            weights_effective=self.weights / max(1, merges),
            steps_between_versions=steps * self.sync.fragments / max(1, merges),
            tokens=shares,
            syncer_wait=waited / (self.until * len(self.learners)),
        )

    def _boundary(self, now: float, one: int) -> None:
        """A learner between two steps: it adopts, answers what is open, and goes on or waits."""
        learner = self.learners[one]
        learner.arrive(now)
        for number in learner.unanswered(self.unmerged):
            self._answer(now, one, number)
        self._open(now)
        self._go_on(now, one)

    def _go_on(self, now: float, one: int) -> None:
        boundary = self.learners[one].next_boundary(now)
        if boundary is not None:
            self._plan(boundary, STEP, one)

    def _open(self, now: float) -> None:
        """Opens the next round when it is due, the overlap allows it, and the syncer is up."""
        steps = self._median_steps()
        fragment = len(self.rounds) % self.sync.fragments
        if (
            steps - self.last_opened_steps < self.pace - 1e-9
            or len(self.unmerged) >= self.sync.overlap
            or self.busy[fragment]
            or self._up_again(now) > now
        ):
            return
        late = steps - self.last_opened_steps >= 2 * self.pace
        self.last_opened_steps = steps if late else self.last_opened_steps + self.pace
        number = len(self.rounds)
        self.rounds.append(_Round(fragment, now))
        self.unmerged.append(number)
        self.busy[fragment] = True
        for one, learner in enumerate(self.learners):
            if self.sync.answer_while_paused or learner.is_stepping(now):
                self._answer(now, one, number)

    def _answer(self, now: float, one: int, number: int) -> None:
        if self.learners[one].copy(number, self.rounds[number].fragment):
            self._plan(now + self.sync.upload_seconds, OFFER, one, number)

    def _offered(self, now: float, one: int, number: int) -> None:
        """An offer is there: it counts for its round while that is open, else rides along."""
        learner, told = self.learners[one], self.rounds[number]
        learner.offered(number, told.fragment)
        if told.closed:
            return
        told.in_time.append(one)
        if len(told.in_time) >= self.sync.quorum:
            live = sum(each.is_stepping(now) for each in self.learners)
            all_in = len(told.in_time) >= live
            if len(told.in_time) == self.sync.quorum and not all_in:
                self._plan(self._up_again(self._deadline(now, told)), CLOSE, number)
            elif all_in:
                self._plan(self._up_again(now), CLOSE, number)

    def _deadline(self, now: float, told: _Round) -> float:
        """The end of the grace window: gamma of the slack, at most a step (paper Eq. 3)."""
        sync = self.sync
        if sync.gamma == 0.0:
            return now
        due = sync.overlap * self.pace * self.step_seconds
        slack = due - (now - told.opened + sync.merge_seconds + sync.fetch_seconds)
        grace = min(sync.gamma * max(0.0, slack), self.step_seconds)
        healthy = told.opened + self.step_seconds + UPLOAD_MARGIN * sync.upload_seconds
        return max(now + grace, healthy)

    def _close(self, now: float, number: int) -> None:
        told = self.rounds[number]
        if told.closed:
            return
        told.closed = True
        weights = [learner.merge(told.fragment) for learner in self.learners]
        given = [weight for weight in weights if weight > 0.0]
        self.contributors[len(given)] += 1
        self.weights += sum(given) ** 2 / sum(weight * weight for weight in given)
        merged = self._after_outages(now, self.sync.merge_seconds)
        self._plan(merged + self.sync.fetch_seconds, READY, number)

    def _ready(self, now: float, number: int) -> None:
        """The merged fragment has reached the learners; who waited for one goes on."""
        told = self.rounds[number]
        self.unmerged.remove(number)
        self.busy[told.fragment] = False
        for one, learner in enumerate(self.learners):
            if learner.hand(told.fragment, now):
                self._go_on(now, one)
        self._open(now)

    def _median_steps(self) -> float:
        steps = sorted(learner.steps for learner in self.learners)
        return steps[len(steps) // 2]

    def _up_again(self, moment: float) -> float:
        index = bisect_right(self.outages, (moment, math.inf)) - 1
        return max(moment, self.outages[index][1]) if index >= 0 else moment

    def _after_outages(self, begin: float, length: float) -> float:
        """When a merge that begins now is done: one that an outage cuts is made again."""
        index = bisect_right(self.outages, (begin, math.inf))
        while index < len(self.outages) and self.outages[index][0] < begin + length:
            begin = self.outages[index][1]
            index += 1
        return begin + length

    def _plan(self, moment: float, kind: int, one: int, other: int = 0) -> None:
        heappush(self.moments, (moment, kind, one, other))


def _outages(
    mtbf_hours: float, failover_seconds: float, until: float, draws: Iterator[float]
) -> list[tuple[float, float]]:
    """When no syncer merges: exponential times between, a fixed failover."""
    found: list[tuple[float, float]] = []
    now = 0.0
    while mtbf_hours > 0.0 and now < until:
        now += -math.log1p(-next(draws)) * mtbf_hours * 3600.0
        found.append((now, now + failover_seconds))
        now += failover_seconds
    return found
