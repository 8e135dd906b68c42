"""int8 and int4: blocks of elements that share a scale. Knows arrays and bytes only.

A block is its scale, one word of bf16, and then its elements as whole numbers of 8 or 4 bits, in
two's complement; of two in a byte the lower half is first. The last block of a tensor is as long
as what is left. A scale has 8 significant bits and a whole number at most 8, so their product has
at most 16 and is exact in float32: nothing is rounded in decoding, on any machine. A block with
an element that is not finite has the scale NaN, and decodes to nothing but NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decodiloco.store.halves import LEAST_NORMAL, NOT_A_NUMBER, from_bf16, to_bf16

SCALE_BYTES = 2
SCALE_MAX = 0x7B80  # 2^120: a whole number of 8 bits times it is finite
AT_ONCE_ELEMENTS = 1 << 18  # whole blocks of either kind; buffers of this size stay in cache

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_LOWER, _SHIFT = np.uint8(15), np.uint8(4)
_WHOLE = np.arange(256, dtype=np.uint8)
_PAIRS = (np.stack([_WHOLE & 15, _WHOLE >> 4], 1) ^ 8).astype(np.float32) - np.float32(8)
_AS_PAIRS = _PAIRS.view(np.uint64).reshape(256)
"""Both whole numbers of a byte as two float32 values in one word, by the byte."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """One codec: how many elements share a scale, and the bits of each.

    The largest element of a block is coded as `top`.
    """

    elements: int
    bits: int

    @property
    def top(self) -> int:
        """The largest whole number."""
        return int(2 ** (self.bits - 1)) - 1

    @property
    def whole_bytes(self) -> int:
        """Bytes of a block that is full."""
        return SCALE_BYTES + self.elements * self.bits // 8

    def coded_bytes(self, elements: int) -> int:
        """Bytes of so many elements, the first of which begins a block."""
        full, rest = divmod(elements, self.elements)
        tail = SCALE_BYTES + -(-rest * self.bits // 8) if rest else 0
        return full * self.whole_bytes + tail

    def coded(self, flat: Floats) -> Bytes:
        """x -> scale s = bf16(max|x| / top), q = rint(x / s) within -top .. top; half to even."""
        out = np.empty(self.coded_bytes(len(flat)), np.uint8)
        for start in range(0, len(flat), AT_ONCE_ELEMENTS):
            part = flat[start : start + AT_ONCE_ELEMENTS]
            first, size = self.coded_bytes(start), self.coded_bytes(len(part))
            out[first : first + size] = self._coded(part).reshape(-1)[:size]
        return out

    def decoded(self, payload: Bytes, elements: int) -> Floats:
        """x = q s, exactly. Raises ValueError where these are no blocks of so many elements."""
        if len(payload) != self.coded_bytes(elements):
            raise ValueError(f"{len(payload)} bytes for {elements} elements")
        out = np.empty(elements, np.float32)
        for start in range(0, elements, AT_ONCE_ELEMENTS):
            count = min(AT_ONCE_ELEMENTS, elements - start)
            first = self.coded_bytes(start)
            part = payload[first : first + self.coded_bytes(count)]
            self._decode(part, out[start : start + count])
        return out

    def _coded(self, flat: Floats) -> Bytes:
        rows = _in_rows(flat, self.elements)
        peaks = np.maximum(rows.max(axis=1, initial=-np.inf), -rows.min(axis=1, initial=np.inf))
        with np.errstate(all="ignore"):
            words = to_bf16(peaks / np.float32(self.top))
        words[~(words <= SCALE_MAX)] = NOT_A_NUMBER  # infinity, too, and what is near it
        words[words < LEAST_NORMAL] = 0
        scales = from_bf16(words)
        usable = (scales > 0)[:, None]
        with np.errstate(all="ignore"):
            quotients = rows / np.where(usable, scales[:, None], np.float32(1))
        numbers = np.where(usable, np.clip(np.rint(quotients), -self.top, self.top), 0)
        whole = numbers.astype(np.int8).view(np.uint8)
        if self.bits == 4:
            whole = np.bitwise_or(whole[:, ::2] & _LOWER, whole[:, 1::2] << _SHIFT)
        return np.concatenate([words.view(np.uint8).reshape(-1, SCALE_BYTES), whole], axis=1)

    def _decode(self, payload: Bytes, out: Floats) -> None:
        full = len(out) // self.elements
        rest = len(out) - full * self.elements
        size = full * self.whole_bytes
        if full:
            table = payload[:size].reshape(full, self.whole_bytes)
            values = out[: full * self.elements].reshape(full, self.elements)
            np.multiply(self._numbers(table), _scales(table), out=values)
        if rest:
            tail = payload[None, size:]
            if self.bits == 4 and rest % 2 and int(tail[0, -1]) >> 4:
                raise ValueError("a half of a byte that belongs to no element is not zero")
            out[full * self.elements :] = (self._numbers(tail) * _scales(tail))[0, :rest]

    def _numbers(self, table: Bytes) -> Floats | npt.NDArray[np.int8]:
        whole = table[:, SCALE_BYTES:]
        if self.bits == 8:
            return np.ascontiguousarray(whole).view(np.int8)
        return _AS_PAIRS[whole].view(np.float32)


def _in_rows(flat: Floats, width: int) -> Floats:
    """Rows of whole blocks; the last one is filled up with zeros."""
    lacking = -len(flat) % width
    if lacking:
        flat = np.concatenate([flat, np.zeros(lacking, np.float32)])
    return flat.reshape(-1, width)


def _scales(table: Bytes) -> Floats:
    """The scale of each block as a column. Raises ValueError for one that is never written."""
    words = np.ascontiguousarray(table[:, :SCALE_BYTES]).view(np.uint16)
    sound = (words == 0) | (words == NOT_A_NUMBER)
    sound |= (words >= LEAST_NORMAL) & (words <= SCALE_MAX)
    if not sound.all():
        strange = int(words[~sound][0])
        raise ValueError(f"a block's scale is 0x{strange:04x}: none that is written")
    return from_bf16(words)


INT8 = Blocks(elements=256, bits=8)
INT4 = Blocks(elements=64, bits=4)
