"""The order of fragments, the pace of rounds, and the rounds that a learner must be ready for."""

from __future__ import annotations

import pytest

from decodiloco.fragments.schedule import fragment_of, pace_steps, rounds_ahead


def test_rounds_begin_at_one_and_go_through_the_fragments_in_order() -> None:
    assert [fragment_of(number, 3) for number in range(1, 8)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("inner", "fragments", "pace"), [(24, 24, 1.0), (12, 24, 0.5), (36, 24, 1.5)]
)
def test_the_pace_is_inner_steps_over_fragments(inner: int, fragments: int, pace: float) -> None:
    assert pace_steps(inner, fragments) == pace


def test_a_learner_of_the_pace_is_ready_for_the_next_round_only() -> None:
    assert list(rounds_ahead(7, 1.0, 0.5, 1.0, 24)) == [8]


def test_a_slow_learner_is_ready_for_several_rounds() -> None:
    assert list(rounds_ahead(7, 1.0, 0.5, 4.0, 24)) == [8, 9, 10, 11]


def test_an_overdue_round_may_open_at_any_moment_and_the_one_after_a_pace_later() -> None:
    assert list(rounds_ahead(7, 2.0, 50.0, 1.0, 24)) == [8]
    assert list(rounds_ahead(7, 2.0, 50.0, 2.0, 24)) == [8, 9]


def test_a_round_that_opens_after_the_next_boundary_can_wait() -> None:
    assert list(rounds_ahead(7, 24.0, 3.0, 1.0, 1)) == []


def test_no_fragment_is_named_twice_however_slow_a_learner_is() -> None:
    assert list(rounds_ahead(0, 0.0, 0.0, 1.0, 4)) == [1, 2, 3, 4]
