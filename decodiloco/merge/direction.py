"""Which delta points elsewhere than its cohort: cosines, and the verdict that follows from them.

One learner has one voice here, whatever its weight: who claims many tokens would else set the
direction that all are held against. Knows sums and chunks; no stores, no learners.

    u_k = 1 / ||Delta_k||, over the whole fragment; S = sum_k u_k Delta_k
    cos_jk = u_j u_k <Delta_j, Delta_k>
    own_k  = mean of cos_kj over the others j            = (u_k <Delta_k, S> - 1) / (n - 1)
    rest_k = mean of cos_ij over pairs of the others i,j, from <S, S> in the same way

Nothing but S and one product a delta is needed, so the pass that merges gives them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodiloco.merge.exact import (
    BLOCK_ELEMENTS,
    CHUNK_ELEMENTS,
    DotSum,
    Floats,
    SquareSum,
    in_order,
    rounded,
)

NORM_MIN = 2.0**-100  # a shorter delta has no voice, as it has no direction in the merge
VOICES_MIN = 3  # two that differ do not tell who is right
REST_MIN = 0.1  # the others agree less than this: nobody knows where the cohort goes
CHANCE = 4.0  # so many standard deviations of a random cosine, 1 / sqrt(elements), are no agreement
HISTORY_MIN = 0.5  # momentum overshoots, so it speaks up only where another agrees with it clearly
DOUBT = 0.05  # who agrees less than this share of how the others do may as well be random


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a voice agrees with the others (`own`), and they with each other (`rest`): cosines."""

    own: float
    rest: float


@dataclass(frozen=True, slots=True)
class Heard:
    """The sums of one tensor, or of a fragment: <Delta_k, S>, <S, S>, and those with the history.

    `histories` are <Delta_k, m>, and `history` is <m, m>, of the outer momentum m; empty and zero
    where it has no voice.
    """

    cohort: tuple[float, ...]
    squares: float
    histories: tuple[float, ...] = ()
    history: float = 0.0


def units(norms: Sequence[float]) -> tuple[float, ...]:
    """u_k as float32 values: a voice each, of length one; zero for a delta of no direction."""
    return tuple(rounded(1.0 / norm) if norm >= NORM_MIN else 0.0 for norm in norms)


class Listener:
    """Hears one tensor's chunks on the way: S of each chunk, and its products with the deltas.

    S is summed in float64 in the order of the contributions and rounded to float32, so that its
    products are exact. Memory: three chunks.
    """

    __slots__ = ("_cohort", "_histories", "_history", "_scratch", "_squares", "_sum", "_units")

    def __init__(self, voices: Sequence[float], elements: int, with_history: bool) -> None:
        assert all(voice == rounded(voice) for voice in voices)
        self._units = tuple(voices)
        blocks = min(-(-elements // BLOCK_ELEMENTS) * BLOCK_ELEMENTS, CHUNK_ELEMENTS)
        self._sum, self._scratch = np.empty((2, blocks))
        self._cohort = [DotSum() for _ in voices]
        self._squares = SquareSum()
        self._histories = [DotSum() for _ in voices] if with_history else []
        self._history = SquareSum()

    def chunk(self, parts: Sequence[Floats], history: Floats | None) -> None:
        """Count the same chunk of every delta, and of the momentum if it has a voice."""
        size = len(parts[0])
        total, scratch = self._sum[:size], self._scratch
        for place, (part, unit) in enumerate(zip(parts, self._units, strict=True)):
            if place == 0:
                np.multiply(part, unit, out=total, dtype=np.float64)
            else:
                np.multiply(part, unit, out=scratch[:size], dtype=np.float64)
                np.add(total, scratch[:size], out=total)
        total[...] = total.astype(np.float32)
        self._squares.add(total, scratch)
        for part, dot in zip(parts, self._cohort, strict=True):
            dot.add_products(part, total, scratch)
        if history is not None:
            self._history.add(history, scratch)
            for part, dot in zip(parts, self._histories, strict=True):
                dot.add_products(part, history, scratch)

    def heard(self) -> Heard:
        """The sums over everything that was counted."""
        return Heard(
            tuple(dot.total() for dot in self._cohort),
            self._squares.total(),
            tuple(dot.total() for dot in self._histories),
            self._history.total(),
        )


def together(tensors: Sequence[Heard]) -> Heard:
    """The sums of a fragment from those of its tensors, added in order."""
    cohort = [0.0] * len(tensors[0].cohort)
    histories = [0.0] * len(tensors[0].histories)
    squares = history = 0.0
    for heard in tensors:
        cohort = [a + b for a, b in zip(cohort, heard.cohort, strict=True)]
        histories = [a + b for a, b in zip(histories, heard.histories, strict=True)]
        squares += heard.squares
        history += heard.history
    return Heard(tuple(cohort), squares, tuple(histories), history)


def agreements(
    heard: Heard, voices: Sequence[float], squares: Sequence[float]
) -> tuple[Agreement | None, ...]:
    """One a delta, and one for the history behind them if it has a voice.

    `voices` are u_k and `squares` the deltas' sums of squares over the fragment. None for a delta
    without direction, and for all where fewer than three have a voice.
    """
    selves = [unit * unit * square for unit, square in zip(voices, squares, strict=True)]
    owns = [
        unit * dot - itself for unit, dot, itself in zip(voices, heard.cohort, selves, strict=True)
    ]
    pairs = (heard.squares - in_order(selves)) / 2
    has_voice = [unit > 0.0 for unit in voices]
    if heard.histories and heard.history > 0.0:
        length = math.sqrt(heard.history)
        told = [unit * dot / length for unit, dot in zip(voices, heard.histories, strict=True)]
        owns = [own + cosine for own, cosine in zip(owns, told, strict=True)]
        owns.append(in_order(told))
        pairs += owns[-1]
        has_voice.append(True)
    count = sum(has_voice)
    if count < VOICES_MIN:
        return (None,) * len(owns)
    others = (count - 1) * (count - 2) / 2
    return tuple(
        Agreement(own / (count - 1), (pairs - own) / others) if speaks else None
        for own, speaks in zip(owns, has_voice, strict=True)
    )


def odd_one_out(
    found: Sequence[Agreement | None], limits: Sequence[float], elements: int
) -> int | None:
    """The place of the delta that points elsewhere than the others, or None.

    It agrees with them less than its limit (a share of how they agree with each other), and they
    agree more than chance would have it in so many elements. Of several it is the one that agrees
    least. Behind the deltas' agreements that of the history may stand: if it is the odd one,
    nobody is left out.
    """
    least = _least(len(found) > len(limits), elements)
    with_history = (*limits, max(limits))
    odd = [
        (one.own, place)
        for place, (one, limit) in enumerate(zip(found, with_history, strict=False))
        if one is not None and one.rest >= least and one.own < limit * one.rest
    ]
    place = min(odd)[1] if odd else len(limits)
    return place if place < len(limits) else None


def doubted(found: Sequence[Agreement | None], deltas: int, elements: int) -> tuple[int, ...]:
    """The places of deltas that agree no more with the others than random ones would."""
    least = _least(len(found) > deltas, elements)
    return tuple(
        place
        for place, one in enumerate(found[:deltas])
        if one is not None and one.rest >= least and one.own < DOUBT * one.rest
    )


def may_leave_out(deltas: int, left_out: int, with_history: bool) -> bool:
    """Whether one more of these may go after so many: never half of the voices, or more."""
    return left_out + 1 <= (deltas + left_out + with_history - 1) // 2


def _least(with_history: bool, elements: int) -> float:
    least = max(REST_MIN, CHANCE / math.sqrt(elements))
    return max(HISTORY_MIN, least) if with_history else least
