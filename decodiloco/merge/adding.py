"""A tensor's deltas added up, and stepped, piece by piece through the compiled loops.

Pieces may be done by several threads; each writes its own part of the result, and its own rows of
the table of sums, so any number of them gives the same bits. Knows streams of pieces; no stores.
The numpy form of all this is `rules.add_up`, `direction.Listener` and `outer.outer_chunk`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from decodiloco.merge.compiled import Coded, add_piece, step_piece
from decodiloco.merge.crew import Crew
from decodiloco.merge.direction import Heard
from decodiloco.merge.exact import BLOCK_ELEMENTS, CHUNK_ELEMENTS, Floats, Wide, rounded, tree_sum
from decodiloco.merge.places import Place
from decodiloco.merge.rules import Plan, Sums

_NO_VOICES = np.empty(0)
_NO_HISTORY = np.empty(0, np.float32)


def add_up(
    streams: Sequence[Iterator[Coded]],
    plan: Plan,
    out: Place,
    crew: Crew,
    voices: Sequence[float] = (),
    history: Iterator[Floats] | None = None,
) -> tuple[Sums, Heard | None]:
    """The weighted sum of deltas by their plan's scales, and how they agree if they have voices.

    Each stream gives one delta's elements in pieces of CHUNK_ELEMENTS, the last shorter; so does
    `history`. The sum is kept in `out`. Not for a plan that trims.
    """
    assert not plan.trims
    count, elements = len(streams), out.elements
    columns = (count + 1) * (1 + (len(voices) > 0) + (history is not None))
    assert history is None or len(voices) > 0
    sums = np.empty((-(-elements // BLOCK_ELEMENTS), columns))
    scales, units = np.array(plan.scales), np.array(voices) if len(voices) else _NO_VOICES
    for start in range(0, elements, CHUNK_ELEMENTS):
        stop, block = min(start + CHUNK_ELEMENTS, elements), start // BLOCK_ELEMENTS
        rows = sums[block : block + CHUNK_ELEMENTS // BLOCK_ELEMENTS]
        parts = [next(stream) for stream in streams]
        past = _NO_HISTORY if history is None else next(history)
        crew.do(partial(_added, parts, scales, units, past, out, (start, stop), rows))
    crew.finish()
    with np.errstate(all="ignore"):  # what is not finite shows in the sums of squares
        found = [tree_sum(column) + 0.0 for column in sums.T]  # the sign of a zero says nothing
    total = Sums(found[count], tuple(found[:count]))
    if not voices:
        return total, None
    heard, remembered = found[count + 1 : 2 * count + 2], found[2 * count + 2 :]
    return total, Heard(
        tuple(heard[1:]), heard[0], tuple(remembered[1:]), remembered[0] if remembered else 0.0
    )


def step(
    parameters: Iterator[Floats],
    momentum: Iterator[Floats] | None,
    places: tuple[Place, Place],
    factor: float,
    rates: tuple[float, float],
    crew: Crew,
) -> None:
    """The outer step on `factor` x gradient.

    `places` are those of the new parameter and of the gradient, whose place the new momentum
    takes; both are settled. `rates` are lr and mu. Both streams give pieces of CHUNK_ELEMENTS. The
    result is finite, or an assertion fails.
    """
    lr, mu = (rounded(rate) for rate in rates)
    elements = places[0].elements
    for start in range(0, elements, CHUNK_ELEMENTS):
        stop = min(start + CHUNK_ELEMENTS, elements)
        before = next(parameters), None if momentum is None else next(momentum)
        crew.do(partial(_stepped, before, places, (start, stop), factor, (lr, mu)))
    crew.finish()


def _added(
    parts: Sequence[Coded],
    scales: Wide,
    voices: Wide,
    history: Floats,
    out: Place,
    at: tuple[int, int],
    rows: Wide,
) -> None:
    piece = out.lend(*at)
    add_piece(parts, scales, voices, history, piece, rows)
    out.keep(at[0], piece)


def _stepped(
    before: tuple[Floats, Floats | None],
    places: tuple[Place, Place],
    at: tuple[int, int],
    factor: float,
    rates: tuple[float, float],
) -> None:
    parameter, momentum = places
    stepped, gradient = parameter.lend(*at), momentum.kept(*at)
    finite = step_piece(*before, gradient, factor, rates, stepped)
    assert finite, "not finite after the step"
    parameter.settle(at[0], stepped)
    momentum.settle(at[0], gradient)
