"""Laws of the goodput model: V1 to V10 of `research/reliability.md` B4, and more."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.goodput import draws
from replay.goodput.bandwidth import Traffic, gigabits_needed, traffics, utilisation_at
from replay.goodput.checkpoints import (
    Checkpointed,
    daly_efficiency,
    known_jobs,
    simulate,
    young_interval_seconds,
)
from replay.goodput.cluster import outcome_of
from replay.goodput.learner import Stretches
from replay.goodput.paper import TABLE_13, UTILISATIONS
from replay.goodput.rounds import run_rounds
from replay.goodput.settings import YEAR_SECONDS, Scenario
from replay.goodput.study import Length, cell_of, errors_of, table_of
from replay.progress import silently
from tests.goodput_lives import SAFE, digest, lives, outcome, scenario

DAY = 86_400.0
DIGEST = "from tests.goodput_lives import digest; print(digest())"


def test_v1_one_set_of_parameters_gives_all_sixty_figures_of_the_paper() -> None:
    cells = list(table_of(Scenario(), ["executed"], Length(1.0, 3), silently))
    errors = errors_of(cells)
    assert len(cells) == 30
    assert errors.mean <= 1.5
    assert errors.largest <= 5.0


@pytest.mark.parametrize(("rate", "points"), [(0.06, 0.6), (0.13, 0.6), (0.25, 1.5)])
def test_v2_the_closed_form_holds_where_failures_are_rare(rate: float, points: float) -> None:
    """goodput = 1/(1 + (N/M)(d + u)/MTBI)."""
    told = scenario("cluster.learners=1")
    chips = round(rate * YEAR_SECONDS / (told.costs.down_seconds + told.costs.up_seconds))
    cell = cell_of(told.with_cell(1, True, chips), Length(2.0, 4))
    assert cell.goodput == pytest.approx(100 / (1 + rate), abs=points)


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_v3_goodput_depends_on_chips_in_a_learner_alone(factor: int) -> None:
    one = cell_of(scenario().with_cell(1, True, 300_000), Length(2.0, 4))
    more = cell_of(scenario().with_cell(factor, True, factor * 300_000), Length(2.0, 4))
    assert one.goodput == pytest.approx(more.goodput, abs=0.5)


@pytest.mark.parametrize("index", range(5))
def test_v4_checkpointed_jobs_agree_with_daly_within_a_point(index: int) -> None:
    job = known_jobs()[index].job
    shares = simulate(job, 40_000, draws.uniforms(0, draws.CHECKPOINTS, index))
    assert 100 * shares["useful"] == pytest.approx(100 * daly_efficiency(job), abs=1.0)
    assert math.fsum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("gpus", "lost_minutes", "percent"), [(16_384, 18.6, 90.0), (9_600, 9.5, 97.0)]
)
def test_v5_llama_3_and_byte_robust_lose_what_they_say(
    gpus: int, lost_minutes: float, percent: float
) -> None:
    """5.8 years between interruptions of a GPU; each costs so many minutes of the whole job."""
    told = scenario(
        "cluster.learners=1", "cluster.elastic=false", f"cluster.chips={gpus}",
        'failures.clock="wall"', "failures.mtbi_years=5.8", "failures.return_seconds=0",
        f"costs.restart_seconds={60 * lost_minutes}",
    )  # fmt: skip
    assert cell_of(told, Length(2000.0, 1)).goodput == pytest.approx(percent, abs=1.0)


def test_v6_without_failures_all_time_is_useful() -> None:
    told = outcome(scenario(SAFE), DAY)
    assert told.goodput == pytest.approx(1)
    assert told.up_at_least == pytest.approx([1.0] * 9)


scenarios = st.builds(
    lambda chips, learners, elastic, clock, kept, detection, seconds: scenario(
        f"cluster.chips={chips}", f"cluster.learners={learners}",
        f"cluster.elastic={str(elastic).lower()}", f"failures.clock={clock}",
        f"costs.failing_step={kept}", f"costs.detection_seconds={detection}",
        f"failures.return_seconds={seconds}", "cluster.speeds=[1.0, 0.8, 1.3]",
    ),
    chips=st.integers(1, 3_000_000),
    learners=st.integers(1, 6),
    elastic=st.booleans(),
    clock=st.sampled_from(["executed", "wall"]),
    kept=st.sampled_from(["kept", "lost"]),
    detection=st.sampled_from([0, 4]),
    seconds=st.sampled_from([0, 15, 58, 3600]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(told=scenarios, seed=st.integers(0, 2**32))
def test_v7_all_classes_add_up_and_uptime_is_no_less_than_goodput(
    told: Scenario, seed: int
) -> None:
    seconds = 4000.0
    found = lives(told, seconds, seed)
    for life in found:
        assert math.fsum(life.seconds.values()) == pytest.approx(seconds)
        assert all(spent >= -1e-9 for spent in life.seconds.values())
        assert all(begin < end for begin, end in _pairs(life.stretches))
    together = outcome_of(found, seconds)
    assert together.uptime >= together.goodput - 1e-9
    shares = together.up_at_least
    assert all(more <= less + 1e-9 for less, more in pairwise(shares))
    assert shares[0] == 1.0


def _pairs(stretches: Stretches) -> list[tuple[float, float]]:
    begins, ends = stretches.begins, stretches.ends
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
    return list(zip(begins, ends, strict=True))


@settings(max_examples=25, deadline=None)
@given(
    told=scenarios,
    jitter=st.sampled_from([0.0, 0.4]),
    upload=st.sampled_from([0.5, 7.0, 23.0]),
    overlap=st.integers(1, 6),
    paused=st.booleans(),
)
def test_the_fates_of_tokens_add_up_whatever_the_rounds_do(
    told: Scenario, jitter: float, upload: float, overlap: int, paused: bool
) -> None:
    sync = told.sync.model_copy(
        update={
            "jitter": jitter, "upload_seconds": upload, "overlap": overlap, "fragments": 6,
            "answer_while_paused": paused, "run_on_seconds": 60.0,
        }
    )  # fmt: skip
    told = told.model_copy(update={"sync": sync})
    steps = [draws.uniforms(1, draws.ROUNDS, m) for m in range(told.cluster.learners)]
    found = lives(told, 3000.0, 1)

    outcome = run_rounds(told, found, 3000.0, steps, draws.uniforms(1, draws.SYNCER))

    total = math.fsum(outcome.tokens.values())
    assert total == pytest.approx(1.0) or (total == 0.0 and outcome.merges == 0)
    assert all(share >= -1e-9 for share in outcome.tokens.values())
    assert 0 <= outcome.opened - outcome.merges <= overlap
    assert outcome.contributors[0] == 0


@pytest.mark.parametrize("hash_seed", ["0", "1", "77"])
def test_v8_the_same_seed_gives_the_same_lives_in_any_process(hash_seed: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", DIGEST],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
    ).stdout.strip()
    assert told == digest()


def test_v8_learners_draw_from_streams_of_their_own() -> None:
    """The first learners of a larger cluster live as those of a smaller one."""
    four = lives(scenario("cluster.chips=1200000", "cluster.learners=4"), 20_000.0)
    eight = lives(scenario("cluster.chips=2400000", "cluster.learners=8"), 20_000.0)
    assert four == eight[:4]


def test_v9_cost_goes_with_failures_and_not_with_chips() -> None:
    """The same failures from a thousand times the chips are the same life."""
    few = lives(scenario("cluster.chips=2400", "failures.mtbi_years=0.001",
                         "cluster.slice_chips=3"), 20_000.0)  # fmt: skip
    many = lives(scenario("cluster.chips=2400000", "failures.mtbi_years=1",
                          "cluster.slice_chips=3000"), 20_000.0)  # fmt: skip
    assert [one.failures for one in few] == [one.failures for one in many]


def test_v10_the_wall_clock_is_harder_and_most_of_all_for_one_learner() -> None:
    length = Length(0.5, 2)
    told = {
        (learners, clock): cell_of(
            scenario(f"failures.clock={clock}").with_cell(learners, True, 1_200_000), length
        ).goodput
        for learners in (1, 8)
        for clock in ("executed", "wall")
    }
    assert told[1, "wall"] < told[1, "executed"] - 15
    assert told[8, "executed"] - 2.5 < told[8, "wall"] < told[8, "executed"]


@given(
    chosen=st.sampled_from(traffics()),
    utilisation=st.floats(0.05, 0.995),
    step_seconds=st.floats(0.1, 60),
    sites=st.integers(2, 64),
)
def test_bandwidth_and_utilisation_are_inverses(
    chosen: Traffic, utilisation: float, step_seconds: float, sites: int
) -> None:
    needed = gigabits_needed(chosen, utilisation, step_seconds, sites)
    assert utilisation_at(chosen, needed, step_seconds, sites) == pytest.approx(utilisation)


def test_bandwidth_is_near_table_13_but_for_data_parallel_at_99_percent() -> None:
    ratios = [
        gigabits_needed(traffic, utilisation, step_seconds, sites) / paper
        for (step_seconds, sites), methods in TABLE_13.items()
        for index, (traffic, theirs) in enumerate(zip(traffics(), methods, strict=True))
        for utilisation, paper in zip(UTILISATIONS, theirs, strict=True)
        if index or utilisation < 0.99
    ]
    off = [abs(ratio - 1) for ratio in ratios]
    assert len(ratios) == 56
    assert sum(off) / len(off) < 0.03
    assert max(off) < 0.1


@given(mtbf=st.floats(600, 1e6), save=st.floats(0.1, 100))
def test_youngs_interval_is_near_the_best_of_dalys_formula(mtbf: float, save: float) -> None:
    best = young_interval_seconds(mtbf, save)
    here = daly_efficiency(Checkpointed(mtbf, best, save, 0.0))
    for factor in (0.4, 2.5):
        assert daly_efficiency(Checkpointed(mtbf, best * factor, save, 0.0)) < here
