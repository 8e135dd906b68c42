"""How one tensor's deltas are scaled, clipped and added up. Knows arrays; no stores, no rounds.

`plan_merge` decides everything from weights and norms; `add_up` then makes one pass over the
elements; `finish` gives the result its length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from decodiloco.merge import loading
from decodiloco.merge.crew import Crew
from decodiloco.merge.exact import (
    CHUNK_ELEMENTS,
    Floats,
    SquareSum,
    WeightedSum,
    shares,
    square_sum,
)
from decodiloco.merge.geometric import Gram, gram_of, median_scales
from decodiloco.merge.mean import mean_scales
from decodiloco.merge.places import Whole
from decodiloco.merge.radial import directional_scales, mean_norm, radial_factor
from decodiloco.merge.trimmed import TrimmedSum

Rule = Literal["radial", "mean", "trimmed", "median"]

NORM_MAX = 2.0**64  # a longer delta is left out: sums of shorter ones stay finite in float32
NORM_MIN = 2.0**-100  # a shorter one counts as zero: w / norm would leave float32
HISTORY_VERSIONS = 8
VOICES_MIN = 3  # with fewer contributions a round's own median says nothing about an outlier


def token_weight(tokens: int, inner_steps: int) -> Fraction:
    """Weight a delta by the tokens behind it and by how few steps they took.

    w = c_tokens (c_tokens / c_steps) = tokens^2 / inner_steps, an exact ratio (paper section 3.2).
    Raises ValueError unless both are at least 1.
    """
    if tokens < 1 or inner_steps < 1:
        raise ValueError(f"{tokens} tokens in {inner_steps} steps: both must be at least 1")
    return Fraction(tokens * tokens, inner_steps)


def merge_tensor(
    deltas: Sequence[Floats],
    weights: Sequence[Fraction | float],
    rule: Rule = "radial",
    norm_clip: float | None = None,
) -> Floats:
    """Merge deltas of one tensor into its outer gradient.

    mean: sum_k w_k Delta_k / sum_k w_k. radial: radial-directional averaging, see
    `decodiloco.merge.radial`. trimmed, median: see `decodiloco.merge.trimmed` and `geometric`. A
    single delta is its own merge, bit for bit, by any rule.
    Deltas are float32 and of one shape, in learner-id order; weights are not negative and need
    not sum to one. With `norm_clip` and three deltas or more, norms are clipped to `norm_clip`
    times their median. A zero or cancelled direction gives zeros.
    Raises ValueError for other dtypes, unequal shapes, or what is not finite.
    """
    flat = _checked(deltas)
    squares = [square_sum(delta) for delta in flat]
    if not all(math.isfinite(value) and value <= NORM_MAX**2 for value in squares):
        raise ValueError("a delta is not finite, or longer than 2^64")
    exact_weights = [Fraction(weight) for weight in weights]
    if len(flat) != len(exact_weights) or min(exact_weights) < 0 or not any(exact_weights):
        raise ValueError("one weight a delta, none negative, not all zero")
    gram = None
    if rule == "median" and len(flat) > 1:
        gram = gram_of([_chunks(delta) for delta in flat], flat[0].size)
    plan = plan_merge(rule, exact_weights, squares, Clipping(norm_clip), gram)
    total = _added(flat, plan)
    finish(plan, total)
    return total.gradient.reshape(deltas[0].shape)


@dataclass(frozen=True, slots=True)
class Clipping:
    """What norms are clipped by: so many medians of this round and of the tensor's history.

    `history` holds the tensor's median norm in each of its last versions, oldest first. It
    counts once it is full: norms grow tenfold while a run warms up, and that is no fault.
    """

    norm_clip: float | None
    history: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is decided about a tensor before its elements are read, one value a contribution.

    `limit` is the norm that nothing exceeds (None: no clip); `radial` is the length that the
    result will have (None: the scales say it all). With `trims` the scales are weights, and each
    number's extremes are left out.
    """

    weights: tuple[float, ...]
    norms: tuple[float, ...]
    limit: float | None
    clips: tuple[float, ...]
    scales: tuple[float, ...]
    radial: float | None
    trims: bool = False

    @property
    def median(self) -> float:
        """The median of the norms that count, as they go into the merge; zero if none counts."""
        return median([norm * clip for norm, clip in zip(self.norms, self.clips, strict=True)])


def plan_merge(
    rule: Rule,
    weights: Sequence[Fraction],
    squares: Sequence[float],
    clipping: Clipping,
    gram: Gram | None = None,
) -> Plan:
    """Decide scales and clips from the weights and the deltas' sums of squares.

    The median wants the products of several deltas, too: their `gram`. All rules are the identity
    on a single delta; so that it is one to the bit, the mean's scale is taken for it.
    """
    w = shares(weights)
    norms = tuple(_norm(value) for value in squares)
    limit = _limit(norms, clipping)
    clips = tuple(1.0 if limit is None or norm <= limit else limit / norm for norm in norms)
    if rule == "mean" or len(norms) == 1:
        return Plan(w, norms, limit, clips, mean_scales(w, clips), None)
    if rule == "trimmed":
        return Plan(w, norms, limit, clips, w, None, trims=True)
    if rule == "median":
        assert gram is not None, "the median of several deltas wants their products"
        return Plan(w, norms, limit, clips, median_scales(w, clips, gram), None)
    scales = directional_scales(w, norms)
    return Plan(w, norms, limit, clips, scales, mean_norm(w, norms, clips))


@dataclass(frozen=True, slots=True)
class Sums:
    """What one pass over a tensor counts: the weighted sum's sum of squares, and the deltas'."""

    squares: float
    found: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """One pass over a tensor: the weighted sum, and its sums of squares."""

    gradient: Floats
    sums: Sums


def add_up(
    streams: Sequence[Iterator[Floats]],
    plan: Plan,
    elements: int,
    recount: bool = True,
    hear: Callable[[Sequence[Floats]], None] | None = None,
) -> Total:
    """Add scaled deltas in one pass of chunks that stay in cache.

    Each stream gives one delta's elements in float32 chunks of CHUNK_ELEMENTS, the last shorter.
    With `recount`, each delta's sum of squares is computed on the way, to be held against what
    its header said. `hear` is handed the deltas' chunks while they are in cache.
    """
    gradient = np.empty(elements, np.float32)
    adder: WeightedSum | TrimmedSum = WeightedSum(plan.scales, elements)
    if plan.trims:
        adder = TrimmedSum(plan.scales, plan.clips)
    own = SquareSum()
    found = [SquareSum() for _ in streams] if recount else []
    with np.errstate(all="ignore"):  # what is not finite shows in the sums of squares
        for start in range(0, elements, CHUNK_ELEMENTS):
            out = gradient[start : start + CHUNK_ELEMENTS]
            parts = [next(stream) for stream in streams]
            adder.chunk(parts, found, out)
            if hear is not None:
                hear(parts)
            own.add(out)
    return Total(gradient, Sums(own.total(), tuple(one.total() for one in found)))


def finish(plan: Plan, total: Total) -> tuple[float, float]:
    """Give the sum its length, in place; return the factor and the outer gradient's norm."""
    factor, norm = length_of(plan, total.sums)
    if factor == 0.0:
        total.gradient.fill(0.0)  # and not a product, whose zeros would have signs
    elif plan.radial is not None:
        np.multiply(total.gradient, np.float32(factor), out=total.gradient)
    return factor, norm


def length_of(plan: Plan, sums: Sums) -> tuple[float, float]:
    """The float32 factor that gives the sum its length, and the norm that it then has."""
    norm = math.sqrt(sums.squares)
    if plan.radial is None:
        return 1.0, norm
    factor = radial_factor(plan.radial, plan.weights, norm)
    return factor, factor * norm


def median(norms: Sequence[float]) -> float:
    """The median of the norms above zero: the middle one, or the mean of the middle two."""
    counted = sorted(norm for norm in norms if norm > 0.0)
    if not counted:
        return 0.0
    middle = len(counted) // 2
    if len(counted) % 2:
        return counted[middle]
    return (counted[middle - 1] + counted[middle]) / 2


def _added(flat: Sequence[Floats], plan: Plan) -> Total:
    """The sum of whole deltas: by the compiled loops where these know how."""
    streams = [_chunks(delta) for delta in flat]
    if plan.trims or not loading.are_ready():
        return add_up(streams, plan, flat[0].size, recount=False)
    from decodiloco.merge import adding  # with the loops

    gradient = np.empty(flat[0].size, np.float32)
    sums, _ = adding.add_up(streams, plan, Whole(gradient), Crew())
    return Total(gradient, sums)


def _limit(norms: Sequence[float], clipping: Clipping) -> float | None:
    history = clipping.history if len(clipping.history) == HISTORY_VERSIONS else ()
    middle = median(history)
    if len(norms) >= VOICES_MIN:  # the history may raise what a round agrees on, and never lower it
        middle = max(median(norms), median((*norms, *history)))
    if clipping.norm_clip is None or middle == 0.0:
        return None
    return clipping.norm_clip * middle


def _norm(squares: float) -> float:
    assert math.isfinite(squares) and 0.0 <= squares <= NORM_MAX**2, "the gates let it pass"
    norm = math.sqrt(squares)
    return norm if norm >= NORM_MIN else 0.0


def _checked(deltas: Sequence[Floats]) -> list[Floats]:
    if not deltas:
        raise ValueError("nothing to merge")
    shape = deltas[0].shape
    if any(delta.dtype != np.float32 or delta.shape != shape for delta in deltas):
        raise ValueError("deltas are float32 and of one shape")
    return [np.ascontiguousarray(delta).reshape(-1) for delta in deltas]


def _chunks(flat: Floats) -> Iterator[Floats]:
    for start in range(0, len(flat), CHUNK_ELEMENTS):
        yield flat[start : start + CHUNK_ELEMENTS]
