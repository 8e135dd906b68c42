"""Which delta points elsewhere: cosines from sums, verdicts, and what nobody can know."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from decodiloco.merge import direction
from decodiloco.merge.direction import (
    DOUBT,
    Agreement,
    Heard,
    Listener,
    agreements,
    doubted,
    may_leave_out,
    odd_one_out,
    together,
    units,
)
from decodiloco.merge.exact import CHUNK_ELEMENTS, Floats, in_order, square_sum

ELEMENTS = 20_000
FLIP = -0.5


def around(seed: int, goal: Floats, noise: float = 1.0) -> Floats:
    """The goal with noise of a length of its own."""
    draw = np.random.default_rng(seed)
    return goal + np.float32(noise) * draw.standard_normal(goal.size).astype(np.float32)


GOAL = np.random.default_rng(99).standard_normal(ELEMENTS).astype(np.float32)
HONEST = [around(seed, GOAL) for seed in range(4)]
RANDOM = np.random.default_rng(77).standard_normal(ELEMENTS).astype(np.float32)


def heard(deltas: Sequence[Floats], history: Floats | None = None) -> Heard:
    """What a listener hears of a tensor, in chunks."""
    voices = units([math.sqrt(square_sum(delta)) for delta in deltas])
    listener = Listener(voices, deltas[0].size, history is not None)
    for start in range(0, deltas[0].size, CHUNK_ELEMENTS):
        part = slice(start, start + CHUNK_ELEMENTS)
        listener.chunk(
            [delta[part] for delta in deltas], None if history is None else history[part]
        )
    return listener.heard()


def found(deltas: Sequence[Floats], history: Floats | None = None) -> tuple[Agreement | None, ...]:
    squares = [square_sum(delta) for delta in deltas]
    voices = units([math.sqrt(square) for square in squares])
    return agreements(heard(deltas, history), voices, squares)


def odd(deltas: Sequence[Floats], history: Floats | None = None, limit: float = FLIP) -> int | None:
    return odd_one_out(found(deltas, history), [limit] * len(deltas), deltas[0].size)


def test_agreements_are_the_mean_cosines_of_all_pairs() -> None:
    deltas = [*HONEST[:2], np.float32(1000) * HONEST[2], RANDOM]
    wide = [delta.astype(np.float64) / np.linalg.norm(delta.astype(np.float64)) for delta in deltas]
    cosines = np.array([[a @ b for b in wide] for a in wide])
    for place, one in enumerate(found(deltas)):
        others = [k for k in range(4) if k != place]
        own = np.mean([cosines[place, k] for k in others])
        rest = np.mean([cosines[j, k] for j in others for k in others if j < k])
        assert one is not None
        assert (one.own, one.rest) == pytest.approx((own, rest), abs=1e-6)


def test_no_sum_of_floats_is_left_to_python_whose_own_changed_its_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tenths = (0.1,) * 10
    assert in_order(tenths) != math.fsum(tenths)
    sums = Heard(cohort=(0.3,) * 10, squares=3.0, histories=tenths, history=1.0)
    told = agreements(sums, (1.0,) * 10, tenths)
    monkeypatch.setattr(direction, "sum", math.fsum, raising=False)
    assert agreements(sums, (1.0,) * 10, tenths) == told


def test_a_history_is_one_more_voice() -> None:
    deltas = HONEST[:2]
    wide = [array.astype(np.float64) for array in (*deltas, GOAL)]
    cosines = [
        a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        for a, b in ((wide[0], wide[1]), (wide[0], wide[2]), (wide[1], wide[2]))
    ]
    first, second, history = found(deltas, GOAL)
    assert first is not None and second is not None and history is not None
    assert first.own == pytest.approx((cosines[0] + cosines[1]) / 2, abs=1e-6)
    assert first.rest == pytest.approx(cosines[2], abs=1e-6)
    assert history.rest == pytest.approx(cosines[0], abs=1e-6)


def test_the_sums_of_tensors_are_added_up() -> None:
    one, other = heard(HONEST), heard([*HONEST[1:], HONEST[0]])
    both = together([one, other])
    assert both.squares == one.squares + other.squares
    assert both.cohort == tuple(a + b for a, b in zip(one.cohort, other.cohort, strict=True))


def test_chunks_give_the_bits_of_the_numpy_definition() -> None:
    size = CHUNK_ELEMENTS + 77
    deltas = [around(seed, np.resize(GOAL, size)) for seed in range(3)]
    voices = units([math.sqrt(square_sum(delta)) for delta in deltas])
    total = np.zeros(size)
    for voice, delta in zip(voices, deltas, strict=True):
        total = total + voice * delta.astype(np.float64)
    assert heard(deltas).squares == square_sum(total.astype(np.float32))


def test_a_reversed_delta_among_three_or_four_is_found() -> None:
    assert odd([-HONEST[0], *HONEST[1:]]) == 0
    assert odd([HONEST[0], HONEST[1], -HONEST[2]]) == 2
    assert odd(HONEST) is None


def test_a_heavy_liar_has_one_voice_only() -> None:
    assert odd([*HONEST[:3], np.float32(-1000) * HONEST[3]]) == 3


def test_two_against_two_leave_nobody_out() -> None:
    assert odd([HONEST[0], HONEST[1], -HONEST[2], -HONEST[3]]) is None


def test_of_two_the_history_tells_who_is_right_and_without_it_nobody_knows() -> None:
    assert odd([HONEST[0], -HONEST[1]]) is None
    assert odd([HONEST[0], -HONEST[1]], GOAL) == 1
    assert odd([HONEST[0], HONEST[1]], -GOAL) is None, "the history is the odd one"
    weak = around(5, GOAL, noise=9.0)
    assert odd([HONEST[0], -HONEST[1]], weak) is None, "momentum that overshoots does not tell"


def test_where_the_others_agree_on_nothing_nobody_is_left_out() -> None:
    strangers = [around(seed, np.zeros_like(GOAL)) for seed in range(3)]
    assert odd([*strangers, -GOAL]) is None


def test_few_elements_agree_by_chance_and_prove_nothing() -> None:
    few = [delta[:12] for delta in HONEST]
    assert odd_one_out(found([-few[0], *few[1:]]), [FLIP] * 4, 12) is None


def test_a_random_delta_is_doubted_and_left_out_only_of_who_is_distrusted() -> None:
    deltas = [*HONEST[:3], RANDOM]
    assert doubted(found(deltas), 4, ELEMENTS) == (3,)
    assert odd(deltas) is None
    assert odd_one_out(found(deltas), [FLIP, FLIP, FLIP, DOUBT], ELEMENTS) == 3
    assert doubted(found(HONEST), 4, ELEMENTS) == ()


def test_a_delta_of_zeros_has_no_voice() -> None:
    zeros = np.zeros_like(GOAL)
    told = found([*HONEST[:3], zeros])
    assert told[3] is None
    assert told[:3] == found(HONEST[:3])
    assert found([HONEST[0], HONEST[1], zeros]) == (None, None, None)


def test_never_half_of_the_voices_are_left_out() -> None:
    assert [may_leave_out(4 - gone, gone, False) for gone in range(2)] == [True, False]
    assert [may_leave_out(5 - gone, gone, False) for gone in range(3)] == [True, True, False]
    assert may_leave_out(2, 0, True) and not may_leave_out(2, 0, False)
