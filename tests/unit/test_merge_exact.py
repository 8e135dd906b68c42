"""Canonical arithmetic: shares, trees, sums, and a known answer that an odd machine fails."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from decodiloco.merge.exact import (
    BLOCK_ELEMENTS,
    CHUNK_ELEMENTS,
    SquareSum,
    WeightedSum,
    rounded,
    shares,
    square_sum,
    tree_sum,
)
from decodiloco.merge.self_test import KNOWN_ANSWER, self_test
from tests.merge_orders import numbers


def by_hand(values: list[float]) -> float:
    """A halving tree, written as its definition."""
    size = 1
    while size < len(values):
        size *= 2
    level = values + [0.0] * (size - len(values))
    while len(level) > 1:
        half = len(level) // 2
        level = [level[place] + level[place + half] for place in range(half)]
    return level[0]


def test_shares_are_exact_ratios_rounded_to_float64_and_then_to_float32() -> None:
    weights = [Fraction(900**2, 7), Fraction(1000**2, 24), Fraction(1)]
    total = sum(weights)
    assert shares(weights) == tuple(float(np.float32(float(one / total))) for one in weights)


def test_a_single_weight_is_a_share_of_one_whatever_its_size() -> None:
    assert shares([Fraction(2**106, 3)]) == (1.0,)


def test_a_tie_is_rounded_to_the_even_float32() -> None:
    assert rounded(1 + 2.0**-24) == 1.0
    assert rounded(1 + 3 * 2.0**-24) == 1 + 2.0**-22


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 100])
def test_any_number_of_blocks_is_summed_by_halving(count: int) -> None:
    values = np.abs(numbers(count, count)).astype(np.float64) ** 3
    assert tree_sum(values) == by_hand(values.tolist())


def test_nothing_sums_to_zero() -> None:
    assert tree_sum(np.empty(0)) == 0.0
    assert SquareSum().total() == 0.0


@pytest.mark.parametrize("elements", [1, 2, 16_383, 16_384, 16_385, 3 * 16_384 + 1])
def test_a_sum_of_squares_is_a_tree_of_blocks_of_trees(elements: int) -> None:
    array = numbers(elements, 5)
    squares = [float(value) ** 2 for value in array]
    blocks = [
        by_hand(
            squares[start : start + BLOCK_ELEMENTS]
            + [0.0] * (BLOCK_ELEMENTS - len(squares[start : start + BLOCK_ELEMENTS]))
        )
        for start in range(0, elements, BLOCK_ELEMENTS)
    ]
    assert square_sum(array) == by_hand(blocks)


@pytest.mark.parametrize("blocks", [1, 3, 16])
def test_the_size_of_the_chunks_changes_no_bit(blocks: int) -> None:
    array = numbers(2 * CHUNK_ELEMENTS + 4321, 6)
    found = SquareSum()
    for start in range(0, len(array), blocks * BLOCK_ELEMENTS):
        found.add(array[start : start + blocks * BLOCK_ELEMENTS])
    assert found.total() == square_sum(array)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 20_000, -1])
def test_what_is_not_finite_shows_in_the_sum(poison: float, place: int) -> None:
    array = numbers(50_000, 7)
    array[place] = poison
    assert not np.isfinite(square_sum(array))


def test_the_largest_and_the_smallest_numbers_have_finite_squares() -> None:
    largest = np.full(BLOCK_ELEMENTS, np.finfo(np.float32).max)
    assert square_sum(largest) == BLOCK_ELEMENTS * float(largest[0]) ** 2
    smallest = np.array([1e-45], np.float32)
    assert square_sum(smallest) == 2.0**-298


def test_a_chunk_after_the_last_is_a_bug() -> None:
    found = SquareSum()
    found.add(numbers(5, 1))
    with pytest.raises(AssertionError, match="ended within a block"):
        found.add(numbers(5, 1))


def test_a_weighted_sum_is_rounded_once() -> None:
    parts = [np.array([value], np.float32) for value in (1.0, 2.0**-24, 2.0**-48)]
    out = np.empty(1, np.float32)
    WeightedSum([1.0, 1.0, 1.0]).chunk(parts, [], out)
    assert out[0] == np.float32(1 + 2.0**-23)


def test_a_scale_that_is_no_float32_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        WeightedSum([0.1])


def test_this_machine_knows_the_answer() -> None:
    assert self_test().hex() == KNOWN_ANSWER


def test_a_thread_that_flushes_small_numbers_to_zero_is_found_out() -> None:
    # In a process of its own: the mode would stay with this one's threads.
    script = (
        "import torch\n"
        "from decodiloco.errors import Disagreement\n"
        "from decodiloco.merge.self_test import self_test\n"
        "self_test()\n"
        "assert torch.set_flush_denormal(True)\n"
        "try:\n"
        "    self_test()\n"
        "except Disagreement as error:\n"
        "    print('found', error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert told.stdout.startswith("found")
