"""What measured times mean for a run."""

from __future__ import annotations

import pytest

from decodiloco.config import Run
from decodiloco.needs import needs_of


def run_of(**settings: object) -> Run:
    return Run.model_validate({"name": "trial", "window": {"step_seconds": 1.0}, **settings})


@pytest.mark.parametrize(
    ("upload_seconds", "download_seconds", "overlap"), [(0.0, 0.0, 2), (1.0, 1.0, 4), (3, 3, 8)]
)
def test_the_overlap_leaves_one_step_of_slack(
    upload_seconds: float, download_seconds: float, overlap: int
) -> None:
    needs = needs_of(run_of(fragments=24, inner_steps=24), upload_seconds, download_seconds)
    assert needs.overlap_needed == overlap


@pytest.mark.parametrize(
    ("upload_seconds", "steps"),
    [(0.0, 3), (1.0, 24), (4.0, 96)],  # at first slack decides, then the time across
)
def test_the_least_h_gives_each_fragment_time_to_cross(upload_seconds: float, steps: int) -> None:
    run = run_of(fragments=24, inner_steps=24)
    needs = needs_of(run, upload_seconds, 0.0)
    assert needs.inner_steps_needed == needs.plain()["inner_steps_needed"]
    assert (needs.inner_steps_needed, f"needed: {steps}" in needs.lines()[0]) == (steps, True)
    fits = needs_of(run_of(fragments=24, inner_steps=max(24, steps)), upload_seconds, 0.0)
    assert fits.overlap_needed <= fits.overlap_max


def test_overwriting_loses_the_time_from_copy_to_adoption() -> None:
    needs = needs_of(run_of(fragments=24, inner_steps=24), 1.0, 1.0)
    assert needs.lost_share == pytest.approx(3 / 24)


def test_carry_is_told_as_the_remedy_for_overwrite_where_much_is_lost() -> None:
    lossy = needs_of(run_of(fragments=24, inner_steps=24), 1.0, 1.0)
    assert any("adoption.carry = true keeps it" in line for line in lossy.lines())
    fine = needs_of(run_of(fragments=24, inner_steps=240), 1.0, 1.0)
    assert not any("carry" in line for line in fine.lines())
    carrying = needs_of(run_of(fragments=24, inner_steps=24, adoption={"carry": True}), 1.0, 1.0)
    assert carrying.plain()["lost_share"] == 0
    assert any("none, as adoption.carry is set" in line for line in carrying.lines())


def test_an_overlap_that_is_too_small_is_told() -> None:
    needs = needs_of(run_of(fragments=24, inner_steps=24, window={"overlap": 1}), 1.0, 1.0)
    assert any("window.overlap is 1" in line for line in needs.lines())


def test_a_network_that_is_too_slow_for_the_pace_is_told() -> None:
    needs = needs_of(run_of(fragments=2, inner_steps=2), 5.0, 5.0)
    assert any("raise inner_steps" in line for line in needs.lines())
