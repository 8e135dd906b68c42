"""Coordinate-wise trimmed mean, weighted: the extremes of each number are left out of its mean.

Of n deltas, t = (n + 1) // 4 smallest and t largest values of each coordinate go, whatever their
weight, and the rest is averaged by weight. So with up to t arbitrary deltas each number lies
between the smallest and the largest of the others (Yin et al. 2018, "Byzantine-Robust Distributed
Learning", with weights on what remains). Knows chunks; no stores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decodiloco.merge.exact import BLOCK_ELEMENTS, CHUNK_ELEMENTS, Floats, SquareSum, rounded

TABLE_ELEMENTS = 64 * BLOCK_ELEMENTS  # values that are sorted at once, over all contributions


def trimmed_count(deltas: int) -> int:
    """How many values go from each end: none of one or two, one of three to six."""
    return (deltas + 1) // 4


class TrimmedSum:
    """The trimmed mean of contributions, one chunk of a tensor at a time.

    v_k = f32(c_k x_k) are sorted for each coordinate, equal ones in the order of the
    contributions; then f32( sum w_k v_k / sum w_k ) over the middle ones, in that order, each
    product exact in float64. w_k and c_k are float32 values.
    """

    __slots__ = ("_clips", "_columns", "_scratch", "_weights")

    def __init__(self, weights: Sequence[float], clips: Sequence[float]) -> None:
        assert weights and all(weight == rounded(weight) for weight in weights)
        self._weights = np.array(weights)
        self._clips = tuple(rounded(clip) for clip in clips)
        self._columns = max(1, TABLE_ELEMENTS // len(weights))
        self._scratch = np.empty(CHUNK_ELEMENTS)

    def chunk(self, parts: Sequence[Floats], squares: Sequence[SquareSum], out: Floats) -> None:
        """Write the trimmed mean of `parts` to `out`; count each part in its sum of squares."""
        for part, found in zip(parts, squares, strict=False):
            found.add(part, self._scratch)
        for start in range(0, len(out), self._columns):
            columns = slice(start, start + self._columns)
            out[columns] = self._trimmed([part[columns] for part in parts])

    def _trimmed(self, parts: Sequence[Floats]) -> Floats:
        table = np.array(
            [
                part if clip == 1.0 else np.multiply(part, clip, dtype=np.float64)
                for part, clip in zip(parts, self._clips, strict=True)
            ],
            dtype=np.float32,
        )
        order = np.argsort(table, axis=0, kind="stable")
        values = np.take_along_axis(table, order, axis=0)
        gone = trimmed_count(len(parts))
        total, shares = np.zeros((2, table.shape[1]))
        for place in range(gone, len(parts) - gone):
            weights = self._weights[order[place]]
            np.add(total, np.multiply(weights, values[place], dtype=np.float64), out=total)
            np.add(shares, weights, out=shares)
        some = shares > 0.0
        np.divide(total, shares, out=total, where=some)
        return np.where(some, total, 0.0).astype(np.float32)
