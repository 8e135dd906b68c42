"""How fast deltas are merged and stepped, in bytes of deltas read, one thread."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from decodiloco.merge import merge_tensor, outer_step
from tests.bench.figures import Figure, rate_of

ELEMENTS = 1 << 20
LEARNERS = 4


def figures() -> Iterator[Figure]:
    """One figure a rule, and the outer step."""
    draw = np.random.default_rng(0)
    deltas = [draw.standard_normal(ELEMENTS).astype(np.float32) for _ in range(LEARNERS)]
    weights = [1 / LEARNERS] * LEARNERS
    size_megabytes = LEARNERS * ELEMENTS * 4 / 1e6
    yield rate_of(
        "merge: radial, 4 learners of 1 M elements",
        "MB/s",
        size_megabytes,
        lambda: merge_tensor(deltas, weights, rule="radial"),
    )
    yield rate_of(
        "merge: mean, 4 learners of 1 M elements",
        "MB/s",
        size_megabytes,
        lambda: merge_tensor(deltas, weights, rule="mean"),
    )
    yield rate_of(
        "merge: outer step of 1 M elements",
        "MB/s",
        size_megabytes / LEARNERS,
        lambda: outer_step(deltas[0], deltas[1], deltas[2], lr=0.7, mu=0.9),
    )
