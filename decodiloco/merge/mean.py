"""Weighted averaging, the rule of embeddings (paper section D.2). Knows norms, never elements."""

from __future__ import annotations

from collections.abc import Sequence

from decodiloco.merge.exact import rounded


def mean_scales(weights: Sequence[float], clips: Sequence[float]) -> tuple[float, ...]:
    """s_k of Merge = sum_k s_k Delta_k: s_k = float32(w_k c_k).

    `weights` are w_k, the shares as float32 values; `clips` are c_k = min(1, limit / ||Delta_k||).
    Paper section D.2, "direct averaging", with sum(w) = 1 but for rounding.
    """
    return tuple(rounded(weight * clip) for weight, clip in zip(weights, clips, strict=True))
