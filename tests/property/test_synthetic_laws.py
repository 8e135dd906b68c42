"""Laws of synthetic tapes: whatever the cluster, the tape is sound, whole, and made again alike."""

from __future__ import annotations

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from decodiloco.errors import ConfigInvalid
from decodiloco.local.availability import Availability
from replay.goodput.settings import YEAR_SECONDS, Scenario, scenario_of
from replay.synthetic.cluster import Cluster
from replay.synthetic.records import synthetic_records
from streams.events import LearnerLeft, RunClosed
from tests.unit.test_synthetic_records import BATCH, CONTEXT, opening, proved

STEPS = 12
SECONDS = st.sampled_from((0.0, 0.3, 1.0, 4.0))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to three learners, unequal ones, failing or not, with others that come and go."""
    speeds = draw(st.lists(st.sampled_from((0.5, 1.0, 1.7)), min_size=1, max_size=3))
    failures: Scenario | None = None
    if draw(st.booleans()):
        slices = draw(st.sampled_from((1, 2, 7)))
        failures = scenario_of(
            [],
            {
                "cluster": {
                    "learners": len(speeds),
                    "chips": slices * len(speeds),
                    "slice_chips": 1,
                    "elastic": draw(st.booleans()),
                },
                "failures": {
                    "mtbi_years": slices * draw(st.sampled_from((15.0, 60.0))) / YEAR_SECONDS,
                    "return_seconds": draw(st.sampled_from((0.0, 5.0, 30.0))),
                    "clock": draw(st.sampled_from(("executed", "wall"))),
                },
                "costs": {"step_seconds": 1.0, "down_seconds": 0.5, "up_seconds": 1.0,
                          "restart_seconds": 1.0},
            },
        )  # fmt: skip
    there = draw(st.sampled_from((None, Availability(((4.0, 0.0), (3.0, 2.0), (1.5, 1.0))))))
    return Cluster(
        step_seconds=tuple(1.0 / speed for speed in speeds),
        upload_seconds=draw(SECONDS),
        fetch_seconds=draw(SECONDS),
        merge_seconds=draw(SECONDS),
        word_seconds=draw(st.sampled_from((0.0, 0.01, 0.2))),
        jitter=draw(st.sampled_from((0.0, 0.1))),
        answers_while_paused=draw(st.booleans()),
        failures=failures,
        availability=there,
    )


@settings(max_examples=25, deadline=None)
@given(clusters(), st.data(), st.integers(0, 2**32))
def test_whatever_the_cluster_the_tape_is_sound_and_whole(
    cluster: Cluster, data: st.DataObject, seed: int
) -> None:
    quorum = data.draw(st.integers(1, cluster.learners))
    run = opening(
        cluster.learners,
        STEPS,
        quorum=quorum,
        inner_steps=data.draw(st.sampled_from((1, 3, 6))),
        window={"step_seconds": 1.0, "upload_seconds": 0.5},
        times={"lost_seconds": data.draw(st.sampled_from((3.0, 20.0)))},
        adoption=data.draw(st.sampled_from(({}, {"carry": True}, {"alpha": 0.3}))),
    )
    try:
        records = synthetic_records(run, cluster, seed)
    except ConfigInvalid as error:  # lives too short to join, fetch and offer in
        assert cluster.failures is not None and "does not come to its end" in str(error)
        reject()
    state = proved(records, run)

    assert state.closed is not None and not state.live
    assert state.closed.tokens >= cluster.learners * STEPS * BATCH * CONTEXT
    closed = [e.position for e in records if isinstance(e.event, RunClosed)]
    finished = [
        e.event.digest
        for e in records
        if isinstance(e.event, LearnerLeft) and e.event.reason == "finished"
    ]
    assert len(closed) == 1
    assert all(digest == state.closed.digest for digest in finished)
    assert synthetic_records(run, cluster, seed)[-1].digest == records[-1].digest
