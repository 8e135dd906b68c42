"""Merge v1 in compiled loops: the bits of the numpy form, at the speed of memory.

Importing this compiles, or loads what was compiled before; so import it before there is a hurry.
Nothing here is allowed what would change a bit: no fast-math, no reduction whose order is the
compiler's. A block's tree adds up sixteen rows first, lane by lane, and then halves what is left,
so any vector width gives the same sums. Knows addresses and blocks; no stores, no rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import carray, njit, types
from numba.extending import intrinsic, overload

from decodiloco.merge.exact import BLOCK_ELEMENTS, Floats, Wide

Coded = npt.NDArray[np.float32] | npt.NDArray[np.uint16]

ROWS = 16
ROW = BLOCK_ELEMENTS // ROWS  # the tree's first four levels meet elements this far apart
LANES = 128  # of each row at a time: sixteen rows of them stay in the first cache; measured
PITCH = LANES + 16  # and not a power of two, or the rows would throw each other out of it
WINDOW = ROWS * PITCH
LINE_BYTES = 64

_STRICT = {"nogil": True, "error_model": "numpy", "fastmath": False}


@intrinsic
def _pointer(typing, address, like):
    """An address as a pointer to elements like those of an array."""
    signature = types.CPointer(like.dtype)(address, like)

    def code(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, code


@njit(**_STRICT)
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


@njit(**_STRICT)
def _gather(x, window):
    """A part of each row of a block, as float32 values side by side."""
    for row in range(ROWS):
        for i in range(LANES):
            window[row * PITCH + i] = _value(x[row * ROW + i])


@njit(**_STRICT)
def _take(x, scale, total, lanes):
    """total += scale x, and the products x x of each lane folded."""
    for i in range(LANES):
        x0, x1 = np.float64(x[i]), np.float64(x[i + PITCH])
        x2 = np.float64(x[i + 2 * PITCH])
        x3 = np.float64(x[i + 3 * PITCH])
        x4 = np.float64(x[i + 4 * PITCH])
        x5 = np.float64(x[i + 5 * PITCH])
        x6 = np.float64(x[i + 6 * PITCH])
        x7 = np.float64(x[i + 7 * PITCH])
        x8 = np.float64(x[i + 8 * PITCH])
        x9 = np.float64(x[i + 9 * PITCH])
        x10 = np.float64(x[i + 10 * PITCH])
        x11 = np.float64(x[i + 11 * PITCH])
        x12 = np.float64(x[i + 12 * PITCH])
        x13 = np.float64(x[i + 13 * PITCH])
        x14 = np.float64(x[i + 14 * PITCH])
        x15 = np.float64(x[i + 15 * PITCH])
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


@njit(**_STRICT)
def _add_scaled(x, scale, total):
    """total += scale x."""
    for i in range(WINDOW):
        total[i] += scale * np.float64(x[i])


@njit(**_STRICT)
def _dot(x, y, lanes):
    """The products x y of each lane folded."""
    for i in range(LANES):
        x0, x1 = np.float64(x[i]), np.float64(x[i + PITCH])
        x2 = np.float64(x[i + 2 * PITCH])
        x3 = np.float64(x[i + 3 * PITCH])
        x4 = np.float64(x[i + 4 * PITCH])
        x5 = np.float64(x[i + 5 * PITCH])
        x6 = np.float64(x[i + 6 * PITCH])
        x7 = np.float64(x[i + 7 * PITCH])
        x8 = np.float64(x[i + 8 * PITCH])
        x9 = np.float64(x[i + 9 * PITCH])
        x10 = np.float64(x[i + 10 * PITCH])
        x11 = np.float64(x[i + 11 * PITCH])
        x12 = np.float64(x[i + 12 * PITCH])
        x13 = np.float64(x[i + 13 * PITCH])
        x14 = np.float64(x[i + 14 * PITCH])
        x15 = np.float64(x[i + 15 * PITCH])
        lanes[i] = _folded(
            x0 * y[i], x1 * y[i + PITCH], x2 * y[i + 2 * PITCH],
            x3 * y[i + 3 * PITCH], x4 * y[i + 4 * PITCH], x5 * y[i + 5 * PITCH],
            x6 * y[i + 6 * PITCH], x7 * y[i + 7 * PITCH], x8 * y[i + 8 * PITCH],
            x9 * y[i + 9 * PITCH], x10 * y[i + 10 * PITCH], x11 * y[i + 11 * PITCH],
            x12 * y[i + 12 * PITCH], x13 * y[i + 13 * PITCH], x14 * y[i + 14 * PITCH],
            x15 * y[i + 15 * PITCH],
        )  # fmt: skip


@njit(**_STRICT)
def _rounded(total, window):
    """Rounds a window once, to float32."""
    for i in range(WINDOW):
        window[i] = np.float32(total[i])


@njit(**_STRICT)
def _spread(window, out):
    """Puts a window's rows where they belong."""
    for row in range(ROWS):
        for i in range(LANES):
            out[row * ROW + i] = window[row * PITCH + i]


@njit(**_STRICT)
def _halved(lanes):
    """The rest of the tree: what the lanes of one block come to."""
    half = ROW // 2
    while half:
        for i in range(half):
            lanes[i] += lanes[half + i]
        half //= 2
    return lanes[0]


@njit(**_STRICT)
def _touch(addresses, first, like):
    """Reads a value of each cache line of a block in order: rows far apart would come slowly."""
    seen = like.dtype.type(0)
    for k in range(len(addresses)):
        x = _elements(addresses[k], first, like)
        for i in range(0, BLOCK_ELEMENTS, LINE_BYTES // like.itemsize):
            seen = max(seen, x[i])
    return seen


@njit(**_STRICT)
def _elements(address, first, like):
    """A block of a delta, from its element `first` on."""
    offset = np.uint64(first) * np.uint64(like.itemsize)
    return carray(_pointer(address + offset, like), BLOCK_ELEMENTS)


@njit(**_STRICT)
def _heard(windows, voices, total, voiced, lanes):
    """A window of the voices' sum S, and of <S, S> and <x, S>; see `direction.Listener`."""
    total[:] = -0.0
    for k in range(len(windows)):
        _add_scaled(windows[k], voices[k], total)
    _rounded(total, voiced)
    _dot(voiced, voiced, lanes[0])
    for k in range(len(windows)):
        _dot(windows[k], voiced, lanes[k + 1])


def _kept(signatures):
    """Compiles for these signatures now, and keeps the result where this file or this user can.

    Where neither can (a read-only system without a home), each start compiles again: seconds.
    NUMBA_CACHE_DIR names another place.
    """

    def compile_now(function):
        try:
            return njit(signatures, cache=True, **_STRICT)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            return njit(signatures, **_STRICT)(function)

    return compile_now


def _read(of: Any) -> Any:
    return types.Array(of, 1, "C", readonly=True)


def _written(of: Any, dimensions: int = 1) -> Any:
    return types.Array(of, dimensions, "C")


_FLOATS, _WIDE = _read(types.float32), _read(types.float64)
_ADD = [
    types.none(
        _read(types.uint64), _read(of), _WIDE, _WIDE, _FLOATS,
        _written(types.float32), _written(types.float64, 2), _written(of),
    )
    for of in (types.float32, types.uint16)
]  # fmt: skip
_STEP = [
    types.int64(
        _FLOATS, _FLOATS, _written(types.float32), types.float32, types.float64, types.float64,
        _written(types.float32),
    )
]  # fmt: skip


@_kept(_ADD)
def _add_blocks(addresses, like, scales, voices, history, out, sums, seen):
    """Whole blocks of `add_piece`; `seen` is told of the bytes, so that these are looked at."""
    count = len(addresses)
    total, own = np.zeros(WINDOW), np.zeros(WINDOW, np.float32)
    windows = np.zeros((count, WINDOW), np.float32)
    lanes = np.empty((sums.shape[1], ROW))
    blocks = len(out) // BLOCK_ELEMENTS
    seen[0] = _touch(addresses, 0, like)
    for block in range(blocks):
        if block + 1 < blocks:
            seen[0] = _touch(addresses, (block + 1) * BLOCK_ELEMENTS, like)
        for start in range(0, ROW, LANES):
            first = block * BLOCK_ELEMENTS + start
            total[:] = -0.0  # it changes nothing it is added to; 0.0 would change a -0.0
            for k in range(count):
                _gather(_elements(addresses[k], first, like), windows[k])
                _take(windows[k], scales[k], total, lanes[k, start:])
            _rounded(total, own)
            _spread(own, out[first:])
            _dot(own, own, lanes[count, start:])
            if len(voices):
                _heard(windows, voices, total, own, lanes[count + 1 : 2 * count + 2, start:])
            if len(history):
                _gather(history[first:], own)
                _dot(own, own, lanes[2 * count + 2, start:])
                for k in range(count):
                    _dot(windows[k], own, lanes[2 * count + 3 + k, start:])
        for row in range(sums.shape[1]):
            sums[block, row] = _halved(lanes[row])


@_kept(_STEP)
def _step(parameter, momentum, gradient, factor, rate, decay, stepped):
    """`step_piece`; returns how many parameters are not finite."""
    lost = 0
    for i in range(len(parameter)):
        g = np.float64(gradient[i] * factor)
        b = np.float32(decay * np.float64(momentum[i]) + g)
        ahead = np.float32(g + decay * np.float64(b))
        p = np.float32(np.float64(parameter[i]) - rate * np.float64(ahead))
        gradient[i] = b
        stepped[i] = p
        lost += not abs(p) < np.inf
    return lost


def add_piece(
    parts: Sequence[Coded],
    scales: Wide,
    voices: Wide,
    history: Floats,
    out: Floats,
    sums: Wide,
) -> None:
    """Add up one piece of a tensor: what `rules.add_up` and `direction.Listener` do with a chunk.

    `parts` are one delta's elements each, float32 or bf16 words. `voices` and `history` are empty
    where they are not asked for. Writes the weighted sum to `out`, and to `sums` one row a block,
    of columns as `Columns` has them.
    """
    whole = len(out) // BLOCK_ELEMENTS * BLOCK_ELEMENTS
    if whole:
        _add([part[:whole] for part in parts], scales, voices, history[:whole], out[:whole], sums)
    if whole < len(out):
        last = slice(whole, len(out))
        total = np.empty(BLOCK_ELEMENTS, np.float32)
        rest = [_padded(part[last]) for part in parts]
        past = _padded(history[last]) if len(history) else history
        _add(rest, scales, voices, past, total, sums[-1:])
        out[last] = total[: len(out) - whole]


def step_piece(
    parameter: Floats,
    momentum: Floats | None,
    gradient: Floats,
    factor: float,
    rates: tuple[float, float],
    stepped: Floats,
) -> bool:
    """Take the outer step on one piece: what `outer.outer_chunk` does with `factor` x gradient.

    The new momentum is written over the gradient, the new parameter to `stepped`; `rates` are lr
    and mu as float32 values. Whether all is finite.
    """
    if factor == 0.0:
        gradient.fill(0.0)  # and not a product, whose zeros would have signs
        factor = 1.0
    before = np.full(len(gradient), -0.0, np.float32) if momentum is None else momentum
    return not _step(parameter, before, gradient, np.float32(factor), *rates, stepped)


def _add(
    parts: Sequence[Coded], scales: Wide, voices: Wide, history: Floats, out: Floats, sums: Wide
) -> None:
    addresses = np.array([part.ctypes.data for part in parts], np.uint64)
    seen = np.empty(1, parts[0].dtype)
    _add_blocks(addresses, parts[0], scales, voices, history, out, sums, seen)


def _padded(part: Any) -> Any:
    """A last block filled up with zeros, which change no sum."""
    block = np.zeros(BLOCK_ELEMENTS, part.dtype)
    block[: len(part)] = part
    return block
