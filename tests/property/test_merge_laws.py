"""Laws of the merge: what holds for any deltas and weights (style.md, "Laws")."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from decodiloco.merge import merge_tensor, token_weight
from decodiloco.merge.exact import shares, square_sum
from decodiloco.merge.rules import NORM_MAX, Rule
from decodiloco.store.codecs import decode, encode
from tests.merge_orders import numbers

BOTH = pytest.mark.parametrize("rule", ["radial", "mean"])
Vector = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

MODERATE = st.floats(-1000, 1000, width=32).map(lambda value: value if abs(value) > 1e-3 else 0.0)
ANY_FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(
    lambda value: abs(value) < NORM_MAX / 64
)
WEIGHT = st.builds(token_weight, st.integers(1, 2**40), st.integers(1, 10_000))


def vectors(elements: st.SearchStrategy[float] = MODERATE) -> st.SearchStrategy[Vector]:
    return arrays(np.float32, st.just(7), elements=elements)


def several(elements: st.SearchStrategy[float] = MODERATE) -> st.SearchStrategy[list[Vector]]:
    return st.lists(vectors(elements), min_size=1, max_size=6)


def weighted(
    elements: st.SearchStrategy[float] = MODERATE,
) -> st.SearchStrategy[list[tuple[Vector, Fraction]]]:
    return st.lists(st.tuples(vectors(elements), WEIGHT), min_size=1, max_size=6)


def merged(pairs: list[tuple[Vector, Fraction]], rule: Rule) -> Vector:
    return merge_tensor([delta for delta, _ in pairs], [weight for _, weight in pairs], rule)


def length(array: Vector) -> float:
    return math.sqrt(square_sum(array.astype(np.float32)))


def direction_is_sound(pairs: list[tuple[Vector, Fraction]]) -> bool:
    """The directions do not nearly cancel: else rounding may choose between them and zeros."""
    units = [
        float(share) * delta.astype(np.float64) / length(delta)
        for (delta, _), share in zip(pairs, shares([weight for _, weight in pairs]), strict=True)
        if length(delta)
    ]
    return not units or float(np.linalg.norm(sum(units))) > 1e-2


@BOTH
@given(delta=vectors(ANY_FINITE), weight=WEIGHT)
def test_one_contributor_gives_itself_bit_for_bit(
    rule: Rule, delta: Vector, weight: Fraction
) -> None:
    assert merged([(delta, weight)], rule).tobytes() == delta.tobytes()


@BOTH
@given(delta=vectors(), weights=st.lists(WEIGHT, min_size=1, max_size=6))
def test_equal_deltas_give_that_delta(rule: Rule, delta: Vector, weights: list[Fraction]) -> None:
    together = merged([(delta, weight) for weight in weights], rule)
    assert np.abs(together - delta).max() <= 1e-6 * np.abs(delta).max()


@BOTH
@given(pairs=weighted(), exponent=st.integers(-20, 20))
def test_scaling_all_by_a_power_of_two_scales_the_result_bit_for_bit(
    rule: Rule, pairs: list[tuple[Vector, Fraction]], exponent: int
) -> None:
    factor = np.float32(2.0**exponent)
    scaled = merged([(delta * factor, weight) for delta, weight in pairs], rule)
    assert scaled.tobytes() == (merged(pairs, rule) * factor).tobytes()


@BOTH
@given(pairs=weighted(), angle=st.floats(0, 2 * math.pi))
def test_rotating_all_rotates_the_result(
    rule: Rule, pairs: list[tuple[Vector, Fraction]], angle: float
) -> None:
    if rule == "radial" and not direction_is_sound(pairs):
        return
    turn = np.eye(7)
    turn[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    turned = merged([((turn @ delta).astype(np.float32), weight) for delta, weight in pairs], rule)
    longest = max(length(delta) for delta, _ in pairs)
    assert np.abs(turned - turn @ merged(pairs, rule)).max() <= 1e-4 * longest


@BOTH
def test_any_order_of_ordinary_deltas_gives_the_same_bits(rule: Rule) -> None:
    # What is promised is one order, that of learner ids. Float64 sums are moreover so much finer
    # than float32 that orders do not show.
    pairs = [(numbers(100_003, seed), Fraction(seed, 7)) for seed in range(1, 6)]
    orders = [pairs, pairs[::-1], pairs[2:] + pairs[:2], pairs[::2] + pairs[1::2]]
    assert len({merged(order, rule).tobytes() for order in orders}) == 1


@BOTH
@given(pairs=weighted(), seed=st.randoms(use_true_random=False))
def test_any_order_of_any_deltas_is_the_same_within_one_rounding(
    rule: Rule, pairs: list[tuple[Vector, Fraction]], seed: Random
) -> None:
    if rule == "radial" and not direction_is_sound(pairs):
        return
    shuffled = list(pairs)
    seed.shuffle(shuffled)
    longest = max(length(delta) for delta, _ in pairs)
    assert np.abs(merged(pairs, rule) - merged(shuffled, rule)).max() <= 2e-7 * longest


@given(pairs=weighted())
def test_a_radial_merge_has_the_weighted_mean_of_the_norms(
    pairs: list[tuple[Vector, Fraction]],
) -> None:
    if not direction_is_sound(pairs):
        return
    w = shares([weight for _, weight in pairs])
    wanted = sum(s * length(delta) for s, (delta, _) in zip(w, pairs, strict=True)) / sum(w)
    assert length(merged(pairs, "radial")) == pytest.approx(wanted, rel=1e-5)


@BOTH
@given(pairs=weighted(ANY_FINITE), clip=st.none() | st.floats(0.1, 10))
def test_any_finite_deltas_merge_to_something_finite(
    rule: Rule, pairs: list[tuple[Vector, Fraction]], clip: float | None
) -> None:
    deltas = [delta for delta, _ in pairs]
    weights = [weight for _, weight in pairs]
    assert np.isfinite(merge_tensor(deltas, weights, rule, clip)).all()


@BOTH
@given(pairs=weighted(), clip=st.floats(0.1, 10))
def test_a_clipped_merge_is_no_longer_than_the_longest_allowed(
    rule: Rule, pairs: list[tuple[Vector, Fraction]], clip: float
) -> None:
    norms = sorted(length(delta) for delta, _ in pairs if length(delta) > 0)
    if len(pairs) < 3 or not norms:
        return
    middle = (norms[(len(norms) - 1) // 2] + norms[len(norms) // 2]) / 2
    out = merge_tensor([delta for delta, _ in pairs], [weight for _, weight in pairs], rule, clip)
    assert length(out) <= clip * middle * (1 + 1e-6)


@BOTH
@given(delta=vectors(), weight=WEIGHT)
def test_opposed_deltas_of_one_weight_cancel_to_zeros(
    rule: Rule, delta: Vector, weight: Fraction
) -> None:
    assert merged([(delta, weight), (-delta, weight)], rule).tolist() == [0.0] * 7


@given(weights=st.lists(WEIGHT, min_size=1, max_size=50))
def test_shares_sum_to_one(weights: list[Fraction]) -> None:
    assert sum(shares(weights)) == pytest.approx(1, abs=1e-5)


@given(tokens=st.integers(1, 2**50), more=st.integers(0, 2**50), steps=st.integers(1, 2**20))
def test_more_tokens_never_weigh_less(tokens: int, more: int, steps: int) -> None:
    assert token_weight(tokens + more, steps) >= token_weight(tokens, steps)


@given(weights=st.lists(WEIGHT, min_size=2, max_size=10), more=st.integers(0, 2**40))
def test_a_greater_weight_never_has_the_smaller_share(weights: list[Fraction], more: int) -> None:
    heavier = [weights[0] + more, *weights[1:]]
    assert shares(heavier)[0] >= shares(weights)[0]


@settings(max_examples=200)
@given(arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32, allow_nan=False)))
def test_a_codec_is_within_its_rounding_and_fp32_is_exact(values: Vector) -> None:
    assert decode(encode(values, "fp32"), "fp32").tobytes() == values.tobytes()
    near = decode(encode(values, "bf16"), "bf16")
    finite = np.isfinite(values) & np.isfinite(near)
    off = np.abs(near[finite] - values[finite])
    assert (off <= np.abs(values[finite]) * 2.0**-8 + 2.0**-134).all()
