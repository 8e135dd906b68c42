"""What a state owes the world, whole; and the durations behind it."""

from __future__ import annotations

import pytest

from decodiloco.syncer.grace import average, pace_of, quantile
from decodiloco.syncer.machine import begin
from decodiloco.syncer.owed import (
    BeginClosing,
    CloseRun,
    CloseWindow,
    DeclareLost,
    MergeFragment,
    OpenRound,
    StoreSnapshot,
    owed,
)
from streams.events import LearnerLost
from tests.builders import closing
from tests.desk import Desk, opening_of


def test_nothing_is_owed_before_the_first_fact() -> None:
    assert owed(begin(opening_of())) == ()


def test_a_run_without_learners_owes_nothing() -> None:
    assert owed(Desk().state) == ()


def test_rounds_begin_when_enough_learners_have_joined() -> None:
    desk = Desk(learners_min=2)
    desk.join("a")
    assert owed(desk.state) == (DeclareLost("a", 3, 3, 10.0),)
    desk.join("b")
    assert owed(desk.state) == (
        DeclareLost("a", 3, 3, 10.0),
        DeclareLost("b", 4, 4, 10.0),
        OpenRound(1, 0, 1, 1.0, 2.1, 0, 0.0),
    )


def test_an_open_round_below_its_quorum_owes_no_end() -> None:
    desk = Desk(quorum=2)
    desk.join("a"), desk.join("b"), desk.join("c")
    desk.open_round()
    desk.answer("a", 1)
    assert desk.asks(CloseWindow) == []
    desk.answer("b", 1)
    assert desk.asks(CloseWindow) == [CloseWindow(1, "grace ended", 8, 6, 2.1)]
    desk.answer("c", 1)
    assert desk.asks(CloseWindow) == [CloseWindow(1, "all answered", 8, 6, 0.0)]


def test_who_is_lost_is_not_waited_for() -> None:
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.open_round()
    desk.answer("a", 1)
    desk.write(LearnerLost(learner="b", incarnation=4, reason="silent", silent_seconds=10.0))
    assert desk.asks(CloseWindow) == [CloseWindow(1, "all answered", 6, 5, 0.0)]


def test_a_closed_round_owes_its_merge_until_it_is_merged() -> None:
    desk = Desk()
    desk.join("a")
    desk.open_round()
    desk.answer("a", 1)
    desk.close_window(1)
    assert desk.asks(MergeFragment) == [MergeFragment(1, 6)]
    desk.merge(1)
    assert desk.asks(MergeFragment) == []


def test_the_next_round_waits_for_pace_overlap_and_its_fragment() -> None:
    desk = Desk(window={"overlap": 2})
    desk.join("a")
    desk.open_round()
    assert desk.asks(OpenRound) == [OpenRound(2, 1, 1, 1.0, 2.1, 4, 1.0)]
    desk.open_round()
    assert desk.asks(OpenRound) == [], "two rounds are open"
    alone = Desk(fragments=1, window={"overlap": 1})
    alone.join("a")
    alone.open_round()
    assert alone.asks(OpenRound) == [], "its one fragment is not merged"


def test_no_round_opens_while_nobody_lives() -> None:
    desk = Desk()
    desk.join("a")
    desk.write(LearnerLost(learner="a", incarnation=3, reason="silent", silent_seconds=10.0))
    assert owed(desk.state) == ()


def test_a_snapshot_is_owed_each_p_merges() -> None:
    desk = Desk(fragments=1, snapshot_merges=1)
    desk.join("a")
    desk.open_round()
    desk.answer("a", 1)
    desk.close_window(1), desk.merge(1)
    assert desk.asks(StoreSnapshot) == [StoreSnapshot(0)]


@pytest.mark.parametrize(("end", "reason"), [({"steps": 1}, "steps"), ({"tokens": 300}, "tokens")])
def test_a_run_that_has_reached_its_end_owes_its_closing(end: dict[str, int], reason: str) -> None:
    desk = Desk(end=end)
    desk.join("a")
    desk.open_round()
    assert desk.asks(BeginClosing) == []
    desk.answer("a", 1)
    desk.close_window(1), desk.merge(1)
    assert desk.asks(BeginClosing) == [BeginClosing(reason)]
    assert desk.asks(OpenRound) == []


def test_a_closing_run_below_its_quorum_waits_for_the_lost_and_closes() -> None:
    desk = Desk(quorum=2)
    desk.join("a"), desk.join("b")
    desk.say(closing())
    desk.write(LearnerLost(learner="b", incarnation=4, reason="silent", silent_seconds=10.0))
    assert desk.asks(CloseRun) == [CloseRun(0, 6, 10.0)]
    assert desk.asks(OpenRound) == []


def test_the_pace_is_that_of_the_median_live_learner() -> None:
    desk = Desk(fragments=4, inner_steps=8)
    for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 9.0)):
        desk.join(name)
        if name == "a":
            desk.open_round()
        desk.answer(name, 1, step_seconds=seconds, upload_seconds=0.5)
    pace = pace_of(desk.state)
    assert (pace.step_seconds, pace.pace_seconds, pace.upload_seconds) == (2.0, 4.0, 0.5)


def test_the_grace_is_a_share_of_the_slack_and_at_most_a_step() -> None:
    desk = Desk(window={"overlap": 3, "step_seconds": 1.0, "upload_seconds": 0.2, "gamma": 0.5})
    pace = pace_of(desk.state)
    slack = 3 * 1.0 - (1.2 + 0.0 + 0.2)
    assert pace.grace_seconds == pytest.approx(0.5 * slack)
    assert pace.window_seconds == pytest.approx(1.2 + 0.5 * slack)


def test_a_window_lasts_until_a_healthy_learner_can_answer() -> None:
    desk = Desk(window={"overlap": 1, "step_seconds": 1.0, "upload_seconds": 5.0})
    pace = pace_of(desk.state)
    assert pace.grace_seconds == 0.0
    assert pace.window_seconds == pytest.approx(1.0 + 1.1 * 5.0)


@pytest.mark.parametrize(
    ("upload", "fragments", "overlap"), [(0.2, 24, 3), (1.0, 24, 4), (50.0, 8, 7), (1.0, 1, 1)]
)
def test_auto_overlap_is_the_least_that_leaves_a_step(
    upload: float, fragments: int, overlap: int
) -> None:
    desk = Desk(fragments=fragments, window={"upload_seconds": upload})
    assert pace_of(desk.state).overlap == overlap


def test_quantiles_lie_between_neighbours() -> None:
    assert [quantile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]
    assert quantile([1.0, 2.0], 0.5) == 1.5


def test_an_average_begins_with_its_first_value() -> None:
    assert (average(None, 4.0), average(4.0, 2.0)) == (4.0, 3.0)
