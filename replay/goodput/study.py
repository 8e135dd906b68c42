"""The model run over seeds, with draws: cells of a table, one cluster, and what goes with it.

Knows the streams of draws; it must not know how results are printed or plotted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from replay.goodput import draws
from replay.goodput.barrier import Barred, barred
from replay.goodput.cluster import Outcome, lives_of, outcome_of
from replay.goodput.paper import CHIPS, TABLE_1
from replay.goodput.rounds import RoundsOutcome, run_rounds
from replay.goodput.settings import DAY_SECONDS, Clock, Scenario
from replay.progress import Tell


@dataclass(frozen=True, slots=True)
class Length:
    """How long and how often: seeds `seed`, `seed + 1`, ... of `days` each."""

    days: float
    seeds: int
    seed: int = 0

    @property
    def seconds(self) -> float:
        """The length of one life."""
        return self.days * DAY_SECONDS

    def each(self) -> range:
        """The seeds."""
        return range(self.seed, self.seed + self.seeds)


@dataclass(frozen=True, slots=True)
class Cell:
    """The outcome of one cluster over seeds, as means in percent."""

    learners: int
    elastic: bool
    chips: int
    clock: Clock
    goodput: float
    uptime: float
    goodput_error: float  # standard error of the mean; 0 with one seed
    badput: dict[str, float]
    up_at_least: tuple[float, ...]
    failures: float


def cell_of(scenario: Scenario, length: Length) -> Cell:
    """Simulates one cluster over the seeds."""
    outcomes = [_outcome(scenario, length.seconds, seed) for seed in length.each()]
    shares = {
        kind: _mean(100.0 * outcome.shares[kind] for outcome in outcomes)
        for kind in outcomes[0].shares
    }
    goodput = shares.pop("useful")
    spread = math.fsum((100.0 * one.goodput - goodput) ** 2 for one in outcomes)
    count = len(outcomes)
    return Cell(
        learners=scenario.cluster.learners,
        elastic=scenario.cluster.elastic,
        chips=scenario.cluster.chips,
        clock=scenario.failures.clock,
        goodput=goodput,
        uptime=_mean(100.0 * one.uptime for one in outcomes),
        goodput_error=math.sqrt(spread / (count * (count - 1))) if count > 1 else 0.0,
        badput=shares,
        up_at_least=tuple(
            _mean(100.0 * one.up_at_least[k] for one in outcomes)
            for k in range(scenario.cluster.learners + 1)
        ),
        failures=_mean(float(one.failures) for one in outcomes),
    )


def table_of(
    scenario: Scenario, clocks: Sequence[Clock], length: Length, tell: Tell
) -> Iterator[Cell]:
    """The 30 cells of the paper's table 1, by each clock; only the cluster varies."""
    done, total = 0, len(clocks) * len(TABLE_1) * len(CHIPS)
    for clock in clocks:
        for row in TABLE_1:
            for chips in CHIPS:
                cell = scenario.with_cell(row.learners, row.elastic, chips).with_clock(clock)
                yield cell_of(cell, length)
                done += 1
                tell(done, total)


@dataclass(frozen=True, slots=True)
class Errors:
    """How far cells are from the paper's table 1, in points."""

    mean: float
    largest: float
    mean_goodput: float
    mean_uptime: float


def errors_of(cells: Iterable[Cell]) -> Errors:
    """Over all cells that the paper has."""
    rows = {(row.learners, row.elastic): row for row in TABLE_1}
    goodput, uptime = [], []
    for cell in cells:
        row = rows[cell.learners, cell.elastic]
        column = CHIPS.index(cell.chips)
        goodput.append(abs(cell.goodput - row.goodput[column]))
        uptime.append(abs(cell.uptime - row.uptime[column]))
    both = [*goodput, *uptime]
    return Errors(_mean(both), max(both), _mean(goodput), _mean(uptime))


def rounds_of(scenario: Scenario, days: float, seed: int) -> RoundsOutcome:
    """The rounds on top of the lives of one seed."""
    seconds, learners = days * DAY_SECONDS, range(scenario.cluster.learners)
    lives = lives_of(scenario, seconds, [draws.uniforms(seed, draws.LIFE, m) for m in learners])
    steps = [draws.uniforms(seed, draws.ROUNDS, m) for m in learners]
    return run_rounds(scenario, lives, seconds, steps, draws.uniforms(seed, draws.SYNCER))


def barrier_of(scenario: Scenario, days: float, seed: int) -> Barred:
    """The same lives with a barrier of K learners every H steps."""
    seconds, learners = days * DAY_SECONDS, range(scenario.cluster.learners)
    lives = lives_of(scenario, seconds, [draws.uniforms(seed, draws.LIFE, m) for m in learners])
    return barred(scenario, lives, seconds, draws.uniforms(seed, draws.BARRIER))


def _outcome(scenario: Scenario, seconds: float, seed: int) -> Outcome:
    learners = range(scenario.cluster.learners)
    streams = [draws.uniforms(seed, draws.LIFE, learner) for learner in learners]
    return outcome_of(lives_of(scenario, seconds, streams), seconds)


def _mean(values: Iterable[float]) -> float:
    told = list(values)
    return math.fsum(told) / len(told)
