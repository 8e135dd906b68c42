"""A tensor's deltas added up, and stepped, piece by piece through the compiled loops.

Pieces may be done by several threads; each writes its own part of the result, and its own rows of
the table of sums, so any number of them gives the same bits. Knows streams of pieces; no stores.
The numpy form of all this is `rules.add_up`, `direction.Listener` and `outer.outer_chunk`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from decodiloco.merge.compiled import Coded, add_piece, step_piece
from decodiloco.merge.direction import Heard
from decodiloco.merge.exact import BLOCK_ELEMENTS, CHUNK_ELEMENTS, Floats, Wide, rounded, tree_sum
from decodiloco.merge.rules import Plan, Sums

AHEAD = 2  # pieces that wait for each thread

Scalar = TypeVar("Scalar", np.float32, np.uint16)


class Place(Protocol):
    """Where a tensor's elements go, piece by piece: memory, or something that holds more."""

    elements: int

    def lend(self, start: int, stop: int) -> Floats:
        """Where these elements may be written; they count once they are kept."""

    def keep(self, start: int, piece: Floats) -> None:
        """Keeps what was lent, or was kept before, from `start` on, as it is now."""

    def kept(self, start: int, stop: int) -> Floats:
        """What was kept there. It may be written to, and kept or settled again."""

    def settle(self, start: int, piece: Floats) -> None:
        """Keeps it for the last time."""


class Whole:
    """An array as a place: what is written to its parts is kept."""

    def __init__(self, array: Floats) -> None:
        self._array = array
        self.elements = len(array)

    def lend(self, start: int, stop: int) -> Floats:
        return self._array[start:stop]

    def keep(self, start: int, piece: Floats) -> None:
        """Done: `piece` is a part of the array."""

    def kept(self, start: int, stop: int) -> Floats:
        return self._array[start:stop]

    def settle(self, start: int, piece: Floats) -> None:
        """Done, too."""


_NO_VOICES = np.empty(0)
_NO_HISTORY = np.empty(0, np.float32)


class Crew:
    """Who does the pieces: the calling thread, or a pool of others."""

    def __init__(self, pool: ThreadPoolExecutor | None = None, count: int = 0) -> None:
        self._pool = pool
        self._waiting_max = AHEAD * count
        self._waiting: deque[Future[None]] = deque()

    def do(self, work: Callable[[], None]) -> None:
        """Does it now, or has it done; what another thread raises is raised by a later call."""
        if self._pool is None:
            work()
            return
        if len(self._waiting) >= self._waiting_max:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(work))

    def finish(self) -> None:
        """Waits until all is done."""
        while self._waiting:
            self._waiting.popleft().result()


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


def put(flat: Floats, out: Place) -> None:
    """Keeps a whole array in a place."""
    for start in range(0, len(flat), CHUNK_ELEMENTS):
        piece = out.lend(start, min(start + CHUNK_ELEMENTS, len(flat)))
        piece[...] = flat[start : start + CHUNK_ELEMENTS]
        out.keep(start, piece)


def pieces(flat: npt.NDArray[Scalar]) -> Iterator[npt.NDArray[Scalar]]:
    """An array in pieces, as the streams give them."""
    for start in range(0, len(flat), CHUNK_ELEMENTS):
        yield flat[start : start + CHUNK_ELEMENTS]
