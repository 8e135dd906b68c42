"""Canonical arithmetic, "merge v1": the same bits on any CPU and with any number of threads.

Three habits make it so. A product of two float32 values is taken in float64, where it is exact,
so that a fused multiply-add cannot change it. A sum over contributions has one order. A sum
over elements is a fixed tree of elementwise additions. Nothing here calls a reduction of numpy,
whose order is its own affair. The numpy form is the definition; a faster body must give the
same digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

BLOCK_ELEMENTS = 16_384
CHUNK_ELEMENTS = 16 * BLOCK_ELEMENTS  # buffers of this size stay in cache; measured

Floats = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]


def rounded(value: float) -> float:
    """The float32 nearest to a float64 (a tie goes to the even one), as a Python float."""
    return float(np.float32(value))


def shares(weights: Sequence[Fraction]) -> tuple[float, ...]:
    """Each weight's share of their sum: w_k / sum(w) as an exact ratio, to float64, to float32."""
    total = sum(weights, Fraction())
    assert total > 0 and min(weights) >= 0, "weights are not negative, and not all zero"
    return tuple(rounded(float(weight / total)) for weight in weights)


def in_order(values: Iterable[float]) -> float:
    """The sum of a few float64 values, one after the other, each sum rounded.

    Python's own `sum` does so up to 3.11 only: from 3.12 on it makes up for rounding.
    """
    total = 0.0
    for value in values:
        total += value
    return total


def tree_sum(values: Wide) -> float:
    """The sum of float64 values by halving.

    They are padded with zeros to the next power of two (n = 0 or 1: to one); then the upper half
    is added to the lower half until one value is left. A zero changes no sum, so the padding is
    only a way to say which pairs meet.
    """
    level = np.zeros((1, _power_of_two(len(values))))
    level[0, : len(values)] = values
    _halve(level)
    return float(level[0, 0])


class DotSum:
    """The sum of products of two float32 tensors, fed in chunks.

    sum(x_i y_i): each product in float64 (exact), in blocks of 16,384 elements counted from the
    tensor's start, the last one padded with zeros; a halving tree inside each block, then
    `tree_sum` over the results of the blocks.
    """

    __slots__ = ("_blocks", "_open")

    def __init__(self) -> None:
        self._blocks: list[Wide] = []
        self._open = True

    def add_products(
        self, left: Floats | Wide, right: Floats | Wide, scratch: Wide | None = None
    ) -> None:
        """Count a chunk of both; all but the last hold a whole number of blocks.

        `scratch` is a float64 buffer of CHUNK_ELEMENTS that may be written over. What is wide
        holds float32 values.
        """
        assert self._open, "a chunk after one that ended within a block"
        size = len(left)
        blocks = -(-size // BLOCK_ELEMENTS)
        self._open = size == blocks * BLOCK_ELEMENTS
        width = BLOCK_ELEMENTS if blocks > 1 else _power_of_two(size)  # less of it is zeros
        products = np.empty(blocks * width) if scratch is None else scratch
        products = products[: blocks * width]
        np.multiply(left, right, out=products[:size], dtype=np.float64)
        products[size:] = 0.0
        table = products.reshape(blocks, width)
        _halve(table)
        self._blocks.append(table[:, 0].copy())

    def total(self) -> float:
        """The sum over everything that was added."""
        if len(self._blocks) == 1 and len(self._blocks[0]) == 1:
            return float(self._blocks[0][0])
        return tree_sum(np.concatenate(self._blocks) if self._blocks else np.empty(0))


class SquareSum(DotSum):
    """The sum of squares of a float32 tensor, fed in chunks: its product with itself.

    It is finite if and only if every element is: the square of a float32 is below 2^256, and no
    tensor has 2^700 of them.
    """

    __slots__ = ()

    def add(self, chunk: Floats | Wide, scratch: Wide | None = None) -> None:
        """Count a chunk; see `add_products`."""
        self.add_products(chunk, chunk, scratch)


def square_sum(array: Floats) -> float:
    """The sum of squares of a whole tensor; see SquareSum."""
    flat = array.reshape(-1)
    found = SquareSum()
    with np.errstate(all="ignore"):  # what is not finite shows in the result
        scratch = np.empty(CHUNK_ELEMENTS) if len(flat) > BLOCK_ELEMENTS else None
        for start in range(0, len(flat), CHUNK_ELEMENTS):
            found.add(flat[start : start + CHUNK_ELEMENTS], scratch)
    return found.total()


class WeightedSum:
    """sum_k s_k x_k over contributions, one chunk of a tensor at a time.

    s_k is a float32 value, x_k a float32 chunk of at most `elements`. Each product is exact in
    float64, the float64 sum is taken in the order of the contributions, and it is rounded once,
    to float32.
    """

    __slots__ = ("_scales", "_scratch", "_sum", "_wide")

    def __init__(self, scales: Sequence[float], elements: int = CHUNK_ELEMENTS) -> None:
        assert scales and all(scale == rounded(scale) for scale in scales)
        self._scales = tuple(scales)
        blocks = min(-(-elements // BLOCK_ELEMENTS) * BLOCK_ELEMENTS, CHUNK_ELEMENTS)
        self._sum, self._wide, self._scratch = np.empty((3, blocks))

    def chunk(self, parts: Sequence[Floats], squares: Sequence[SquareSum], out: Floats) -> None:
        """Write the weighted sum of `parts` to `out`; count each part in its sum of squares."""
        total, wide = self._sum[: len(out)], self._wide[: len(out)]
        for place, (part, scale) in enumerate(zip(parts, self._scales, strict=True)):
            wide[...] = part
            if squares:
                squares[place].add(wide, self._scratch)
            if place == 0:
                np.multiply(wide, scale, out=total)
            else:
                np.multiply(wide, scale, out=wide)
                np.add(total, wide, out=total)
        out[...] = total


def _power_of_two(size: int) -> int:
    """The least power of two that is not below `size`; 1 for nothing."""
    return 1 << max(0, size - 1).bit_length()


def _halve(table: Wide) -> None:
    """Sum each row into its first element, in place: upper half onto lower half, and again."""
    half = table.shape[1] // 2
    while half:
        lower = table[:, :half]
        np.add(lower, table[:, half : 2 * half], out=lower)
        half //= 2
