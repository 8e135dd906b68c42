"""What `status` shows of a run: folded from facts, with the newest heartbeats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from decodiloco.status_view import Followed, followed, lines_of, report_of
from streams.events import RoundOpened
from streams.pulse import Beat
from tests.builders import evaluated
from tests.desk import Desk


def told_by(desk: Desk) -> Followed:
    told = followed(desk.opening)
    for envelope in desk.tape:
        told.hear(envelope)
    assert told.state == desk.state
    return told


def beat_of(learner: str, **values: int | float | str) -> dict[str, Beat]:
    return {f"learner/{learner}": Beat("learner", learner, values)}


def two_learners_one_answer() -> Desk:
    """Learners a and b; round 1 is merged from both, round 2 is open and only a answered."""
    desk = Desk(fragments=2, inner_steps=4)
    desk.join("a")
    desk.join("b")
    first = desk.open_round()
    desk.answer("a", first)
    desk.answer("b", first)
    desk.close_window(first)
    desk.merge(first)
    second = desk.open_round()
    desk.answer("a", second)
    return desk


def test_status_names_who_is_missed_and_for_how_long() -> None:
    desk = two_learners_one_answer()
    told = told_by(desk)
    opened = desk.tape[-2].time_seconds
    (around,) = report_of(told, {}, opened + 7.0)["rounds"]
    assert (around["phase"], around["answered"], around["missed"]) == ("open", ["a"], ["b"])
    assert around["seconds"] == 7.0


def test_a_round_that_is_being_merged_misses_nobody() -> None:
    desk = two_learners_one_answer()
    desk.answer("b", 2)
    desk.close_window(2)
    (around,) = report_of(told_by(desk), {}, 100.0)["rounds"]
    assert (around["phase"], around["answered"], around["missed"]) == ("merging", ["a", "b"], [])


@pytest.mark.parametrize(("late", "told"), [(1.0, False), (1.2, False), (1.3, True), (5.0, True)])
def test_status_says_so_when_rounds_open_more_slowly_than_their_pace(
    late: float, told: bool
) -> None:
    desk = Desk(fragments=3, inner_steps=6)
    desk.join("a")
    for number in (1, 2, 3):
        assert desk.open_round() == number
        desk.answer("a", number)
        desk.close_window(number)
        desk.merge(number)
    rounds = [each.event for each in desk.tape if isinstance(each.event, RoundOpened)]
    heard, opened = followed(desk.opening), 0
    for envelope in desk.tape:
        opened += isinstance(envelope.event, RoundOpened)
        moment = 100.0 + late * opened * rounds[-1].pace_seconds
        heard.hear(replace(envelope, time_seconds=moment))
    report = report_of(heard, {}, 1000.0)
    pace = report["pace_seconds"]
    assert pace == rounds[-1].pace_seconds
    assert report["round_seconds"] == pytest.approx(late * pace)
    lines = [line for line in lines_of(report) if line.startswith("pace")]
    assert (f"a round each {late * pace:.2f} s, not each {pace:.2f} s" in str(lines)) is told
    assert all(len(line) <= 80 for line in lines)


def test_a_run_with_one_round_so_far_has_no_time_between_rounds() -> None:
    desk = Desk(fragments=2, inner_steps=4)
    desk.join("a")
    desk.open_round()
    report = report_of(told_by(desk), {}, 100.0)
    assert report["round_seconds"] is None and report["pace_seconds"] > 0


def test_mergers_that_are_heard_are_told_with_what_they_do() -> None:
    told = told_by(two_learners_one_answer())
    beats = {
        "merger/m2": Beat("merger", "m2", {"working": 0, "merges": 1200}),
        "merger/m1": Beat("merger", "m1", {"working": 1, "merges": 7}),
    }
    report = report_of(told, beats, 100.0)
    assert report["mergers"] == [
        {"merger": "m1", "merges": 7, "working": 1},
        {"merger": "m2", "merges": 1200, "working": 0},
    ]
    assert lines_of(report)[2:4] == [
        "mergers    m1 has done 7, 1 under way",
        "           m2 has done 1,200, 0 under way",
    ]


def test_a_run_without_mergers_says_nothing_of_them() -> None:
    report = report_of(told_by(two_learners_one_answer()), {}, 100.0)
    assert report["mergers"] == []
    assert not any("mergers" in line for line in lines_of(report))


def test_a_learner_without_a_heartbeat_is_silent() -> None:
    told = told_by(two_learners_one_answer())
    beats = beat_of("a", learner_step=20, tokens_trained=2000, step_seconds=0.5, waiting="")
    a, b = report_of(told, beats, 100.0)["learners"]
    assert (a["state"], a["step"], a["tokens_per_second"]) == ("training", 20, 200.0)
    assert (b["state"], b["step"]) == ("silent", 4)


def test_a_learner_that_waits_says_why() -> None:
    told = told_by(two_learners_one_answer())
    a, _ = report_of(told, beat_of("a", waiting="store"), 100.0)["learners"]
    assert (a["state"], a["waiting"]) == ("waiting", "store")
    told_lines = "\n".join(lines_of(report_of(told, beat_of("a", waiting="store"), 100.0)))
    assert "waits: store" in told_lines


def test_the_share_merged_is_of_what_is_settled() -> None:
    report = report_of(told_by(two_learners_one_answer()), {}, 100.0)
    assert report["share_merged"] == 1.0
    assert 0.0 < report["goodput"] <= 1.0
    assert report["tokens"] == 1200


def test_a_run_without_facts_of_work_has_no_share() -> None:
    report = report_of(told_by(Desk()), {}, 100.0)
    assert (report["share_merged"], report["goodput"], report["loss_last"]) == (None, None, None)
    assert "no evaluation yet" in lines_of(report)[3]


def test_the_loss_is_the_newest_evaluation() -> None:
    desk = two_learners_one_answer()
    desk.write(evaluated(loss=5.5, step=0, versions=(0, 0), said=1))
    desk.write(evaluated(loss=3.25, step=1, versions=(1, 0), said=2))
    report = report_of(told_by(desk), {}, 100.0)
    assert (report["loss_first"], report["loss_last"], report["loss_step"]) == (5.5, 3.25, 1)


def test_the_lag_is_in_versions_of_the_fragment_that_is_most_behind() -> None:
    report = report_of(told_by(two_learners_one_answer()), {}, 100.0)
    assert [learner["lag_versions"] for learner in report["learners"]] == [1, 1]
    assert report["versions"] == list(told_by(two_learners_one_answer()).state.versions)
