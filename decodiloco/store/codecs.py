"""How float32 numbers are coded in a blob: fp32 as they are, bf16 in half, int8 and int4 in blocks.

Decoding is exact for every codec, so that whoever decodes, decodes the same float32 values.
The codecs of blocks are told in `decodiloco.store.blocks`.
"""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np
import numpy.typing as npt

from decodiloco.store.blocks import INT4, INT8, Blocks
from decodiloco.store.halves import from_bf16, to_bf16

Codec = Literal["fp32", "bf16", "int8", "int4"]

ELEMENT_BYTES: dict[str, int] = {"fp32": 4, "bf16": 2}
BLOCKS: dict[str, Blocks] = {"int8": INT8, "int4": INT4}
CODECS: tuple[str, ...] = (*ELEMENT_BYTES, *BLOCKS)
LOSSLESS = "fp32"

assert sys.byteorder == "little", "blobs are little-endian, and are read without a copy"


def coded_bytes(elements: int, codec: str) -> int:
    """How many bytes so many elements of one tensor take."""
    blocks = BLOCKS.get(codec)
    return elements * ELEMENT_BYTES[codec] if blocks is None else blocks.coded_bytes(elements)


def encode(array: npt.NDArray[np.float32], codec: str) -> bytes:
    """The array's elements in C order, little-endian; what is rounded, rounds half to even."""
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
        case "int8" | "int4":
            return BLOCKS[codec].coded(flat).data
        case _:
            raise AssertionError(f"codec {codec!r}: known are {', '.join(CODECS)}")


def decode(
    payload: bytes | memoryview, codec: str, elements: int | None = None
) -> npt.NDArray[np.float32]:
    """The float32 elements in these bytes, 1-D and not to be written to.

    The codecs of blocks want to know how many there are; the bytes begin where a block does.
    Raises ValueError where such blocks are none that `encode` gives.
    """
    match codec:
        case "fp32":
            values = np.frombuffer(payload, np.float32)
        case "bf16":
            values = from_bf16(np.frombuffer(payload, np.uint16))
        case "int8" | "int4":
            assert elements is not None, f"{codec}: how many elements?"
            values = BLOCKS[codec].decoded(np.frombuffer(payload, np.uint8), elements)
        case _:
            raise AssertionError(f"codec {codec!r}: known are {', '.join(CODECS)}")
    values.setflags(write=False)
    return values
