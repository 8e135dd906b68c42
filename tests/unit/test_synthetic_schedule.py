"""When a learner steps, with how many slices, and where its lives end."""

from __future__ import annotations

import math

import pytest

from decodiloco.local.availability import Availability
from replay.goodput import draws
from replay.goodput.learner import Lived, Stretches, live
from replay.goodput.settings import scenario_of
from replay.synthetic.baseline import data_parallel
from replay.synthetic.life import sequences_of
from replay.synthetic.schedule import Life, Schedule, scavenged, under_failures, undisturbed

PAUSED = Schedule(
    Stretches([0.0, 30.0, 40.0], [20.0, 40.0, 60.0], [1.0, 0.5, 1.0]),
    [Life(0.0, math.inf, "never")],
)


def test_a_step_that_a_pause_cuts_goes_on_after_it() -> None:
    assert PAUSED.step_end(0.0, 5.0) == 5.0
    assert PAUSED.step_end(18.0, 5.0) == 33.0
    assert PAUSED.step_end(25.0, 5.0) == 35.0
    assert PAUSED.step_end(58.0, 5.0) == math.inf


def test_a_step_that_ends_as_a_pause_begins_is_done_before_it() -> None:
    assert PAUSED.step_end(15.0, 5.0) == 20.0


def test_the_share_of_slices_is_that_of_the_stepping_alone() -> None:
    assert PAUSED.share_between(0.0, 20.0) == 1.0
    assert PAUSED.share_between(30.0, 40.0) == 0.5
    assert PAUSED.share_between(18.0, 32.0) == pytest.approx((2.0 + 1.0) / 4.0)
    assert PAUSED.share_between(20.0, 30.0) == 1.0


def test_a_pause_has_an_end_and_the_last_one_has_none() -> None:
    assert [PAUSED.resumes_at(moment) for moment in (5.0, 20.0, 35.0)] == [5.0, 30.0, 35.0]
    assert PAUSED.resumes_at(60.0) == math.inf
    assert undisturbed().resumes_at(1e9) == 1e9


def test_an_outage_ends_a_life_and_a_reconfiguration_does_not() -> None:
    stretches = Stretches([0.0, 15.0, 50.0], [10.0, 30.0, 60.0], [1.0, 0.5, 1.0])
    schedule = under_failures(Lived({}, stretches, 2, [35.0]))
    assert schedule.lives == (Life(0.0, 30.0, "killed"), Life(50.0, math.inf, "never"))


def test_who_is_not_elastic_begins_a_new_life_after_each_failure() -> None:
    told = {"cluster": {"elastic": False, "learners": 1, "chips": 100_000}}
    scenario = scenario_of([], told)
    lived = live(scenario, 0, 20_000.0, draws.uniforms(1, draws.LIFE))
    killed = [life for life in under_failures(lived).lives if life.ends == "killed"]
    assert len(killed) == pytest.approx(lived.failures, abs=0.1 * lived.failures)


def test_extra_learners_come_and_go_with_the_availability() -> None:
    there = Availability(((10.0, 0.0), (5.0, 2.0), (5.0, 1.0)))
    first, second = scavenged(there, 40.0)
    assert first.lives == (Life(10.0, 20.0, "preempted"), Life(30.0, 40.0, "preempted"))
    assert second.lives == (Life(10.0, 15.0, "preempted"), Life(30.0, 35.0, "preempted"))
    assert second.step_end(10.0, 4.0) == 14.0


def test_a_batch_shrinks_with_its_slices_to_one_sequence_at_least() -> None:
    assert [sequences_of(8, share) for share in (1.0, 0.9, 0.5, 0.01)] == [8, 7, 4, 1]


def test_data_parallelism_trains_a_number_of_tokens_in_the_time_that_goodput_says() -> None:
    scenario = scenario_of([], {"cluster": {"chips": 1_200_000}})
    job = data_parallel(scenario, 32, 32 * 4000, seed=3)
    calm = data_parallel(scenario, 32, 32 * 100 + 5, seed=3, failing=False)

    assert sum(job.sequences) == 32 * 4000
    assert 4000 * scenario.costs.step_seconds / job.seconds == pytest.approx(0.56, abs=0.04)
    assert calm.sequences == (32,) * 100 + (5,)
    assert calm.seconds == pytest.approx(101 * scenario.costs.step_seconds)


def test_the_batch_of_data_parallelism_shrinks_with_large_slices() -> None:
    told = {"cluster": {"chips": 65_536, "slice_chips": 16_384}, "failures": {"mtbi_years": 0.1}}
    job = data_parallel(scenario_of([], told), 8, 8 * 2000, seed=0)
    assert set(job.sequences) >= {8, 6}
