"""A synthetic tape is a tape like any other: chained, decided as a syncer decides, all told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from decodiloco.errors import ConfigInvalid
from decodiloco.local.availability import Availability
from decodiloco.merge.self_test import self_test
from decodiloco.syncer.snapshot import state_digest
from decodiloco.syncer.state import State
from replay.facts_check import FactsCheck
from replay.goodput.scavenging import by_work
from replay.goodput.settings import Scenario, scenario_of
from replay.invariants.all_of_them import Invariants
from replay.refold import refold
from replay.synthetic.cluster import Cluster, big_steps_for, cluster_of
from replay.synthetic.mark import is_synthetic
from replay.synthetic.records import synthetic_records
from streams.envelope import Envelope
from streams.events import (
    DeltaOffered,
    LearnerJoined,
    LearnerLeft,
    LearnerLost,
    MessageRefused,
    RunClosed,
)
from tests.desk import opening_of
from tests.plain_fold import PlainFold

BATCH, CONTEXT = 8, 128  # the defaults of a run
FRAGMENTS, STEPS = 3, 60


def opening(learners: int, steps: int = STEPS, **settings: object):
    return opening_of(
        FRAGMENTS,
        **{
            "inner_steps": 6,
            "learners_min": learners,
            "end": {"tokens": learners * steps * BATCH * CONTEXT},
            "merge": {"tokens_per_step_max": 2**24},
            "window": {"step_seconds": 5.0},
            **settings,
        },
    )


def failing(learners: int = 4, **told: dict[str, object]) -> Scenario:
    tables: dict[str, dict[str, object]] = {
        "cluster": {"learners": learners, "chips": 2_400_000},
        "sync": {"jitter": 0.05},
    }
    for name, values in told.items():
        tables[name] = {**tables.get(name, {}), **values}
    return scenario_of([], tables)


# One slice a learner: each failure is an outage.
WHOLE = {"chips": 4, "slice_chips": 1}
OUTAGES = {"mtbi_years": 400.0 / 31_557_600.0}


def proved(records: list[Envelope], opened: object) -> State:
    """Folds, checks facts and invariants; the last state."""
    facts = FactsCheck(self_test())
    invariants = Invariants(opened)
    state = None
    for folded in refold(records, opened, facts.tell):
        invariants.tell(folded.envelope)
        state = folded.after
    invariants.end()
    assert state is not None
    facts.fates(state)
    return state


CLUSTERS = {
    "calm": Cluster((5.0,) * 4),
    "alone": Cluster((5.0,), jitter=0.0),
    "unequal": Cluster((5.0, 6.1, 5.0, 6.1), jitter=0.1),
    "slow network": Cluster((5.0,) * 4, upload_seconds=12.0, fetch_seconds=12.0),
    "failing": cluster_of(failing()),
    "failing and answering": cluster_of(failing(sync={"answer_while_paused": True})),
    "by the wall clock": cluster_of(failing().with_clock("wall")),
    "with outages": cluster_of(failing(cluster=WHOLE, failures=OUTAGES)),
    "not elastic": cluster_of(
        failing(cluster={"chips": 40_000, "elastic": False}, failures={"mtbi_years": 0.2})
    ),
    "scavenging": Cluster((5.0,) * 2, availability=by_work(2.0, 2.0, 120.0)),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_synthetic_tape_is_what_a_syncer_would_have_written(name: str) -> None:
    cluster = CLUSTERS[name]
    opened = opening(cluster.learners)
    records = synthetic_records(opened, cluster, seed=5)

    state = proved(records, opened)
    assert state.closed is not None and not state.live
    assert state.closed.tokens >= cluster.learners * STEPS * BATCH * CONTEXT
    assert [mark for mark in map(is_synthetic, records) if mark is not None] == [True]
    for envelope in records:
        if isinstance(envelope.event, LearnerJoined):
            assert envelope.event.fingerprint.startswith("synthetic")


@pytest.mark.parametrize(
    "settings",
    [
        {"quorum": 4, "window": {"gamma": 0.0, "step_seconds": 5.0}},
        {"adoption": {"alpha": 0.5}},
        {"adoption": {"carry": True}},
        {"codecs": {"delta": "fp32"}, "merge": {"staleness_versions_max": 0}},
        {"regions": ["home", "away"], "end": {"steps": 20}},
    ],
)
def test_any_run_can_be_played(settings: dict[str, object]) -> None:
    opened = opening(4, **settings)
    state = proved(synthetic_records(opened, CLUSTERS["failing"], seed=1), opened)
    assert state.closed is not None


@pytest.mark.parametrize("carry", [False, True])
def test_an_independent_fold_comes_to_the_same_state_at_every_fact(carry: bool) -> None:
    """The last facts among them, where learners take the run's last versions and leave."""
    opened = opening(4, adoption={"carry": carry})
    plain = PlainFold(opened)
    for folded in refold(synthetic_records(opened, CLUSTERS["failing"], seed=1), opened):
        plain.tell(folded.envelope)
        assert plain.digest() == state_digest(folded.after), folded.envelope
    assert isinstance(folded.envelope.event, LearnerLeft)


def test_the_same_seed_gives_the_same_tape_in_any_process() -> None:
    code = (
        "from tests.unit.test_synthetic_records import *\n"
        "records = synthetic_records(opening(4), CLUSTERS['with outages'], seed=9)\n"
        "print(records[-1].digest.hex())"
    )
    ours = synthetic_records(opening(4), CLUSTERS["with outages"], seed=9)
    other = synthetic_records(opening(4), CLUSTERS["with outages"], seed=10)
    theirs = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert theirs.stdout.strip() == ours[-1].digest.hex() != other[-1].digest.hex()


def test_who_loses_everything_is_lost_and_comes_back_as_a_new_life_with_its_moments() -> None:
    opened = opening(4, steps=150, training={"checkpoint_steps": 6})
    records = synthetic_records(opened, CLUSTERS["with outages"], seed=2)

    lost = [e for e in records if isinstance(e.event, LearnerLost)]
    again = [e for e in records if isinstance(e.event, LearnerJoined) and e.event.learner_step]
    assert lost and again
    assert {e.event.moments.source for e in again} <= {"own", "borrowed"}
    assert all(e.event.silent_seconds == opened.run.times.lost_seconds for e in lost)
    proved(records, opened)


def test_a_learner_that_reconfigures_is_no_new_life() -> None:
    kinds = Counter(
        e.event.kind for e in synthetic_records(opening(4), CLUSTERS["failing"], seed=5)
    )
    assert kinds["learner_joined"] == 4 and kinds["learner_lost"] == 0


def test_extra_learners_say_that_they_are_preempted_and_come_back() -> None:
    records = synthetic_records(opening(2, steps=100), CLUSTERS["scavenging"], seed=0)
    left = [e.event for e in records if isinstance(e.event, LearnerLeft)]
    preempted = [event for event in left if event.reason == "preempted"]
    assert {event.learner for event in preempted} == {"x00", "x01"}
    joins = Counter(e.event.learner for e in records if isinstance(e.event, LearnerJoined))
    assert joins["x00"] >= 2 and joins["l00"] == 1


def test_who_comes_just_as_the_run_ends_is_told_so() -> None:
    opened = opening(1, 12, inner_steps=3, times={"lost_seconds": 3.0})
    there = Availability(((4.0, 0.0), (3.0, 2.0), (1.5, 1.0)))
    cluster = Cluster((1.0,), 0.3, 1.0, 1.0, 0.01, jitter=0.0, availability=there)
    records = synthetic_records(opened, cluster, seed=0)
    proved(records, opened)
    assert [e.event.reason for e in records if isinstance(e.event, MessageRefused)]


def test_a_run_that_never_ends_is_told_so() -> None:
    times = {"chips": 2, "slice_chips": 1, "learners": 2, "elastic": False}
    scenario = failing(2, cluster=times, failures={"mtbi_years": 0.5 / 31_557_600.0})
    with pytest.raises(ConfigInvalid, match="does not come to its end"):
        synthetic_records(opening(2, 20, quorum=2), cluster_of(scenario), seed=0)


def test_scavenging_takes_the_time_that_the_paper_says() -> None:
    def seconds(cluster: Cluster) -> float:
        records = synthetic_records(opening(2, steps=200), cluster, seed=0)
        (closed,) = [e for e in records if isinstance(e.event, RunClosed)]
        return closed.time_seconds - records[0].time_seconds

    there = by_work(2.0, 2.0, 250.0)
    calm, extra = Cluster((5.0,) * 2), Cluster((5.0,) * 2, availability=there)
    assert seconds(extra) / seconds(calm) == pytest.approx(0.5 + 0.5 / 2.0, abs=0.06)


def test_tokens_are_whole_sequences_and_fewer_with_lost_slices() -> None:
    scenario = failing(
        cluster={"chips": 16, "slice_chips": 1}, failures={"mtbi_years": 2e3 / 31_557_600.0}
    )
    records = synthetic_records(opening(4, steps=100), cluster_of(scenario), seed=4)
    offers = [e.event for e in records if isinstance(e.event, DeltaOffered)]
    sizes = {offer.tokens / CONTEXT / offer.inner_steps for offer in offers}

    assert all(offer.tokens % CONTEXT == 0 for offer in offers)
    assert max(sizes) == BATCH and min(sizes) < BATCH
    calm = synthetic_records(opening(4), CLUSTERS["calm"], seed=4)
    for envelope in calm:
        if isinstance(envelope.event, DeltaOffered):
            assert envelope.event.tokens == BATCH * CONTEXT * envelope.event.inner_steps


def test_goodput_on_the_tape_is_that_of_the_model() -> None:
    opened = opening(8, steps=300)
    cluster = cluster_of(failing(8, sync={"jitter": 0.0}))
    records = synthetic_records(opened, cluster, seed=0)
    (closed,) = [e for e in records if isinstance(e.event, RunClosed)]

    seconds = closed.time_seconds - records[0].time_seconds
    most = 8 * BATCH * CONTEXT * seconds / 5.0
    assert closed.event.tokens / most == pytest.approx(0.81, abs=0.03)


def test_the_scale_keeps_goodput_and_sets_the_number_of_failures() -> None:
    scenario = failing(4, cluster=WHOLE, failures={"mtbi_years": 2000.0 / 31_557_600.0})
    lives = {}
    for wanted in (6.0, 24.0):
        cluster = cluster_of(scenario, big_steps_for(scenario, wanted, STEPS))
        found = [synthetic_records(opening(4), cluster, seed) for seed in range(4)]
        joins = [sum(isinstance(e.event, LearnerJoined) for e in records) for records in found]
        lives[wanted] = sum(joins) / len(joins) - 4
    assert lives[6.0] == pytest.approx(6.0, abs=3.0)
    assert lives[24.0] == pytest.approx(24.0, abs=8.0)


@pytest.mark.parametrize(
    ("settings", "learners", "answer"),
    [
        ({"end": {}}, 4, "has no end"),
        ({"quorum": 5}, 4, "set run.quorum"),
        ({"learners_min": 5}, 4, "set run.quorum and run.learners_min lower"),
    ],
)
def test_a_run_that_cannot_be_played_is_refused(
    settings: dict[str, object], learners: int, answer: str
) -> None:
    with pytest.raises(ConfigInvalid, match=answer):
        synthetic_records(opening(learners, **settings), Cluster((5.0,) * learners), seed=0)


@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("costs.failing_step=lost", "always kept"),
        ("sync.syncer_mtbf_hours=1", "no syncer fails"),
        ("sync.run_on_seconds=10", "never wait"),
    ],
)
def test_what_a_tape_cannot_tell_is_refused(setting: str, answer: str) -> None:
    with pytest.raises(ConfigInvalid, match=answer):
        cluster_of(scenario_of([setting], {}))
