"""The rules on arrays: mean, radial-directional, clipping, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import decodiloco.merge
from decodiloco.merge import merge_tensor, token_weight
from decodiloco.merge.exact import square_sum
from decodiloco.merge.rules import NORM_MIN, Clipping, Plan, median, plan_merge
from tests.merge_orders import numbers


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def paper_radial(deltas: list[np.ndarray], weights: list[float]) -> np.ndarray:
    """Radial-directional averaging as the paper has it, in float64 throughout."""
    wide = [delta.astype(np.float64) for delta in deltas]
    norms = [math.sqrt((one * one).sum()) for one in wide]
    direction = sum(w * one / n for w, one, n in zip(weights, wide, norms, strict=True))
    radial = sum(w * n for w, n in zip(weights, norms, strict=True)) / sum(weights)
    return radial * direction / math.sqrt((direction * direction).sum())


def test_the_package_says_what_is_public() -> None:
    assert sorted(decodiloco.merge.__all__) == ["merge_tensor", "outer_step", "token_weight"]


def test_a_weight_is_tokens_times_tokens_a_step() -> None:
    assert token_weight(900, 24) == Fraction(900 * 900, 24)
    with pytest.raises(ValueError, match="at least 1"):
        token_weight(900, 0)


def test_radial_averaging_is_the_papers() -> None:
    deltas = [numbers(100_003, seed, size) for seed, size in ((1, 1.0), (2, 0.5), (3, 3.0))]
    ours = merge_tensor(deltas, [3, 1, 2], "radial")
    wanted = paper_radial(deltas, [3, 1, 2])
    assert np.abs(ours - wanted).max() <= 4e-7 * np.abs(wanted).max()


def test_a_mean_is_the_weighted_mean() -> None:
    ours = merge_tensor([vector(1, 2), vector(3, -2)], [3, 1], "mean")
    assert ours.tolist() == [1.5, 1.0]


def test_the_shape_stays() -> None:
    table = numbers(12, 1).reshape(3, 4)
    assert merge_tensor([table, table.copy()], [1, 1]).shape == (3, 4)
    assert merge_tensor([vector(2).reshape(())], [1]).shape == ()


def test_right_angles_keep_the_mean_norm_where_a_mean_would_shrink() -> None:
    merged = merge_tensor([vector(3, 0), vector(0, 3)], [1, 1], "radial")
    assert merged == pytest.approx([3 / math.sqrt(2)] * 2, rel=1e-6)


@pytest.mark.parametrize("rule", ["radial", "mean"])
def test_opposed_directions_give_zeros(rule: str) -> None:
    delta = numbers(70_000, 3)
    merged = merge_tensor([delta, -delta], [1, 1], rule)
    assert merged.tobytes() == bytes(4 * 70_000)


def test_nearly_opposed_directions_give_zeros_not_noise() -> None:
    delta = numbers(70_000, 3)
    merged = merge_tensor([delta, delta * np.float32(-3.3)], [1, 1], "radial")
    assert not merged.any()


@pytest.mark.parametrize("rule", ["radial", "mean"])
def test_zeros_give_zeros(rule: str) -> None:
    zeros = np.zeros(5, np.float32)
    assert not merge_tensor([zeros, zeros], [1, 2], rule).any()


def test_a_zero_delta_has_no_direction_but_counts_in_the_mean_norm() -> None:
    merged = merge_tensor([vector(0, 0), vector(0, 4)], [1, 1], "radial")
    assert merged == pytest.approx([0, 2])


def test_a_vanishing_norm_counts_as_zero() -> None:
    tiny = vector(NORM_MIN / 4, 0)
    merged = merge_tensor([tiny, vector(0, 4)], [1, 1], "radial")
    assert merged == pytest.approx([0, 2])


def test_without_a_clip_nothing_is_clipped() -> None:
    merged = merge_tensor([vector(1), vector(1), vector(1000)], [1, 1, 1], "mean")
    assert merged == pytest.approx([334])


@pytest.mark.parametrize("rule", ["radial", "mean"])
def test_an_outlier_is_clipped_to_so_many_medians(rule: str) -> None:
    deltas = [vector(1), vector(1), vector(1000)]
    merged = merge_tensor(deltas, [1, 1, 1], rule, norm_clip=2.0)
    assert merged == pytest.approx([4 / 3])


def test_two_deltas_alone_are_never_clipped() -> None:
    merged = merge_tensor([vector(1), vector(1000)], [1, 1], "mean", norm_clip=1.0)
    assert merged == pytest.approx([500.5])


FULL = (4.0, 6.0) * 4  # medians of eight versions


def planned(norms: list[float], clipping: Clipping) -> Plan:
    return plan_merge("mean", [Fraction(1)] * len(norms), [n * n for n in norms], clipping)


def test_under_three_contributions_only_the_history_counts() -> None:
    plan = planned([500.0, 1000.0], Clipping(2.0, FULL))
    assert (plan.limit, plan.clips) == (10.0, (0.02, 0.01))


def test_from_three_on_round_and_history_count_together() -> None:
    plan = planned([1.0, 2.0, 1000.0], Clipping(2.0, FULL))
    assert plan.limit == 8.0


def test_a_round_that_agrees_on_long_deltas_is_not_cut_to_its_history() -> None:
    """After an outage all learners bring the work of many more steps than usual."""
    plan = planned([100.0, 110.0, 120.0], Clipping(2.0, FULL))
    assert (plan.limit, plan.clips) == (220.0, (1.0, 1.0, 1.0))


def test_a_history_that_is_not_full_yet_does_not_count() -> None:
    assert planned([1000.0], Clipping(2.0, FULL[:7])).limit is None
    assert planned([1.0, 2.0, 1000.0], Clipping(2.0, FULL[:7])).limit == 4.0


def test_neither_history_nor_clip_is_no_limit() -> None:
    assert planned([1.0], Clipping(2.0)).limit is None
    assert planned([1.0, 2.0, 3.0], Clipping(None, (1.0,))).limit is None


def test_a_tensor_that_never_moved_sets_no_limit() -> None:
    assert planned([5.0, 0.0, 0.0], Clipping(2.0, (0.0,) * 8)).limit == 10.0
    assert planned([5.0], Clipping(2.0, (0.0,) * 8)).limit is None


def test_the_median_of_a_merge_is_of_norms_as_they_went_in() -> None:
    plan = planned([3.0, 5.0, 1000.0], Clipping(2.0))
    assert plan.median == 5.0
    assert planned([1000.0], Clipping(2.0, (1.0,) * 8)).median == 2.0


def test_a_median_is_the_middle_or_the_mean_of_the_middle_two() -> None:
    assert median([]) == 0.0
    assert median([3.0, 0.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5


def test_radial_scales_leave_the_direction_of_a_clipped_delta_alone() -> None:
    squares = [1.0, 1.0, 10.0**6]
    free = plan_merge("radial", [Fraction(1)] * 3, squares, Clipping(None))
    clipped = plan_merge("radial", [Fraction(1)] * 3, squares, Clipping(2.0))
    assert free.scales == clipped.scales
    assert (free.radial, clipped.radial) == (pytest.approx(334), pytest.approx(4 / 3))


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30])
def test_what_is_not_finite_or_absurd_is_refused(poison: float) -> None:
    with pytest.raises(ValueError, match="not finite, or longer"):
        merge_tensor([vector(1.0), vector(poison)], [1, 1])


def test_misuse_is_refused() -> None:
    for deltas, weights in (
        ([], []),
        ([vector(1)], [1, 1]),
        ([vector(1), vector(1, 2)], [1, 1]),
        ([np.ones(1)], [1]),
        ([vector(1)], [0]),
        ([vector(1), vector(1)], [2, -1]),
    ):
        with pytest.raises(ValueError):
            merge_tensor(deltas, weights)


def test_nothing_that_was_given_is_written_to() -> None:
    deltas = [numbers(1000, 1), numbers(1000, 2)]
    before = [square_sum(one) for one in deltas]
    merge_tensor(deltas, [1, 2])
    assert [square_sum(one) for one in deltas] == before
