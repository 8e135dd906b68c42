"""Laws of growth, fitted to measured points: sums of products of sizes, none below zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Point = dict[str, float]
Term = Callable[[Mapping[str, float]], float]

TERMS: Mapping[str, Term] = {
    "1": lambda at: 1.0,
    "M": lambda at: at["learners"],
    "P": lambda at: at["fragments"],
    "M P": lambda at: at["learners"] * at["fragments"],
    "M/P": lambda at: at["learners"] / at["fragments"],
    "n": lambda at: at["parameters"],
    "K n": lambda at: at["learners"] * at["parameters"],
}
"""M learners, P fragments, K deltas of a merge, n parameters of a fragment."""


@dataclass(frozen=True, slots=True)
class Law:
    """What a figure comes to at any size, as far as the measured ones tell.

    `residual`: the largest share by which it misses a point that it was fitted to.
    """

    factors: Mapping[str, float]
    residual: float

    def __call__(self, at: Mapping[str, float]) -> float:
        return sum(factor * TERMS[name](at) for name, factor in self.factors.items())


def law_of(points: Sequence[Point], figure: str, terms: Sequence[str]) -> Law:
    """Least squares of the relative error, so that small sizes count as much as large ones.

    A term whose factor comes out below zero is left out, the most negative first: what costs
    nothing cannot pay back.
    """
    assert len(points) > len(terms)
    values = np.array([point[figure] for point in points])
    rows = np.array([[TERMS[term](point) for term in terms] for point in points])
    scale = rows.max(axis=0)
    found, *_ = np.linalg.lstsq(rows / scale / values[:, None], np.ones(len(points)), rcond=None)
    worst = int(found.argmin())
    if found[worst] < 0.0:
        return law_of(points, figure, [term for term in terms if term != terms[worst]])
    misses = np.abs(rows @ (found / scale) / values - 1.0)
    return Law(dict(zip(terms, (found / scale).tolist(), strict=True)), float(misses.max()))


def exponent_of(points: Sequence[Point], size: str, figure: Callable[[Point], float]) -> float:
    """The power with which a figure grows with a size, least squares in logarithms."""
    x = [math.log(point[size]) for point in points]
    y = [math.log(figure(point)) for point in points]
    return float(np.polyfit(x, y, 1)[0])
