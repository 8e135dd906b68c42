"""Canonical arithmetic, "merge v1": the same bits on any CPU and with any number of threads.

Three habits make it so. A product of two float32 values is taken in float64, where it is exact,
so that a fused multiply-add cannot change it. A sum over contributions has one order. A sum
over elements is a fixed tree of elementwise additions. Nothing here calls a reduction of numpy,
whose order is its own affair. The numpy form is the definition; a faster body must give the
same digests.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from decodiloco.errors import Disagreement

BLOCK_ELEMENTS = 16_384
CHUNK_ELEMENTS = 16 * BLOCK_ELEMENTS  # buffers of this size stay in cache; measured

Floats = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]

KNOWN_ANSWER = "22d1a656fdff62d9208a653cf0a6c2e6fa1e2b1f4c7b049f624b6aeea6c1b981"


def rounded(value: float) -> float:
    """The float32 nearest to a float64 (a tie goes to the even one), as a Python float."""
    return float(np.float32(value))


def shares(weights: Sequence[Fraction]) -> tuple[float, ...]:
    """Each weight's share of their sum: w_k / sum(w) as an exact ratio, to float64, to float32."""
    total = sum(weights, Fraction())
    assert total > 0 and min(weights) >= 0, "weights are not negative, and not all zero"
    return tuple(rounded(float(weight / total)) for weight in weights)


def tree_sum(values: Wide) -> float:
    """The sum of non-negative float64 values by halving.

    They are padded with zeros to the next power of two (n = 0 or 1: to one); then the upper half
    is added to the lower half until one value is left. A zero changes no sum, so the padding is
    only a way to say which pairs meet.
    """
    size = 1 << max(0, len(values) - 1).bit_length()
    level = np.zeros((1, size))
    level[0, : len(values)] = values
    _halve(level)
    return float(level[0, 0])


class SquareSum:
    """The sum of squares of a float32 tensor, fed in chunks.

    sum(x_i^2): each square in float64 (exact), in blocks of 16,384 elements counted from the
    tensor's start, the last one padded with zeros; a halving tree inside each block, then
    `tree_sum` over the results of the blocks. It is finite if and only if every element is: the
    square of a float32 is below 2^256, and no tensor has 2^700 of them.
    """

    __slots__ = ("_blocks", "_open")

    def __init__(self) -> None:
        self._blocks: list[Wide] = []
        self._open = True

    def add(self, chunk: Floats | Wide, scratch: Wide | None = None) -> None:
        """Count a chunk; all but the last hold a whole number of blocks.

        `scratch` is a float64 buffer of CHUNK_ELEMENTS that may be written over.
        """
        assert self._open, "a chunk after one that ended within a block"
        size = len(chunk)
        blocks = -(-size // BLOCK_ELEMENTS)
        self._open = size == blocks * BLOCK_ELEMENTS
        squares = np.empty(CHUNK_ELEMENTS) if scratch is None else scratch
        squares = squares[: blocks * BLOCK_ELEMENTS]
        np.multiply(chunk, chunk, out=squares[:size], dtype=np.float64)
        squares[size:] = 0.0
        table = squares.reshape(blocks, BLOCK_ELEMENTS)
        _halve(table)
        self._blocks.append(table[:, 0].copy())

    def total(self) -> float:
        """The sum over everything that was added."""
        return tree_sum(np.concatenate(self._blocks) if self._blocks else np.empty(0))


def square_sum(array: Floats) -> float:
    """The sum of squares of a whole tensor; see SquareSum."""
    flat = array.reshape(-1)
    found = SquareSum()
    with np.errstate(all="ignore"):  # what is not finite shows in the result
        scratch = np.empty(CHUNK_ELEMENTS)
        for start in range(0, len(flat), CHUNK_ELEMENTS):
            found.add(flat[start : start + CHUNK_ELEMENTS], scratch)
    return found.total()


class WeightedSum:
    """sum_k s_k x_k over contributions, one chunk of a tensor at a time.

    s_k is a float32 value, x_k a float32 chunk. Each product is exact in float64, the float64
    sum is taken in the order of the contributions, and it is rounded once, to float32.
    """

    __slots__ = ("_scales", "_scratch", "_sum", "_wide")

    def __init__(self, scales: Sequence[float]) -> None:
        assert scales and all(scale == rounded(scale) for scale in scales)
        self._scales = tuple(scales)
        self._sum = np.empty(CHUNK_ELEMENTS)
        self._wide = np.empty(CHUNK_ELEMENTS)
        self._scratch = np.empty(CHUNK_ELEMENTS)

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


def self_test() -> bytes:
    """Merge a canned fragment in this thread; return the digest of the result.

    Raises Disagreement when the digest is not the known one: a thread that flushes small numbers
    to zero (`torch.set_flush_denormal`, libraries built with -ffast-math), another rounding mode,
    a library that fuses or reorders. The mode belongs to a thread, so each merging thread asks.
    """
    digest = _canned_digest()
    if digest.hex() != KNOWN_ANSWER:
        raise Disagreement(
            "this thread's arithmetic is not merge v1: a canned merge gave "
            f"{digest.hex()[:16]}, not {KNOWN_ANSWER[:16]}. Something has set flush-to-zero "
            "(torch.set_flush_denormal?) or another rounding mode in this process."
        )
    return digest


def _canned_digest() -> bytes:
    # Imported here, for the rules stand on this module.
    from decodiloco.merge.outer import outer_step
    from decodiloco.merge.rules import merge_tensor

    size = 2 * BLOCK_ELEMENTS + 77
    deltas = [_canned(size, seed, exponent) for seed, exponent in ((1, 118), (2, 117), (3, 119))]
    tiny = [_canned(size, seed, 0) for seed in (4, 5, 6)]  # exponent 0: all are subnormal
    parameter = _canned(size, 7, 122)
    momentum = _canned(size, 8, 110)
    weights = [Fraction(900**2, 7), Fraction(1000**2, 24), Fraction(1, 3)]
    hasher = blake3()
    for gradient in (
        merge_tensor(deltas, weights, "radial", norm_clip=1.25),
        merge_tensor(deltas, weights, "mean"),
        merge_tensor(tiny, weights, "mean"),
    ):
        parameter, momentum = outer_step(parameter, momentum, gradient, lr=0.7, mu=0.9)
        for array in (gradient, momentum, parameter):
            hasher.update(array.astype("<f4").tobytes())
    hasher.update(np.float64(square_sum(deltas[0])).astype("<f8").tobytes())
    return hasher.digest()


@functools.lru_cache(maxsize=16)
def _canned(size: int, seed: int, exponent: int) -> Floats:
    """Float32 values of both signs whose biased exponent is `exponent` to `exponent + 3`.

    Made of integers by a linear congruence, so that they are the same everywhere; with exponent
    0 all of them are subnormal.
    """
    index = np.arange(size, dtype=np.uint64)
    bits = (index * np.uint64(6364136223846793005) + np.uint64(seed * 1442695040888963407)) >> (
        np.uint64(29)
    )
    sign = (bits & np.uint64(1)) << np.uint64(31)
    spread = (bits >> np.uint64(1)) & np.uint64(3 if exponent else 0)
    mantissa = (bits >> np.uint64(7)) & np.uint64(0x7FFFFF)
    words = sign | ((spread + np.uint64(exponent)) << np.uint64(23)) | mantissa
    values: Floats = words.astype(np.uint32).view(np.float32)
    values.setflags(write=False)
    return values


def _halve(table: Wide) -> None:
    """Sum each row into its first element, in place: upper half onto lower half, and again."""
    half = table.shape[1] // 2
    while half:
        lower = table[:, :half]
        np.add(lower, table[:, half : 2 * half], out=lower)
        half //= 2
