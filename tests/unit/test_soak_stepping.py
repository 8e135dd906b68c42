"""How stepping time is counted: what is a stall, and what is no living time at all."""

from __future__ import annotations

import pytest

from tests.chaos.soak.stepping import EDGES, bins, gaps_of, lives_of, stepping

PACE = 0.25


def test_steps_at_their_pace_are_all_of_the_time() -> None:
    told = stepping([PACE] * 100, PACE)
    assert (told.share, told.steps, told.living_seconds) == (1.0, 100, 25.0)


def test_a_late_step_is_a_stall_for_all_that_exceeds_the_pace() -> None:
    told = stepping([PACE] * 39 + [PACE + 1.0], PACE)
    assert told.stalled_seconds == pytest.approx(1.0)
    assert told.share == pytest.approx(10 / 11)
    assert told.longest_gap_seconds == 1.25


def test_an_early_step_makes_no_stall_good() -> None:
    assert stepping([2 * PACE, 0.0], PACE).stalled_seconds == pytest.approx(PACE)


def test_time_in_which_a_process_was_stopped_is_no_living_time() -> None:
    assert gaps_of([0.0, 0.25, 5.5], [(0.3, 5.3)]) == [0.25, pytest.approx(0.25)]
    assert gaps_of([0.0, 1.0], [(-5.0, 0.5), (0.75, 9.0)]) == [pytest.approx(0.25)]


def test_the_time_between_two_lives_is_no_gap() -> None:
    journal = [
        {"life": 10, "at": 0.0},
        {"at": 0.0},
        {"at": 0.25},
        {"left": "preempted", "at": 0.3},
        {"life": 11, "at": 60.0},
        {"at": 60.0},
        {"finished": True, "at": 61.0},
    ]
    assert lives_of(journal) == [[0.0, 0.25], [60.0]]


def test_no_step_at_all_is_no_stall() -> None:
    assert stepping([], PACE).share == 1.0


def test_every_gap_is_in_one_bin_of_the_histogram() -> None:
    gaps = [edge * PACE for edge in EDGES] + [100.0]
    told = stepping(gaps, PACE)
    assert told.histogram == (1,) * len(bins(PACE))
