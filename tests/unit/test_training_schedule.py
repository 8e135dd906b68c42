"""The inner learning rate on the run's clock."""

from __future__ import annotations

import itertools

import pytest

from decodiloco.config import End, Run, Training
from decodiloco.training.schedule import learning_rate, progress, rate_share

PEAK = 1e-3


def run(**ends: int) -> Run:
    training = Training(lr=PEAK, warmup_share=0.1)
    return Run(name="r", fragments=5, end=End(**ends), training=training)


@pytest.mark.parametrize(
    ("ends", "step", "tokens", "done"),
    [
        ({}, 100, 100, None),
        ({"steps": 200}, 50, 10**9, 0.25),
        ({"tokens": 400}, 10**9, 100, 0.25),
        ({"steps": 200, "tokens": 400}, 50, 300, 0.75),
        ({"steps": 200}, 205, 0, 1.0),
    ],
)
def test_progress_is_that_of_the_nearer_end(ends, step, tokens, done):
    assert progress(End(**ends), step, tokens) == done


@pytest.mark.parametrize(
    ("done", "share"), [(0.0, 0.1), (0.05, 0.55), (0.1, 1.0), (0.55, 0.55), (1.0, 0.1)]
)
def test_the_rate_warms_up_from_a_tenth_and_falls_back_to_it(done, share):
    assert rate_share(done, 0.1) == pytest.approx(share)


def test_the_rate_never_jumps():
    shares = [rate_share(index / 1000, 0.1) for index in range(1001)]

    assert max(abs(b - a) for a, b in itertools.pairwise(shares)) < 0.01


@pytest.mark.parametrize(("warmup", "first", "last"), [(0.0, 1.0, 0.1), (1.0, 0.1, 1.0)])
def test_a_run_may_be_all_warm_up_or_none(warmup, first, last):
    assert (rate_share(0.0, warmup), rate_share(1.0, warmup)) == pytest.approx((first, last))


def test_a_learner_has_a_rate_before_the_first_merge():
    assert learning_rate(run(steps=100), 0, 0) == pytest.approx(0.1 * PEAK)


def test_the_rate_follows_the_runs_tokens():
    assert learning_rate(run(tokens=1000), 3, 100) == pytest.approx(PEAK)
    assert learning_rate(run(tokens=1000), 3, 1000) == pytest.approx(0.1 * PEAK)


def test_a_run_without_an_end_keeps_its_peak_after_four_versions():
    rates = [learning_rate(run(), step, 0) for step in (0, 10, 20, 10**6)]

    assert rates == pytest.approx([0.1 * PEAK, 0.55 * PEAK, PEAK, PEAK])
