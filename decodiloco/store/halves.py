"""float32 numbers cut to their upper halves, which is bf16, and back. Knows arrays only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NOT_A_NUMBER = 0x7FC0  # the quiet NaN, as one word of bf16
LEAST_NORMAL = 0x0080  # 2^-126; below it a machine that flushes to zero would decode otherwise


def to_bf16(flat: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The upper halves of the float32 words, rounded half to even.

    Adding 0x7FFF and the lowest kept bit carries into the upper half exactly when rounding goes
    up; the largest values carry into infinity, as they should. NaN stays NaN: its rounding might
    carry into zero, so its quiet bit is set instead.
    """
    words = flat.view(np.uint32)
    upper = words >> np.uint32(16)
    bits = (words + np.uint32(0x7FFF) + (upper & np.uint32(1))) >> np.uint32(16)
    lost = np.isnan(flat)
    if lost.any():
        bits = np.where(lost, upper | np.uint32(0x40), bits)
    return bits.astype(np.uint16)


def from_bf16(words: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The float32 numbers with these upper halves: exact."""
    wide = words.astype(np.uint32)
    return np.left_shift(wide, 16, out=wide).view(np.float32)
