"""How float32 numbers are coded in a blob: `fp32` as they are, `bf16` in half the bytes.

Decoding is exact for every codec, so that whoever decodes, decodes the same float32 values.
"""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np
import numpy.typing as npt

Codec = Literal["fp32", "bf16"]

ELEMENT_BYTES: dict[str, int] = {"fp32": 4, "bf16": 2}

assert sys.byteorder == "little", "blobs are little-endian, and are read without a copy"


def encode(array: npt.NDArray[np.float32], codec: str) -> bytes:
    """The array's elements in C order, little-endian. fp32 is exact; bf16 rounds half to even."""
    return bytes(encoded_view(array, codec))


def encoded_view(array: npt.NDArray[np.float32], codec: str) -> memoryview:
    """The same bytes; with fp32 they are the array's own memory where it is contiguous."""
    assert array.dtype == np.float32, array.dtype
    flat = np.ascontiguousarray(array).reshape(-1)
    match codec:
        case "fp32":
            return flat.view(np.uint8).data
        case "bf16":
            return to_bf16(flat).view(np.uint8).data
        case _:
            raise AssertionError(f"codec {codec!r}: known are {', '.join(ELEMENT_BYTES)}")


def decode(payload: bytes | memoryview, codec: str) -> npt.NDArray[np.float32]:
    """The float32 elements in these bytes, 1-D and not to be written to."""
    match codec:
        case "fp32":
            values = np.frombuffer(payload, np.float32)
        case "bf16":
            words = np.frombuffer(payload, np.uint16).astype(np.uint32)
            values = np.left_shift(words, 16, out=words).view(np.float32)
        case _:
            raise AssertionError(f"codec {codec!r}: known are {', '.join(ELEMENT_BYTES)}")
    values.setflags(write=False)
    return values


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
