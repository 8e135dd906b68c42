"""Laws of the trimmed mean and the geometric median: order, scale, and what one liar can do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodiloco.merge import merge_tensor
from decodiloco.merge.exact import CHUNK_ELEMENTS, Floats
from decodiloco.merge.fragment import Merged, merge_fragment
from decodiloco.merge.rules import Rule
from decodiloco.merge.trimmed import trimmed_count
from replay.invariants.cohort import geometric_median, trimmed
from tests.merge_orders import FragmentBench, digests, filled, tensor

ROBUST: tuple[Rule, ...] = ("trimmed", "median")
ELEMENTS = 300

seeds = st.integers(0, 10_000)
sizes = st.floats(2.0**-20, 2.0**20, width=32)


def around(seed: int, spread: float = 0.3, elements: int = ELEMENTS) -> Floats:
    """One vector for all seeds, and noise of the seed's own."""
    goal = np.random.default_rng(4711).standard_normal(elements)
    noise = np.random.default_rng(seed).standard_normal(elements)
    return (goal + spread * noise).astype(np.float32)


def cohort(seed: int, count: int = 4) -> list[Floats]:
    return [around(seed * 100 + place) for place in range(count)]


@pytest.mark.parametrize("rule", ROBUST)
@given(seed=seeds, count=st.integers(1, 9))
def test_they_are_what_numpy_defines(rule: Rule, seed: int, count: int) -> None:
    deltas = cohort(seed, count)
    weights = [float(place + 1) for place in range(count)]
    shares = [weight / sum(weights) for weight in weights]
    definition = {"trimmed": trimmed, "median": geometric_median}[rule]
    wanted = definition([delta.astype(np.float64) for delta in deltas], shares)
    assert np.abs(merge_tensor(deltas, weights, rule) - wanted).max() < 1e-5


@pytest.mark.parametrize("rule", ROBUST)
@given(seed=seeds, order=st.permutations(range(4)))
def test_whose_id_comes_first_does_not_matter(rule: Rule, seed: int, order: list[int]) -> None:
    deltas, weights = cohort(seed), [1.0, 2.0, 3.0, 1.5]
    merged = merge_tensor(deltas, weights, rule)
    other = merge_tensor([deltas[k] for k in order], [weights[k] for k in order], rule)
    np.testing.assert_allclose(other, merged, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rule", ROBUST)
@given(seed=seeds, power=st.integers(-20, 20))
def test_scaling_all_by_a_power_of_two_scales_the_result_to_the_bit(
    rule: Rule, seed: int, power: int
) -> None:
    deltas, scale = cohort(seed), np.float32(2.0**power)
    merged = merge_tensor(deltas, [1, 1, 2, 3], rule)
    scaled = merge_tensor([scale * delta for delta in deltas], [1, 1, 2, 3], rule)
    assert np.array_equal(scaled, scale * merged)


@pytest.mark.parametrize("rule", ROBUST)
@given(seed=seeds, count=st.integers(1, 6))
def test_equal_deltas_give_that_delta(rule: Rule, seed: int, count: int) -> None:
    delta = around(seed)
    merged = merge_tensor([delta] * count, [1.0 + k for k in range(count)], rule)
    np.testing.assert_allclose(merged, delta, rtol=2e-7)


@pytest.mark.parametrize("rule", ROBUST)
def test_one_delta_is_its_own_merge_to_the_bit(rule: Rule) -> None:
    delta = around(3)
    assert np.array_equal(merge_tensor([delta], [5.0], rule), delta)


@given(seed=seeds, size=sizes, place=st.integers(0, 3))
def test_one_of_four_leaves_each_trimmed_number_between_those_of_the_others(
    seed: int, size: float, place: int
) -> None:
    honest = cohort(seed, 3)
    liar = np.float32(size) * np.random.default_rng(seed).standard_normal(ELEMENTS, np.float32)
    deltas = [*honest[:place], liar, *honest[place:]]
    merged = merge_tensor(deltas, [1, 1, 1, 1], "trimmed")
    table = np.stack(honest)
    assert (merged >= table.min(axis=0) - 1e-6).all()
    assert (merged <= table.max(axis=0) + 1e-6).all()


@given(seed=seeds, size=sizes, place=st.integers(0, 3))
def test_one_of_four_moves_the_median_no_further_than_three_times_the_others_spread(
    seed: int, size: float, place: int
) -> None:
    honest = cohort(seed, 3)
    liar = np.float32(size) * np.random.default_rng(seed).standard_normal(ELEMENTS, np.float32)
    deltas = [*honest[:place], liar, *honest[place:]]
    merged = merge_tensor(deltas, [1, 1, 1, 1], "median").astype(np.float64)
    centre = np.mean([delta.astype(np.float64) for delta in honest], axis=0)
    spread = max(float(np.linalg.norm(delta - centre)) for delta in honest)
    # Share 1/4 of arbitrary weight: at most 2 (1 - 1/4) / (1 - 2/4) = 3 spreads away.
    assert float(np.linalg.norm(merged - centre)) <= 3.0 * spread * 1.01


def test_the_mean_has_no_such_bound() -> None:
    deltas = [*cohort(1, 3), np.float32(1e6) * around(9)]
    assert float(np.linalg.norm(merge_tensor(deltas, [1, 1, 1, 1], "mean"))) > 1e6


def test_how_many_go_from_each_end() -> None:
    assert [trimmed_count(count) for count in range(1, 9)] == [0, 0, 1, 1, 1, 1, 2, 2]


def test_a_weight_moves_only_what_is_not_trimmed() -> None:
    deltas = [np.full(3, value, np.float32) for value in (0.0, 1.0, 2.0, 100.0)]
    assert merge_tensor(deltas, [1, 1, 3, 1000], "trimmed").tolist() == [1.75] * 3


def test_clipped_deltas_are_merged_as_clipped() -> None:
    deltas = [np.full(3, value, np.float32) for value in (1.0, 1.0, 1.0, 8.0)]
    for rule in ROBUST:
        merged = merge_tensor(deltas, [1, 1, 1, 1], rule, norm_clip=2.0)
        assert np.abs(merged - 1.0).max() < 1e-4


@pytest.mark.parametrize("rule", ROBUST)
def test_threads_and_chunks_give_the_same_bits(rule: str) -> None:
    tensors = (tensor("big", (CHUNK_ELEMENTS + 77,), rule), tensor("small", (40, 16), rule))
    bench = FragmentBench(f"robust-{rule}", tensors)
    order = bench.order({name: filled(seed, tensors=tensors) for seed, name in enumerate("abcd")})
    one, more = merge_fragment(order, bench.store), merge_fragment(order, bench.store, threads=3)
    assert isinstance(one, Merged) and isinstance(more, Merged)
    assert digests(one) == digests(more)
