"""Deltas added up, block by block, in compiled loops: the bits of the numpy form.

A block's tree adds up sixteen rows first, lane by lane, and then halves what is left, so any vector
width gives the same sums. Lanes are contiguous: of a slice of columns no vectors are made.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic, overload

from decodiloco.merge.exact import BLOCK_ELEMENTS
from decodiloco.merge.kept import FLOATS, STRICT, kept, read, written

ROWS = 16
ROW = BLOCK_ELEMENTS // ROWS  # the tree's first four levels meet elements this far apart
LANES = 128  # of each row at a time: sixteen rows of them stay in the first cache; measured
PITCH = LANES + 16  # and not a power of two, or the rows would throw each other out of it
WINDOW = ROWS * PITCH
LINE_BYTES = 64


@intrinsic
def _pointer(typing, address, like):
    """An address as a pointer to elements of a numpy type."""
    signature = types.CPointer(like.dtype)(address, like)

    def code(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, code


@njit(**STRICT)
def _folded(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15):
    """Four levels of the tree: upper half onto lower half, four times."""
    even = ((x0 + x8) + (x4 + x12)) + ((x2 + x10) + (x6 + x14))
    odd = ((x1 + x9) + (x5 + x13)) + ((x3 + x11) + (x7 + x15))
    return even + odd


def _value(word):
    """The float32 value of a float32, or of a bf16, which is the upper half of one."""
    raise AssertionError


@overload(_value)
def _value_of(word):
    if word is types.uint16:
        return lambda word: np.uint32(np.uint32(word) << np.uint32(16)).view(np.float32)
    return lambda word: word


@njit(**STRICT)
def _gather(x, window):
    """A part of each row of a block, as float32 values side by side."""
    for row in range(ROWS):
        for i in range(LANES):
            window[row * PITCH + i] = _value(x[row * ROW + i])


@njit(**STRICT)
def _take(x, scale, total, lanes):
    """total += scale x, and the products x x of each lane folded."""
    for i in range(LANES):
        x0, x1 = np.float64(x[i]), np.float64(x[i + PITCH])
        x2, x3 = np.float64(x[i + 2 * PITCH]), np.float64(x[i + 3 * PITCH])
        x4, x5 = np.float64(x[i + 4 * PITCH]), np.float64(x[i + 5 * PITCH])
        x6, x7 = np.float64(x[i + 6 * PITCH]), np.float64(x[i + 7 * PITCH])
        x8, x9 = np.float64(x[i + 8 * PITCH]), np.float64(x[i + 9 * PITCH])
        x10, x11 = np.float64(x[i + 10 * PITCH]), np.float64(x[i + 11 * PITCH])
        x12, x13 = np.float64(x[i + 12 * PITCH]), np.float64(x[i + 13 * PITCH])
        x14, x15 = np.float64(x[i + 14 * PITCH]), np.float64(x[i + 15 * PITCH])
        total[i] += scale * x0
        total[i + PITCH] += scale * x1
        total[i + 2 * PITCH] += scale * x2
        total[i + 3 * PITCH] += scale * x3
        total[i + 4 * PITCH] += scale * x4
        total[i + 5 * PITCH] += scale * x5
        total[i + 6 * PITCH] += scale * x6
        total[i + 7 * PITCH] += scale * x7
        total[i + 8 * PITCH] += scale * x8
        total[i + 9 * PITCH] += scale * x9
        total[i + 10 * PITCH] += scale * x10
        total[i + 11 * PITCH] += scale * x11
        total[i + 12 * PITCH] += scale * x12
        total[i + 13 * PITCH] += scale * x13
        total[i + 14 * PITCH] += scale * x14
        total[i + 15 * PITCH] += scale * x15
        lanes[i] = _folded(
            x0 * x0, x1 * x1, x2 * x2, x3 * x3, x4 * x4, x5 * x5, x6 * x6, x7 * x7,
            x8 * x8, x9 * x9, x10 * x10, x11 * x11, x12 * x12, x13 * x13, x14 * x14, x15 * x15,
        )  # fmt: skip


@njit(**STRICT)
def _take_two(x, y, a, b, total, lanes, others):
    """The same of two deltas, first a x and then b y: the total is fetched once."""
    for i in range(LANES):
        x0, y0 = np.float64(x[i]), np.float64(y[i])
        x1, y1 = np.float64(x[i + PITCH]), np.float64(y[i + PITCH])
        x2, y2 = np.float64(x[i + 2 * PITCH]), np.float64(y[i + 2 * PITCH])
        x3, y3 = np.float64(x[i + 3 * PITCH]), np.float64(y[i + 3 * PITCH])
        x4, y4 = np.float64(x[i + 4 * PITCH]), np.float64(y[i + 4 * PITCH])
        x5, y5 = np.float64(x[i + 5 * PITCH]), np.float64(y[i + 5 * PITCH])
        x6, y6 = np.float64(x[i + 6 * PITCH]), np.float64(y[i + 6 * PITCH])
        x7, y7 = np.float64(x[i + 7 * PITCH]), np.float64(y[i + 7 * PITCH])
        x8, y8 = np.float64(x[i + 8 * PITCH]), np.float64(y[i + 8 * PITCH])
        x9, y9 = np.float64(x[i + 9 * PITCH]), np.float64(y[i + 9 * PITCH])
        x10, y10 = np.float64(x[i + 10 * PITCH]), np.float64(y[i + 10 * PITCH])
        x11, y11 = np.float64(x[i + 11 * PITCH]), np.float64(y[i + 11 * PITCH])
        x12, y12 = np.float64(x[i + 12 * PITCH]), np.float64(y[i + 12 * PITCH])
        x13, y13 = np.float64(x[i + 13 * PITCH]), np.float64(y[i + 13 * PITCH])
        x14, y14 = np.float64(x[i + 14 * PITCH]), np.float64(y[i + 14 * PITCH])
        x15, y15 = np.float64(x[i + 15 * PITCH]), np.float64(y[i + 15 * PITCH])
        total[i] = total[i] + a * x0 + b * y0
        total[i + PITCH] = total[i + PITCH] + a * x1 + b * y1
        total[i + 2 * PITCH] = total[i + 2 * PITCH] + a * x2 + b * y2
        total[i + 3 * PITCH] = total[i + 3 * PITCH] + a * x3 + b * y3
        total[i + 4 * PITCH] = total[i + 4 * PITCH] + a * x4 + b * y4
        total[i + 5 * PITCH] = total[i + 5 * PITCH] + a * x5 + b * y5
        total[i + 6 * PITCH] = total[i + 6 * PITCH] + a * x6 + b * y6
        total[i + 7 * PITCH] = total[i + 7 * PITCH] + a * x7 + b * y7
        total[i + 8 * PITCH] = total[i + 8 * PITCH] + a * x8 + b * y8
        total[i + 9 * PITCH] = total[i + 9 * PITCH] + a * x9 + b * y9
        total[i + 10 * PITCH] = total[i + 10 * PITCH] + a * x10 + b * y10
        total[i + 11 * PITCH] = total[i + 11 * PITCH] + a * x11 + b * y11
        total[i + 12 * PITCH] = total[i + 12 * PITCH] + a * x12 + b * y12
        total[i + 13 * PITCH] = total[i + 13 * PITCH] + a * x13 + b * y13
        total[i + 14 * PITCH] = total[i + 14 * PITCH] + a * x14 + b * y14
        total[i + 15 * PITCH] = total[i + 15 * PITCH] + a * x15 + b * y15
        lanes[i] = _folded(
            x0 * x0, x1 * x1, x2 * x2, x3 * x3, x4 * x4, x5 * x5, x6 * x6, x7 * x7,
            x8 * x8, x9 * x9, x10 * x10, x11 * x11, x12 * x12, x13 * x13, x14 * x14, x15 * x15,
        )  # fmt: skip
        others[i] = _folded(
            y0 * y0, y1 * y1, y2 * y2, y3 * y3, y4 * y4, y5 * y5, y6 * y6, y7 * y7,
            y8 * y8, y9 * y9, y10 * y10, y11 * y11, y12 * y12, y13 * y13, y14 * y14, y15 * y15,
        )  # fmt: skip


@njit(**STRICT)
def _take_heard(x, scale, voice, total, heard, lanes):
    """The same as `_take`, and heard += voice x."""
    for i in range(LANES):
        x0, x1 = np.float64(x[i]), np.float64(x[i + PITCH])
        x2, x3 = np.float64(x[i + 2 * PITCH]), np.float64(x[i + 3 * PITCH])
        x4, x5 = np.float64(x[i + 4 * PITCH]), np.float64(x[i + 5 * PITCH])
        x6, x7 = np.float64(x[i + 6 * PITCH]), np.float64(x[i + 7 * PITCH])
        x8, x9 = np.float64(x[i + 8 * PITCH]), np.float64(x[i + 9 * PITCH])
        x10, x11 = np.float64(x[i + 10 * PITCH]), np.float64(x[i + 11 * PITCH])
        x12, x13 = np.float64(x[i + 12 * PITCH]), np.float64(x[i + 13 * PITCH])
        x14, x15 = np.float64(x[i + 14 * PITCH]), np.float64(x[i + 15 * PITCH])
        total[i] += scale * x0
        total[i + PITCH] += scale * x1
        total[i + 2 * PITCH] += scale * x2
        total[i + 3 * PITCH] += scale * x3
        total[i + 4 * PITCH] += scale * x4
        total[i + 5 * PITCH] += scale * x5
        total[i + 6 * PITCH] += scale * x6
        total[i + 7 * PITCH] += scale * x7
        total[i + 8 * PITCH] += scale * x8
        total[i + 9 * PITCH] += scale * x9
        total[i + 10 * PITCH] += scale * x10
        total[i + 11 * PITCH] += scale * x11
        total[i + 12 * PITCH] += scale * x12
        total[i + 13 * PITCH] += scale * x13
        total[i + 14 * PITCH] += scale * x14
        total[i + 15 * PITCH] += scale * x15
        heard[i] += voice * x0
        heard[i + PITCH] += voice * x1
        heard[i + 2 * PITCH] += voice * x2
        heard[i + 3 * PITCH] += voice * x3
        heard[i + 4 * PITCH] += voice * x4
        heard[i + 5 * PITCH] += voice * x5
        heard[i + 6 * PITCH] += voice * x6
        heard[i + 7 * PITCH] += voice * x7
        heard[i + 8 * PITCH] += voice * x8
        heard[i + 9 * PITCH] += voice * x9
        heard[i + 10 * PITCH] += voice * x10
        heard[i + 11 * PITCH] += voice * x11
        heard[i + 12 * PITCH] += voice * x12
        heard[i + 13 * PITCH] += voice * x13
        heard[i + 14 * PITCH] += voice * x14
        heard[i + 15 * PITCH] += voice * x15
        lanes[i] = _folded(
            x0 * x0, x1 * x1, x2 * x2, x3 * x3, x4 * x4, x5 * x5, x6 * x6, x7 * x7,
            x8 * x8, x9 * x9, x10 * x10, x11 * x11, x12 * x12, x13 * x13, x14 * x14, x15 * x15,
        )  # fmt: skip


@njit(**STRICT)
def _dot(x, y, lanes):
    """The products x y of each lane folded."""
    for i in range(LANES):
        x0, y0 = np.float64(x[i]), np.float64(y[i])
        x1, y1 = np.float64(x[i + PITCH]), np.float64(y[i + PITCH])
        x2, y2 = np.float64(x[i + 2 * PITCH]), np.float64(y[i + 2 * PITCH])
        x3, y3 = np.float64(x[i + 3 * PITCH]), np.float64(y[i + 3 * PITCH])
        x4, y4 = np.float64(x[i + 4 * PITCH]), np.float64(y[i + 4 * PITCH])
        x5, y5 = np.float64(x[i + 5 * PITCH]), np.float64(y[i + 5 * PITCH])
        x6, y6 = np.float64(x[i + 6 * PITCH]), np.float64(y[i + 6 * PITCH])
        x7, y7 = np.float64(x[i + 7 * PITCH]), np.float64(y[i + 7 * PITCH])
        x8, y8 = np.float64(x[i + 8 * PITCH]), np.float64(y[i + 8 * PITCH])
        x9, y9 = np.float64(x[i + 9 * PITCH]), np.float64(y[i + 9 * PITCH])
        x10, y10 = np.float64(x[i + 10 * PITCH]), np.float64(y[i + 10 * PITCH])
        x11, y11 = np.float64(x[i + 11 * PITCH]), np.float64(y[i + 11 * PITCH])
        x12, y12 = np.float64(x[i + 12 * PITCH]), np.float64(y[i + 12 * PITCH])
        x13, y13 = np.float64(x[i + 13 * PITCH]), np.float64(y[i + 13 * PITCH])
        x14, y14 = np.float64(x[i + 14 * PITCH]), np.float64(y[i + 14 * PITCH])
        x15, y15 = np.float64(x[i + 15 * PITCH]), np.float64(y[i + 15 * PITCH])
        lanes[i] = _folded(
            x0 * y0, x1 * y1, x2 * y2, x3 * y3, x4 * y4, x5 * y5, x6 * y6, x7 * y7,
            x8 * y8, x9 * y9, x10 * y10, x11 * y11, x12 * y12, x13 * y13, x14 * y14, x15 * y15,
        )  # fmt: skip


@njit(**STRICT)
def _dot_two(x, y, z, lanes, others):
    """The products x z, and y z."""
    for i in range(LANES):
        x0, y0 = np.float64(x[i]), np.float64(y[i])
        x1, y1 = np.float64(x[i + PITCH]), np.float64(y[i + PITCH])
        x2, y2 = np.float64(x[i + 2 * PITCH]), np.float64(y[i + 2 * PITCH])
        x3, y3 = np.float64(x[i + 3 * PITCH]), np.float64(y[i + 3 * PITCH])
        x4, y4 = np.float64(x[i + 4 * PITCH]), np.float64(y[i + 4 * PITCH])
        x5, y5 = np.float64(x[i + 5 * PITCH]), np.float64(y[i + 5 * PITCH])
        x6, y6 = np.float64(x[i + 6 * PITCH]), np.float64(y[i + 6 * PITCH])
        x7, y7 = np.float64(x[i + 7 * PITCH]), np.float64(y[i + 7 * PITCH])
        x8, y8 = np.float64(x[i + 8 * PITCH]), np.float64(y[i + 8 * PITCH])
        x9, y9 = np.float64(x[i + 9 * PITCH]), np.float64(y[i + 9 * PITCH])
        x10, y10 = np.float64(x[i + 10 * PITCH]), np.float64(y[i + 10 * PITCH])
        x11, y11 = np.float64(x[i + 11 * PITCH]), np.float64(y[i + 11 * PITCH])
        x12, y12 = np.float64(x[i + 12 * PITCH]), np.float64(y[i + 12 * PITCH])
        x13, y13 = np.float64(x[i + 13 * PITCH]), np.float64(y[i + 13 * PITCH])
        x14, y14 = np.float64(x[i + 14 * PITCH]), np.float64(y[i + 14 * PITCH])
        x15, y15 = np.float64(x[i + 15 * PITCH]), np.float64(y[i + 15 * PITCH])
        z0, z1 = np.float64(z[i]), np.float64(z[i + PITCH])
        z2, z3 = np.float64(z[i + 2 * PITCH]), np.float64(z[i + 3 * PITCH])
        z4, z5 = np.float64(z[i + 4 * PITCH]), np.float64(z[i + 5 * PITCH])
        z6, z7 = np.float64(z[i + 6 * PITCH]), np.float64(z[i + 7 * PITCH])
        z8, z9 = np.float64(z[i + 8 * PITCH]), np.float64(z[i + 9 * PITCH])
        z10, z11 = np.float64(z[i + 10 * PITCH]), np.float64(z[i + 11 * PITCH])
        z12, z13 = np.float64(z[i + 12 * PITCH]), np.float64(z[i + 13 * PITCH])
        z14, z15 = np.float64(z[i + 14 * PITCH]), np.float64(z[i + 15 * PITCH])
        lanes[i] = _folded(
            x0 * z0, x1 * z1, x2 * z2, x3 * z3, x4 * z4, x5 * z5, x6 * z6, x7 * z7,
            x8 * z8, x9 * z9, x10 * z10, x11 * z11, x12 * z12, x13 * z13, x14 * z14, x15 * z15,
        )  # fmt: skip
        others[i] = _folded(
            y0 * z0, y1 * z1, y2 * z2, y3 * z3, y4 * z4, y5 * z5, y6 * z6, y7 * z7,
            y8 * z8, y9 * z9, y10 * z10, y11 * z11, y12 * z12, y13 * z13, y14 * z14, y15 * z15,
        )  # fmt: skip


@njit(**STRICT)
def _dot_all(windows, z, lanes, start):
    """The products x z of each of several x."""
    count = len(windows)
    for k in range(0, count - 1, 2):
        _dot_two(windows[k], windows[k + 1], z, lanes[k, start:], lanes[k + 1, start:])
    if count % 2:
        _dot(windows[count - 1], z, lanes[count - 1, start:])


@njit(**STRICT)
def _rounded(total, window):
    """Rounds a window once, to float32."""
    for i in range(WINDOW):
        window[i] = np.float32(total[i])


@njit(**STRICT)
def _spread(window, out):
    """Puts a window's rows where they belong."""
    for row in range(ROWS):
        for i in range(LANES):
            out[row * ROW + i] = window[row * PITCH + i]


@njit(**STRICT)
def _halved(lanes):
    """The rest of the tree: what the lanes of one block come to."""
    half = ROW // 2
    while half:
        for i in range(half):
            lanes[i] += lanes[half + i]
        half //= 2
    return lanes[0]


@njit(**STRICT)
def _touch(addresses, start, stop):
    """Reads a value of each cache line of a block in order: rows far apart would come slowly."""
    seen = np.uint16(0)
    for k in range(len(addresses)):
        x = carray(_pointer(addresses[k] + np.uint64(start), np.uint16), (stop - start) // 2)
        for i in range(0, len(x), LINE_BYTES // 2):
            seen = max(seen, x[i])
    return seen


@njit(**STRICT)
def _fetch(address, first, item_bytes, window):
    """A window of a delta: of float32 elements, or of bf16 ones, the upper halves of such."""
    at = address + np.uint64(first) * np.uint64(item_bytes)
    if item_bytes == 2:
        _gather(carray(_pointer(at, np.uint16), BLOCK_ELEMENTS), window)
    else:
        _gather(carray(_pointer(at, np.float32), BLOCK_ELEMENTS), window)


@njit(**STRICT)
def _add_window(addresses, first, item_bytes, scales, windows, total, lanes, start):
    """A window of each delta, added up. None is needed again: two places do for all of them."""
    count = len(addresses)
    total[:] = -0.0  # it changes nothing it is added to; 0.0 would change a -0.0
    for k in range(0, count - 1, 2):
        _fetch(addresses[k], first, item_bytes, windows[0])
        _fetch(addresses[k + 1], first, item_bytes, windows[1])
        a, b = scales[k], scales[k + 1]
        _take_two(windows[0], windows[1], a, b, total, lanes[k, start:], lanes[k + 1, start:])
    if count % 2:
        _fetch(addresses[count - 1], first, item_bytes, windows[0])
        _take(windows[0], scales[count - 1], total, lanes[count - 1, start:])


@njit(**STRICT)
def _hear_window(addresses, first, item_bytes, scales, voices, windows, total, heard, lanes, start):
    """The same, with the sum by voices; each window is kept."""
    total[:], heard[:] = -0.0, -0.0
    for k in range(len(addresses)):
        _fetch(addresses[k], first, item_bytes, windows[k])
        _take_heard(windows[k], scales[k], voices[k], total, heard, lanes[k, start:])


_ADD = [
    types.none(
        read(types.uint64), types.int64, read(types.float64), read(types.float64), FLOATS,
        written(types.float32), written(types.float64, 2), written(types.uint16),
    )
]  # fmt: skip


@kept(_ADD)
def add_blocks(addresses, item_bytes, scales, voices, history, out, sums, seen):
    """Whole blocks of `add_piece`; `seen` is told of the bytes, so that these are looked at."""
    count = len(addresses)
    total, heard, own = np.zeros(WINDOW), np.zeros(WINDOW), np.zeros(WINDOW, np.float32)
    windows = np.zeros((max(count, 2), WINDOW), np.float32)
    lanes = np.empty((sums.shape[1], ROW))
    blocks, block_bytes = len(out) // BLOCK_ELEMENTS, BLOCK_ELEMENTS * item_bytes
    seen[0] = _touch(addresses, 0, block_bytes)
    for block in range(blocks):
        if block + 1 < blocks:
            seen[0] = _touch(addresses, (block + 1) * block_bytes, (block + 2) * block_bytes)
        for start in range(0, ROW, LANES):
            first = block * BLOCK_ELEMENTS + start
            if len(voices):
                _hear_window(
                    addresses,
                    first,
                    item_bytes,
                    scales,
                    voices,
                    windows,
                    total,
                    heard,
                    lanes,
                    start,
                )
            else:
                _add_window(addresses, first, item_bytes, scales, windows, total, lanes, start)
            _rounded(total, own)
            _spread(own, out[first:])
            _dot(own, own, lanes[count, start:])
            if len(voices):  # the sum S by voices, <S, S> and <x, S>; see `direction.Listener`
                _rounded(heard, own)
                _dot(own, own, lanes[count + 1, start:])
                _dot_all(windows[:count], own, lanes[count + 2 : 2 * count + 2], start)
            if len(history):
                _gather(history[first:], own)
                _dot(own, own, lanes[2 * count + 2, start:])
                _dot_all(windows[:count], own, lanes[2 * count + 3 :], start)
        for row in range(sums.shape[1]):
            sums[block, row] = _halved(lanes[row])
