"""The rule of rounds keeps H at its set value and merges most of everybody's work.

The figures are those of the simulation that chose the rule (docs/decisions/0002): rounds a step
and effective H within 5 %, the share of work merged within 5 points. The first fifth of a run is
left out.
"""

from __future__ import annotations

from statistics import median

import pytest

from decodiloco.syncer.fates import FATES
from decodiloco.syncer.state import State
from tests.simulation.rounds_driver import Case, World

CASES = {
    "8 equal, upload 0.2": (Case((1.0,) * 8), 1.0, {1.0: 93}),
    "8 equal, upload 1": (Case((1.0,) * 8, 1.0, overlap=4), 1.0, {1.0: 86}),
    "8 equal, upload 3": (Case((1.0,) * 8, 3.0, overlap=8), 1.0, {1.0: 68}),
    "one 4 x slow": (Case((1.0,) * 7 + (4.0,)), 1.0, {1.0: 93, 4.0: 80}),
    "one 4 x slow, upload 3": (
        Case((1.0,) * 7 + (4.0,), 3.0, overlap=8), 1.0, {1.0: 68, 4.0: 56},
    ),
    "one 10 x slow, upload 1": (
        Case((1.0,) * 7 + (10.0,), 1.0, overlap=4), 1.0, {1.0: 86, 10.0: 49},
    ),
    "four slower by 18 %": (
        Case((1.0,) * 4 + (1.18,) * 4, 1.0, overlap=4), 1 / 1.09, {1.0: 86, 1.18: 85},
    ),
    "two fast": (Case((0.5,) * 2 + (1.0,) * 6, 1.0, overlap=4), 1.0, {0.5: 88, 1.0: 86}),
    "P = 1": (Case((1.0,) * 8, fragments=1, overlap=1), 1 / 24, {1.0: 91}),
    "H = 36, P = 24": (Case((1.0,) * 8, inner_steps=36), 24 / 36, {1.0: 95}),
    "K = 4": (Case((1.0,) * 8, quorum=4), 1.0, {1.0: 93}),
    "K = 8": (Case((1.0,) * 8, quorum=8), 1.0, {1.0: 93}),
}  # fmt: skip


def counts(state: State) -> dict[str, tuple[int, int]]:
    """For each learner: tokens merged and tokens settled, over all fragments."""
    table = {}
    for name, learner in state.learners.items():
        fates = [learner.fates(number) for number in range(len(state.fragments))]
        settled = sum(sum(fate[kind] for kind in FATES) for fate in fates)
        table[name] = (sum(fate["merged"] for fate in fates), settled)
    return table


@pytest.mark.parametrize("name", CASES)
def test_the_rule_of_rounds_holds_its_figures(name: str) -> None:
    case, rounds_per_second, shares = CASES[name]
    until = 240.0 if case.fragments > 1 else 480.0
    world = World(case, seed=1)
    world.run(until / 5)
    early, early_counts = world.syncer.desk.state, counts(world.syncer.desk.state)
    world.run(until)
    late = world.syncer.desk.state
    rate = (late.step - early.step) / (until * 4 / 5)
    assert rate == pytest.approx(rounds_per_second, rel=0.05)
    versions = (late.step - early.step) / case.fragments
    steps = median(
        late.learners[name].learner_step - early.learners[name].learner_step
        for name in late.learners
    )
    assert steps / versions == pytest.approx(case.inner_steps, rel=0.05)
    for step_seconds, expected in shares.items():
        merged = settled = 0
        for number, seconds in enumerate(case.steps):
            if seconds == step_seconds:
                now, before = counts(late)[f"l{number}"], early_counts[f"l{number}"]
                merged += now[0] - before[0]
                settled += now[1] - before[1]
        assert 100 * merged / settled == pytest.approx(expected, abs=5)
    for learner in late.learners.values():
        for number in range(case.fragments):
            assert learner.fates(number)["merged"] > 0, "a fragment of its got nothing"
