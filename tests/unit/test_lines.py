"""The table of what a region's line must carry: its formula, against time counted out."""

from __future__ import annotations

import pytest

from replay.goodput.bandwidth import Traffic, gigabits_needed
from tests.bench.lines import UTILISATIONS, gradients_reduced, needed, ours, streamed

STEP_SECONDS = 2.0
METHODS = (gradients_reduced(3e9), streamed(3e9, 4, fragments=6, inner_steps=24), ours("ours", 5e8))


def waited(traffic: Traffic, gigabits_per_second: float) -> float:
    """The utilisation counted out: payload by payload, what is not hidden is waited for."""
    computed = spent = 0.0
    for _ in range(100):
        sent_seconds = traffic.payload_gigabits / gigabits_per_second
        computed += traffic.spread * STEP_SECONDS
        spent += max(0.0, sent_seconds - traffic.hidden * STEP_SECONDS)
    return computed / (computed + spent)


@pytest.mark.parametrize("traffic", METHODS, ids=lambda each: each.name)
def test_a_line_that_carries_what_is_needed_has_that_utilisation(traffic: Traffic) -> None:
    counted = [waited(traffic, each) for each in needed(traffic, STEP_SECONDS)]
    assert counted == pytest.approx(UTILISATIONS)


def test_the_papers_line_of_data_parallelism_comes_out() -> None:
    """5.2 B parameters, 1 s a step, two regions (section E.4, table 13)."""
    found = [
        gigabits_needed(gradients_reduced(5.2e9), each, 1.0, 2) for each in (0.5, 0.75, 0.9, 0.95)
    ]
    assert found == pytest.approx([49, 81, 104, 113], rel=0.02)


def test_of_ours_a_thin_line_costs_pace_and_nothing_else() -> None:
    step_gigabits = 8e-9 * 5e8
    assert needed(ours("ours", 5e8), STEP_SECONDS) == pytest.approx(
        [share * step_gigabits / STEP_SECONDS for share in UTILISATIONS]
    )


def test_a_fragment_each_fourth_step_needs_a_fourth_of_the_line_to_catch_up() -> None:
    each_step = streamed(6e9, 16, fragments=24, inner_steps=24)
    each_fourth = streamed(6e9, 16, fragments=6, inner_steps=24)
    assert each_fourth.payload_gigabits == pytest.approx(4 * each_step.payload_gigabits)
    half = [gigabits_needed(one, 0.5, 1.0, 2) for one in (each_step, each_fourth)]
    assert half == pytest.approx([4.0 / 2, 16.0 / 5])
