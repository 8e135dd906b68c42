"""The known answer: a canned merge whose digest every merging thread must give, bit for bit."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
from blake3 import blake3

from decodiloco.errors import Disagreement
from decodiloco.merge.exact import BLOCK_ELEMENTS, Floats, square_sum
from decodiloco.merge.outer import outer_step
from decodiloco.merge.rules import merge_tensor

KNOWN_ANSWER = "22d1a656fdff62d9208a653cf0a6c2e6fa1e2b1f4c7b049f624b6aeea6c1b981"


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
