"""A tensor's deltas added up, and stepped, piece by piece through the compiled loops.

Pieces may be done by several threads; each writes its own part of the result, and its own rows of
the table of sums, so any number of them gives the same bits. Knows streams of pieces; no stores.
The numpy form of all this is `rules.add_up`, `direction.Listener` and `outer.outer_chunk`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from decodiloco.merge.compiled import Coded, add_piece, step_piece
from decodiloco.merge.crew import Crew
from decodiloco.merge.direction import Heard
from decodiloco.merge.exact import BLOCK_ELEMENTS, CHUNK_ELEMENTS, Floats, rounded, tree_sum
from decodiloco.merge.rules import Plan, Total

Scalar = TypeVar("Scalar", np.float32, np.uint16)

_NO_VOICES = np.empty(0)
_NO_HISTORY = np.empty(0, np.float32)


def add_up(
    streams: Sequence[Iterator[Coded]],
    plan: Plan,
    elements: int,
    crew: Crew,
    voices: Sequence[float] = (),
    history: Iterator[Floats] | None = None,
) -> tuple[Total, Heard | None]:
    """The weighted sum of deltas by their plan's scales, and how they agree if they have voices.

    Each stream gives one delta's elements in pieces of CHUNK_ELEMENTS, the last shorter; so does
    `history`. Not for a plan that trims.
    """
    assert not plan.trims
    count = len(streams)
    columns = (count + 1) * (1 + (len(voices) > 0) + (history is not None))
    assert history is None or len(voices) > 0
    gradient = np.empty(elements, np.float32)
    sums = np.empty((-(-elements // BLOCK_ELEMENTS), columns))
    scales, units = np.array(plan.scales), np.array(voices) if len(voices) else _NO_VOICES
    for start in range(0, elements, CHUNK_ELEMENTS):
        out = gradient[start : start + CHUNK_ELEMENTS]
        block = start // BLOCK_ELEMENTS
        rows = sums[block : block + CHUNK_ELEMENTS // BLOCK_ELEMENTS]
        parts = [next(stream) for stream in streams]
        past = _NO_HISTORY if history is None else next(history)
        crew.do(partial(add_piece, parts, scales, units, past, out, rows))
    crew.finish()
    with np.errstate(all="ignore"):  # what is not finite shows in the sums of squares
        found = [tree_sum(column) + 0.0 for column in sums.T]  # the sign of a zero says nothing
    total = Total(gradient, found[count], tuple(found[:count]))
    if not voices:
        return total, None
    heard, remembered = found[count + 1 : 2 * count + 2], found[2 * count + 2 :]
    return total, Heard(
        tuple(heard[1:]), heard[0], tuple(remembered[1:]), remembered[0] if remembered else 0.0
    )


def step(
    parameters: Iterator[Floats],
    momentum: Iterator[Floats] | None,
    gradient: Floats,
    factor: float,
    rates: tuple[float, float],
    crew: Crew,
) -> tuple[Floats, Floats]:
    """The outer step on `factor` x gradient: the new parameter and momentum, 1-D.

    The momentum takes the gradient's place. `rates` are lr and mu. Both streams give pieces of
    CHUNK_ELEMENTS. The result is finite, or an assertion fails.
    """
    stepped = np.empty_like(gradient)
    lr, mu = (rounded(rate) for rate in rates)
    for start in range(0, len(gradient), CHUNK_ELEMENTS):
        part = slice(start, start + CHUNK_ELEMENTS)
        before = None if momentum is None else next(momentum)
        arrays = next(parameters), before, gradient[part]
        crew.do(partial(_stepped, arrays, factor, (lr, mu), stepped[part]))
    crew.finish()
    return stepped, gradient


def _stepped(
    arrays: tuple[Floats, Floats | None, Floats],
    factor: float,
    rates: tuple[float, float],
    stepped: Floats,
) -> None:
    assert step_piece(*arrays, factor, rates, stepped), "not finite after the step"


def pieces(flat: npt.NDArray[Scalar]) -> Iterator[npt.NDArray[Scalar]]:
    """An array in pieces, as the streams give them."""
    for start in range(0, len(flat), CHUNK_ELEMENTS):
        yield flat[start : start + CHUNK_ELEMENTS]
