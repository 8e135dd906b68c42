"""Results of the study as they might be, for the tests of what is made of them."""

from __future__ import annotations

from collections.abc import Sequence

from replay.study.cases import Case, cases_of
from replay.study.results import Result


def result(case: Case, seed: int, loss: float) -> Result:
    """A result with this loss."""
    return Result(
        case=case.name,
        seed=seed,
        loss=loss,
        losses=((0.0, 5.5), (0.5, 2.5), (1.0, loss)),
        merges=258,
        versions=43.0,
        tokens=1_050_000,
        elapsed_steps=500.0,
        goodput=99.0,
        per_merge=3.9,
        steps_between=12.0,
        merged=88.0,
        lives=case.learners,
        cpu_seconds=20.0,
    )


def all_results(seeds: int, parts: Sequence[str] = ()) -> list[Result]:
    """A result for every case and seed; losses differ in a regular way."""
    return [
        result(case, seed, 2.0 + 0.001 * number + 0.01 * seed + 0.0001 * (number * seed % 7))
        for number, case in enumerate(cases_of(parts))
        for seed in range(seeds)
    ]
