"""One learner's life, move by move, under draws that the test chooses."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from replay.goodput.learner import Lived, live
from replay.goodput.returns import returns_of
from replay.goodput.settings import YEAR_SECONDS, Scenario
from tests.goodput_lives import lives, scenario

FOREVER = 1.0 - 2.0**-53  # a draw that puts the next failure beyond any test


def gap(told: Scenario, seconds: float) -> float:
    """The uniform draw after which the next failure comes so many seconds later."""
    return -math.expm1(-seconds * told.failures_per_second())


def one_learner(*settings: str) -> Scenario:
    """Ten slices of one chip, a failure of any of them every 100 s on average."""
    years = 10 * 100.0 / YEAR_SECONDS
    return scenario(
        "cluster.learners=1", "cluster.chips=10", "cluster.slice_chips=1",
        f"failures.mtbi_years={years}", "failures.return_c=1.0", *settings,
    )  # fmt: skip


def life(told: Scenario, draws: list[float], seconds: float) -> Lived:
    stream: Iterator[float] = iter([*draws, *[FOREVER] * 1000])
    return live(told, 0, seconds, stream)


def spent(lived: Lived) -> dict[str, float]:
    return {kind: round(seconds, 6) for kind, seconds in lived.seconds.items() if seconds}


RETURN_60 = -math.expm1(-60.0 / 58.0)  # with c = 1 the delay is exponential with mean 58 s


def test_a_failing_step_is_finished_and_kept_then_the_learner_shrinks_and_grows() -> None:
    told = one_learner()

    lived = life(told, [gap(told, 12.0), RETURN_60], 200.0)

    # 12 s is in the third step: stepping to 15, down to 24, with 9 of 10 slices until the first
    # boundary after 15 + 60, which is 79 (24 + 11 x 5), up to 97, then whole.
    assert spent(lived) == {
        "useful": pytest.approx(15 + 55 * 0.9 + 103),
        "missing": pytest.approx(5.5),
        "down_scale": 9.0,
        "up_scale": 18.0,
    }
    assert lived.stretches.begins == pytest.approx([0.0, 24.0, 97.0])
    assert lived.stretches.ends == pytest.approx([15.0, 79.0, 200.0])
    assert lived.stretches.shares == pytest.approx([1.0, 0.9, 1.0])
    assert lived.failures == 1


def test_a_failing_step_that_is_lost_is_no_useful_one() -> None:
    told = one_learner('costs.failing_step="lost"', "costs.detection_seconds=3")

    lived = life(told, [gap(told, 12.0), RETURN_60], 30.0)

    assert spent(lived) == {
        "useful": pytest.approx(10.0 + 3.0 * 0.9),
        "missing": pytest.approx(0.3),
        "lost_step": 5.0,
        "detection": 3.0,
        "down_scale": 9.0,
    }


def test_without_elasticity_the_learner_waits_for_all_slices_and_starts_again() -> None:
    told = one_learner("cluster.elastic=false")

    lived = life(told, [gap(told, 12.0), RETURN_60], 100.0)

    assert spent(lived) == {
        "useful": pytest.approx(22.0),
        "waiting": pytest.approx(60.0),
        "restart": 18.0,
    }


def test_by_the_executed_clock_nothing_fails_while_the_learner_reconfigures() -> None:
    told = one_learner()
    # The second comes after 23 s of stepping: 8 s after the pause, in a step that ends at 34.
    draws = [gap(told, 12.0), RETURN_60, gap(told, 11.0), FOREVER, RETURN_60]

    lived = life(told, draws, 40.0)

    assert lived.stretches.begins == pytest.approx([0.0, 24.0])
    assert lived.stretches.ends == pytest.approx([15.0, 34.0])


def test_by_the_wall_clock_a_failure_in_a_pause_begins_the_pause_again() -> None:
    told = one_learner('failures.clock="wall"')
    # The second failure comes at 20 s, 5 s into the pause; 0.99 hits a slice that is there.
    draws = [gap(told, 12.0), RETURN_60, gap(told, 8.0), 0.99, RETURN_60]

    lived = life(told, draws, 40.0)

    assert lived.seconds["down_scale"] == pytest.approx(5.0 + 9.0)
    assert lived.stretches.begins == pytest.approx([0.0, 29.0])
    assert lived.stretches.shares == pytest.approx([1.0, 0.8])
    assert lived.failures == 2


def test_a_failure_that_hits_a_slice_which_is_away_costs_nothing() -> None:
    told = one_learner('failures.clock="wall"')
    draws = [gap(told, 12.0), RETURN_60, gap(told, 8.0), 0.05]

    lived = life(told, draws, 40.0)

    assert lived.failures == 1
    assert lived.stretches.begins == pytest.approx([0.0, 24.0])


def test_a_failure_while_it_grows_makes_the_learner_shrink_first() -> None:
    told = one_learner('failures.clock="wall"')
    # It grows from 79 on; the second failure comes at 85.
    draws = [gap(told, 12.0), RETURN_60, gap(told, 73.0), 0.99, RETURN_60]

    lived = life(told, draws, 100.0)

    assert lived.seconds["up_scale"] == pytest.approx(6.0 + 6.0)
    assert lived.seconds["down_scale"] == pytest.approx(9.0 + 9.0)
    assert lived.stretches.ends[-1] == pytest.approx(79.0)


def test_without_elasticity_a_failure_by_the_wall_clock_prolongs_the_wait() -> None:
    told = one_learner("cluster.elastic=false", 'failures.clock="wall"')
    # Back at 75; the second failure, at 80, is in the restart: back at 140, whole at 158.
    draws = [gap(told, 12.0), RETURN_60, gap(told, 68.0), RETURN_60]

    lived = life(told, draws, 160.0)

    assert spent(lived) == {
        "useful": pytest.approx(17.0),
        "waiting": pytest.approx(120.0),
        "restart": pytest.approx(5.0 + 18.0),
    }


def test_a_learner_of_one_slice_waits_for_it() -> None:
    years = 100.0 / YEAR_SECONDS
    told = scenario(
        "cluster.learners=1", "cluster.chips=1", "failures.return_c=1.0",
        f"failures.mtbi_years={years}",
    )  # fmt: skip

    lived = life(told, [gap(told, 12.0), RETURN_60], 100.0)

    assert spent(lived) == {
        "useful": pytest.approx(15.0 + 7.0),
        "down_scale": 9.0,
        "waiting": pytest.approx(51.0),
        "up_scale": 18.0,
    }


def test_a_slow_learner_takes_longer_steps() -> None:
    told = scenario("cluster.learners=2", "cluster.speeds=[1.0, 0.5]")
    assert [told.step_seconds(m) for m in range(3)] == [5.0, 10.0, 5.0]


def test_slices_that_are_there_never_go_below_none() -> None:
    """A cluster so bad that all slices are away at times."""
    told = one_learner("failures.mtbi_years=1e-6", "failures.return_seconds=500")
    for lived in lives(told, 5000.0):
        assert all(0.0 < share <= 1.0 for share in lived.stretches.shares)
        assert lived.seconds["waiting"] > 0.0


@pytest.mark.parametrize(("a", "c"), [(1.0, 1.0), (1.0, 1.5), (2.0, 1.5), (0.5, 0.8), (40.0, 3.0)])
def test_the_law_of_returns_has_the_mean_that_was_asked_for(a: float, c: float) -> None:
    law = returns_of(58.0, a, c)
    count = 200_000
    mean = math.fsum(law.delay_seconds((n + 0.5) / count) for n in range(count)) / count
    assert mean == pytest.approx(58.0, rel=2e-3)
    assert law.delay_seconds(0.2) < law.delay_seconds(0.7)


def test_a_mean_of_nothing_is_back_at_once() -> None:
    assert returns_of(0.0, 1.0, 1.5).delay_seconds(0.9) == 0.0


def test_a_law_with_a_huge_exponent_gives_a_finite_delay() -> None:
    assert math.isfinite(returns_of(58.0, 1e17, 1.5).delay_seconds(0.999999))
