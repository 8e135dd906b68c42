"""From results to figures with their errors: means, and differences paired by seed.

Runs of one seed begin with the same parameters, so seeds are blocks: the noise of a difference
of two cases is what is left of (case, seed) after the case's and the seed's means are taken out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replay.study.cases import Case
from replay.study.results import Result

# Two-sided 95 % points of Student's t, by degrees of freedom; more than 30: the normal's.
STUDENT_95 = (
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
    2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09,
    2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04,
)  # fmt: skip
NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over so many seeds; no deviation of fewer than two."""

    mean: float
    deviation: float | None
    seeds: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A case minus another over the seeds that both have, and the standard error of its mean."""

    mean: float
    error: float | None
    seeds: int


@dataclass(frozen=True, slots=True)
class Noise:
    """The standard error of a difference of two cases of a part, and its 95 % reach."""

    error: float
    freedom: int

    @property
    def reach(self) -> float:
        """A difference below this may well be chance."""
        return student_95(self.freedom) * self.error


def student_95(freedom: int) -> float:
    """The two-sided 95 % point of Student's t."""
    assert freedom >= 1
    return STUDENT_95[freedom - 1] if freedom <= len(STUDENT_95) else NORMAL_95


def spread_of(values: Sequence[float]) -> Spread:
    """Mean and sample deviation."""
    return Spread(statistics.fmean(values), _deviation(values), len(values))


class Summary:
    """Results by case and seed. The newest of a case and seed counts."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._by_case: dict[str, dict[int, Result]] = {}
        for result in results:
            self._by_case.setdefault(result.case, {})[result.seed] = result

    def has(self, case: Case) -> bool:
        """Whether any seed of it is there."""
        return case.name in self._by_case

    def of(self, case: Case) -> list[Result]:
        """The case's results in order of seed."""
        found: Mapping[int, Result] = self._by_case.get(case.name, {})
        return [found[seed] for seed in sorted(found)]

    def spread(self, case: Case, what: str = "loss") -> Spread:
        """Mean and deviation over seeds of a field of the results."""
        return spread_of([float(getattr(result, what)) for result in self.of(case)])

    def difference(self, case: Case, other: Case) -> Difference | None:
        """The loss of `case` minus that of `other`, paired by seed; None without a pair."""
        ours, theirs = self._by_case.get(case.name, {}), self._by_case.get(other.name, {})
        pairs = [ours[seed].loss - theirs[seed].loss for seed in sorted(ours) if seed in theirs]
        if not pairs:
            return None
        deviation = _deviation(pairs)
        error = None if deviation is None else deviation / math.sqrt(len(pairs))
        return Difference(statistics.fmean(pairs), error, len(pairs))

    def noise(self, cases: Sequence[Case]) -> Noise | None:
        """Of these cases' differences: residuals of case and seed, over the seeds all have."""
        rows = [self._by_case[case.name] for case in cases if self.has(case)]
        if not rows:
            return None
        seeds = [seed for seed in sorted(rows[0]) if all(seed in row for row in rows)]
        freedom = (len(rows) - 1) * (len(seeds) - 1)
        if freedom < 1:
            return None
        losses = [[row[seed].loss for seed in seeds] for row in rows]
        of_case = [statistics.fmean(row) for row in losses]
        of_seed = [statistics.fmean(column) for column in zip(*losses, strict=True)]
        whole = statistics.fmean(of_case)
        squares = math.fsum(
            (loss - of_case[one] - of_seed[other] + whole) ** 2
            for one, row in enumerate(losses)
            for other, loss in enumerate(row)
        )
        return Noise(math.sqrt(2 * squares / freedom / len(seeds)), freedom)


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
