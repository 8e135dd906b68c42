"""A tensor's deltas added up, and stepped, in plain numpy: what the compiled loops must equal.

The same two functions as `decodiloco.merge.adding` has, one thread, on decoded elements. A plan
that trims has this form only. Knows streams of pieces; no stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from decodiloco.merge import rules
from decodiloco.merge.direction import Heard, Listener
from decodiloco.merge.exact import CHUNK_ELEMENTS, Floats
from decodiloco.merge.outer import outer_chunk
from decodiloco.merge.places import Place
from decodiloco.merge.rules import Plan, Total


def add_up(
    streams: Sequence[Iterator[Floats]],
    plan: Plan,
    elements: int,
    voices: Sequence[float] = (),
    history: Iterator[Floats] | None = None,
) -> tuple[Total, Heard | None]:
    """The weighted sum of deltas by their plan's scales, and how they agree if they have voices.

    Each stream gives one delta's elements in pieces of CHUNK_ELEMENTS, the last shorter; so does
    `history`.
    """
    if not voices:
        return rules.add_up(streams, plan, elements), None
    listener = Listener(voices, elements, history is not None)

    def hear(parts: Sequence[Floats]) -> None:
        listener.chunk(parts, None if history is None else next(history))

    return rules.add_up(streams, plan, elements, hear=hear), listener.heard()


def step(
    parameters: Iterator[Floats],
    momentum: Iterator[Floats] | None,
    gradient: Floats,
    factor: float,
    rates: tuple[float, float],
) -> tuple[Floats, Floats]:
    """The outer step on `factor` x gradient: the new parameter and momentum, 1-D.

    `rates` are lr and mu. Both streams give pieces of CHUNK_ELEMENTS.
    """
    length = np.multiply(gradient, np.float32(factor))
    if factor == 0.0:
        length.fill(0.0)  # and not a product, whose zeros would have signs
    stepped, moved = np.empty_like(gradient), np.empty_like(gradient)
    for start in range(0, len(gradient), CHUNK_ELEMENTS):
        part = slice(start, start + CHUNK_ELEMENTS)
        before = None if momentum is None else next(momentum)
        stepped[part], moved[part] = outer_chunk(next(parameters), before, length[part], *rates)
    return stepped, moved


def step_in(
    parameters: Iterator[Floats],
    momentum: Iterator[Floats] | None,
    places: tuple[Place, Place],
    factor: float,
    rates: tuple[float, float],
) -> None:
    """The same from and into places: see `decodiloco.merge.adding.step`."""
    parameter, moment = places
    for start in range(0, parameter.elements, CHUNK_ELEMENTS):
        stop = min(start + CHUNK_ELEMENTS, parameter.elements)
        gradient, new = moment.kept(start, stop), parameter.lend(start, stop)
        before = None if momentum is None else iter((next(momentum),))
        new[...], gradient[...] = step(iter((next(parameters),)), before, gradient, factor, rates)
        assert np.isfinite(new).all(), "not finite after the step"
        parameter.settle(start, new)
        moment.settle(start, gradient)
