"""The sync level: rounds on top of lives, the barrier, and a syncer that fails."""

from __future__ import annotations

import math

import pytest

from replay.goodput import draws
from replay.goodput.barrier import barred
from replay.goodput.learner import Stretches
from replay.goodput.paper import QUORUM_ALL_GOODPUT, QUORUM_ONE_GOODPUT
from replay.goodput.rounds import RoundsOutcome, _outages, run_rounds
from replay.goodput.settings import Scenario
from replay.goodput.timeline import Timeline
from tests.goodput_lives import SAFE, lives, scenario

HOURS_6 = 6 * 3600.0


def rounds(told: Scenario, seconds: float = HOURS_6, seed: int = 0) -> RoundsOutcome:
    steps = [draws.uniforms(seed, draws.ROUNDS, m) for m in range(told.cluster.learners)]
    syncer = draws.uniforms(seed, draws.SYNCER)
    return run_rounds(told, lives(told, seconds, seed), seconds, steps, syncer)


def test_without_failures_every_round_merges_everybody_and_h_is_as_set() -> None:
    told = rounds(scenario(SAFE))

    assert told.contributors[8] == told.merges
    assert told.steps_between_versions == pytest.approx(24, rel=0.01)
    assert told.weights_effective == pytest.approx(8, abs=0.01)
    assert told.tokens["left_out"] == 0.0
    assert told.syncer_wait == 0.0


def test_what_is_trained_between_copy_and_adoption_is_overwritten() -> None:
    """A fetch of n steps more costs n/H of the work more."""
    quick = rounds(scenario(SAFE, "sync.overlap=8"))
    slow = rounds(scenario(SAFE, "sync.overlap=8", "sync.fetch_seconds=16"))

    more = slow.tokens["overwritten"] - quick.tokens["overwritten"]
    assert more == pytest.approx(3 / 24, abs=0.01)


def test_learners_that_reconfigure_are_left_out_unless_their_hosts_answer() -> None:
    silent = rounds(scenario("cluster.chips=2400000"))
    speaking = rounds(scenario("cluster.chips=2400000", "sync.answer_while_paused=true"))

    assert silent.tokens["left_out"] == pytest.approx(0.15, abs=0.02)
    assert speaking.tokens["left_out"] == 0.0
    assert speaking.contributors_mean == pytest.approx(8.0)


def test_a_quorum_of_all_makes_rounds_rarer_but_nobody_waits() -> None:
    told = rounds(scenario("cluster.chips=2400000", "sync.quorum=8"))

    assert told.contributors[8] == told.merges
    assert told.steps_between_versions > 30
    assert told.syncer_wait == 0.0


def test_no_merge_has_fewer_than_its_quorum() -> None:
    told = rounds(scenario("cluster.chips=2400000", "sync.quorum=4", "sync.jitter=0.3"))
    assert sum(told.contributors[:4]) == 0
    assert told.merges == sum(told.contributors)


def test_a_slow_learner_counts_less_by_weight() -> None:
    told = rounds(scenario(SAFE, "cluster.speeds=[1.0, 0.25]"))
    assert told.contributors_mean == pytest.approx(8, abs=0.05)
    # weights go with tokens x tokens per step: 1 and 1/4, four of each
    assert told.weights_effective == pytest.approx(5 * 5 / 4.25, rel=0.06)


def test_without_a_grace_window_the_quorum_alone_closes_the_round() -> None:
    patient = rounds(scenario(SAFE, "cluster.speeds=[1.0, 0.2]", "sync.jitter=0.2"))
    hasty = rounds(scenario(SAFE, "cluster.speeds=[1.0, 0.2]", "sync.jitter=0.2", "sync.gamma=0"))
    assert hasty.contributors_mean <= patient.contributors_mean


@pytest.mark.parametrize(("run_on_seconds", "costs"), [(10, True), (600, False)])
def test_an_outage_of_the_syncer_costs_what_goes_beyond_the_run_on(
    run_on_seconds: int, costs: bool
) -> None:
    """24 h between failures, 300 s without a syncer: 0.33 % with 10 s of run-on, else nothing."""
    told = scenario(
        SAFE, "cluster.learners=2", "sync.syncer_mtbf_hours=24", "sync.failover_seconds=300",
        f"sync.run_on_seconds={run_on_seconds}",
    )  # fmt: skip
    seconds = 4 * 86_400.0
    found = [
        (begin, end)
        for begin, end in _outages(24.0, 300.0, seconds, draws.uniforms(0, draws.SYNCER))
        if end < seconds
    ]
    assert found

    outcome = rounds(told, seconds)

    expected = len(found) * 290.0 / seconds if costs else 0.0
    assert outcome.syncer_wait == pytest.approx(expected, rel=0.06)
    assert outcome.merges > 0.97 * seconds / 5.0


def test_a_merge_that_an_outage_cuts_is_made_again() -> None:
    told = rounds(
        scenario(
            SAFE, "sync.syncer_mtbf_hours=0.05", "sync.failover_seconds=20",
            "sync.merge_seconds=4", "sync.overlap=6",
        )
    )  # fmt: skip
    quiet = rounds(scenario(SAFE, "sync.merge_seconds=4", "sync.overlap=6"))
    assert 0.7 * quiet.merges < told.merges < quiet.merges


@pytest.mark.parametrize(("quorum", "goodput"), [(1, 81.0), (4, 78.0), (6, 73.0), (8, 64.0)])
def test_a_barrier_costs_what_the_prototype_measured(quorum: int, goodput: float) -> None:
    """`research/reliability.md` B3: 2.4 M chips, the K fastest of 8, each H = 24 steps."""
    told = scenario("cluster.chips=2400000", f"sync.quorum={quorum}")
    seconds = 1e5

    found = barred(told, lives(told, seconds), seconds, draws.uniforms(0, draws.BARRIER))

    assert 100 * found.goodput == pytest.approx(goodput, abs=1.0)


@pytest.mark.parametrize(("quorum", "paper"), [(8, QUORUM_ALL_GOODPUT), (1, QUORUM_ONE_GOODPUT)])
def test_unequal_learners_at_a_barrier_are_near_table_5(quorum: int, paper: int) -> None:
    """Half of the learners 18 % slower, 10 % variance, a barrier each step."""
    told = scenario(
        SAFE, "cluster.speeds=[1.0, 0.82]", "sync.jitter=0.1", "sync.inner_steps=1",
        f"sync.quorum={quorum}",
    )  # fmt: skip

    found = barred(told, lives(told, 5000.0), 5000.0, draws.uniforms(0, draws.BARRIER))

    assert 100 * found.goodput == pytest.approx(paper, abs=2.5)
    assert found.goodput + found.quorum_wait == pytest.approx(1.0)


def test_a_timeline_knows_moments_and_seconds_stepped_both_ways() -> None:
    line = Timeline(Stretches([0.0, 20.0], [10.0, 50.0], [1.0, 0.5]))

    moments = (0.0, 5.0, 15.0, 20.0, 30.0, 60.0)
    assert [line.stepped_until(moment) for moment in moments] == [0, 5, 10, 10, 20, 40]
    assert line.worked_until(30.0) == 15.0
    assert [line.moment_of(seconds) for seconds in (5.0, 20.0, 40.0)] == [5.0, 30.0, 50.0]
    assert line.moment_of(41.0) == math.inf
    assert Timeline(Stretches([], [], [])).stepped_until(3.0) == 0.0
