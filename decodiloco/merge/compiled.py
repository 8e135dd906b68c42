"""Merge v1 in compiled loops: the bits of the numpy form, at the speed of memory.

Importing this compiles, or loads what was compiled before; so import it before there is a hurry.
Pieces of a tensor go in here, of any length; no stores, no rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from decodiloco.merge.exact import BLOCK_ELEMENTS, Floats, Wide
from decodiloco.merge.loops import add_blocks, step_all

Coded = npt.NDArray[np.float32] | npt.NDArray[np.uint16]


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
    return bool(step_all(parameter, before, gradient, stepped, np.float32(factor), *rates))


def _add(
    parts: Sequence[Coded], scales: Wide, voices: Wide, history: Floats, out: Floats, sums: Wide
) -> None:
    addresses = np.array([part.ctypes.data for part in parts], np.uint64)
    add_blocks(addresses, parts[0].itemsize, scales, voices, history, out, sums)


def _padded(part: Any) -> Any:
    """A last block filled up with zeros, which change no sum."""
    block = np.zeros(BLOCK_ELEMENTS, part.dtype)
    block[: len(part)] = part
    return block
