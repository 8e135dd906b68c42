"""Radial-directional averaging (paper section D.2). Knows norms, never elements.

    Merge = ( sum_k w_k ||Delta_k|| / sum_k w_k ) . phi( sum_k w_k phi(Delta_k) )
    phi(x) = x / ||x||

The norm of the result is the mean of the norms, whatever angles lie between the deltas; a plain
mean would shrink with the angle. (The print in the paper has lost the bars of the first norm.)
"""

from __future__ import annotations

from collections.abc import Sequence

from decodiloco.merge.exact import in_order, rounded

CANCELLED = 2.0**-20


def directional_scales(weights: Sequence[float], norms: Sequence[float]) -> tuple[float, ...]:
    """s_k of the direction D = sum_k s_k Delta_k: s_k = float32(w_k / ||Delta_k||).

    A delta of norm zero has no direction and gets the scale zero.
    """
    return tuple(
        rounded(weight / norm) if norm else 0.0 for weight, norm in zip(weights, norms, strict=True)
    )


def mean_norm(weights: Sequence[float], norms: Sequence[float], clips: Sequence[float]) -> float:
    """The radial part, sum_k w_k c_k ||Delta_k|| / sum_k w_k, in float64 and in order.

    A clip shortens a delta and leaves its direction alone, so it stands only here.
    """
    lengths = [w * (norm * clip) for w, norm, clip in zip(weights, norms, clips, strict=True)]
    return in_order(lengths) / in_order(weights)


def radial_factor(radial: float, weights: Sequence[float], direction_norm: float) -> float:
    """float32(radial / ||D||), by which D becomes the outer gradient; zero if D has cancelled.

    Each s_k is rounded to 24 bits, so where ||D|| is below 2^-20 of sum(w) rounding, not the
    learners, has chosen the direction. Opposed deltas thus give zeros, never noise at full length.
    """
    if direction_norm <= CANCELLED * in_order(weights):
        return 0.0
    return rounded(radial / direction_norm)
