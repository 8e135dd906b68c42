"""What a plan of a soak promises: a seed is a plan, all come once, some quiet, hands apart."""

from __future__ import annotations

import pytest

from tests.chaos.soak.plan import (
    ALL,
    BY_NAME,
    KINDS,
    MIX_MAX,
    ONE_LEARNER,
    QUIET_EVERY,
    Strike,
    draw_plan,
)

LEARNERS = ("a", "b", "c", "d")
SEEDS = range(50)


def plan_of(seed: int, periods: int = 80) -> tuple[tuple[Strike, ...], ...]:
    return draw_plan(seed, periods, LEARNERS)


def test_a_seed_is_a_plan() -> None:
    assert plan_of(7) == plan_of(7)
    assert plan_of(7) != plan_of(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_period_in_four_is_quiet(seed: int) -> None:
    plan = plan_of(seed)
    for first in range(0, len(plan), QUIET_EVERY):
        assert sum(not mix for mix in plan[first : first + QUIET_EVERY]) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_no_kind_comes_twice_before_all_came_once(seed: int) -> None:
    names = [strike.kind for mix in plan_of(seed) for strike in mix]
    assert set(names[: len(KINDS) + 2 * MIX_MAX]) == set(BY_NAME)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_of_one_mix_touch_different_things(seed: int) -> None:
    for mix in plan_of(seed):
        touched = [touch for strike in mix for touch in BY_NAME[strike.kind].touches]
        apart = [touch for touch in touched if touch != ONE_LEARNER]
        assert len(apart) == len(set(apart))
        assert ALL not in touched or len(mix) == 1
        assert not {ONE_LEARNER, "learners"} <= set(touched)
        hurt = [strike.target for strike in mix if strike.target in LEARNERS]
        assert len(hurt) == len(set(hurt))


def test_no_fault_lasts_longer_than_is_allowed() -> None:
    plan = draw_plan(3, 80, LEARNERS, longest_seconds=5.0)
    assert max(strike.seconds for mix in plan for strike in mix) == 5.0


def test_a_narrowed_plan_has_only_the_kinds_that_were_asked_for() -> None:
    kinds = [kind for kind in KINDS if kind.touches == ("nats",)]
    plan = draw_plan(3, 40, LEARNERS, kinds)
    assert {strike.kind for mix in plan for strike in mix} == {kind.name for kind in kinds}
