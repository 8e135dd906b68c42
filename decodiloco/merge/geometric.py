"""Weighted geometric median: the point whose weighted distances to all deltas add up to least.

    z = argmin sum_k w_k ||c_k Delta_k - z||

Half of the weight must lie to move it out of reach of the rest (Pillutla et al. 2022, "Robust
Aggregation for Federated Learning"). Each step of Weiszfeld's is a weighted mean, z = sum a_k c_k
Delta_k, so a pass for the products of all pairs tells everything: steps are taken on a few
numbers, and a second pass adds up. Knows sums and chunks; no stores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from decodiloco.merge.exact import CHUNK_ELEMENTS, DotSum, Floats, Wide, rounded, tree_sum

STEPS = 32
NEAREST = 2.0**-20  # of the longest delta: who is nearer to the median pulls no harder

Gram = tuple[tuple[float, ...], ...]


def gram_of(streams: Sequence[Iterator[Floats]], elements: int) -> Gram:
    """<Delta_j, Delta_k> for j >= k, a row a contribution.

    Each stream gives one delta's elements in chunks of CHUNK_ELEMENTS, the last shorter.
    """
    sums = [[DotSum() for _ in range(row + 1)] for row in range(len(streams))]
    scratch = np.empty(CHUNK_ELEMENTS)
    with np.errstate(all="ignore"):  # what is not finite shows in the sums of squares
        for _ in range(0, elements, CHUNK_ELEMENTS):
            parts = [next(stream) for stream in streams]
            for row, dots in enumerate(sums):
                for column, dot in enumerate(dots):
                    dot.add_products(parts[row], parts[column], scratch)
    return tuple(tuple(dot.total() for dot in dots) for dots in sums)


def median_scales(
    weights: Sequence[float], clips: Sequence[float], gram: Gram
) -> tuple[float, ...]:
    """s_k of Merge = sum_k s_k Delta_k: f32(a_k c_k), with a_k from 32 of Weiszfeld's steps.

    Each step takes a_k ~ w_k / ||c_k Delta_k - z||, with sum(a) = 1; the first a is w. All is in
    float64, each sum a fixed tree. Where the products are not finite, the header's lie or the
    delta's fault is found in the pass that follows.
    """
    count = len(weights)
    products = np.zeros((count, count))
    for row in range(count):
        for column in range(row + 1):
            value = clips[row] * clips[column] * gram[row][column]
            products[row, column] = products[column, row] = value
    squares = [float(products[k, k]) for k in range(count)]
    longest = max(squares)
    shares = np.array(weights)
    if np.isfinite(products).all() and longest > 0.0:
        for _ in range(STEPS):
            shares = _step(shares, weights, products, squares, longest * NEAREST**2)
    return tuple(rounded(float(a) * clip) for a, clip in zip(shares, clips, strict=True))


def _step(
    shares: Wide, weights: Sequence[float], products: Wide, squares: Sequence[float], least: float
) -> Wide:
    along = np.array([tree_sum(row * shares) for row in products])
    own = tree_sum(shares * along)
    pulls = np.array(
        [
            weight / math.sqrt(max(square - 2.0 * float(dot) + own, least))
            for weight, square, dot in zip(weights, squares, along, strict=True)
        ]
    )
    return pulls / tree_sum(pulls)
