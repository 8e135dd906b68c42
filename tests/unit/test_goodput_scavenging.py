"""Learners that come and go: time to a budget, traces, and what changes of size cost."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from decodiloco.errors import ConfigInvalid
from decodiloco.local.availability import Availability
from decodiloco.local.trace_file import read_trace
from replay.goodput.paper import SCAVENGING_DECOUPLED, SCAVENGING_EXTRA
from replay.goodput.scavenging import (
    by_clock,
    by_work,
    data_parallel,
    decoupled,
    ideal_by_clock,
    ideal_by_work,
)

DAY = 86_400.0


@pytest.mark.parametrize(
    ("extra", "paper"), list(zip(SCAVENGING_EXTRA, SCAVENGING_DECOUPLED, strict=True))
)
def test_extra_during_half_of_the_work_gives_the_times_of_the_paper(
    extra: float, paper: float
) -> None:
    told = decoupled(4, by_work(4, 4 * extra, DAY), 10 * DAY, join_seconds=0)

    assert told.relative_time == pytest.approx(ideal_by_work(4, 4 * extra))
    assert told.relative_time == pytest.approx(paper, abs=0.0051)


def test_extra_by_the_clock_gives_the_mean_capacity() -> None:
    told = decoupled(4, by_clock(4, DAY, 0.25), 10 * DAY * 1.25, join_seconds=0)
    assert told.relative_time == pytest.approx(ideal_by_clock(4, 4, 0.25))


def test_a_newcomer_trains_only_once_it_has_joined() -> None:
    # One base learner; one more from 100 s on, which trains from 130 s on.
    there = Availability(((100.0, 0.0), (900.0, 1.0)))
    told = decoupled(1, there, 500.0, join_seconds=30)

    # 130 units of work by 130 s; the other 370 at two a second.
    assert told.relative_time == pytest.approx((130 + 370 / 2) / 500)
    assert told.shares == {"useful": pytest.approx(500 / 530), "joining": pytest.approx(30 / 530)}


def test_who_came_last_leaves_first() -> None:
    there = Availability(((100.0, 2.0), (100.0, 3.0), (100.0, 2.0), (1e6, 0.0)))
    told = decoupled(1, there, 1000.0, join_seconds=50)

    # 50 s alone, 250 s with two more; the third one trains from 150 to 200 s.
    work = 50 + 250 * 3 + 50
    assert told.relative_time == pytest.approx((300 + 1000 - work) / 1000)


def test_one_job_stops_at_each_change_of_size() -> None:
    there = Availability(((100.0, 0.0), (100.0, 1.0)))
    told = data_parallel(1, there, 450.0, resize_seconds=10)

    # 100, then 90 x 2, then 90, then 10 s of nothing and 40 s at two a second.
    assert told.relative_time == pytest.approx((300 + 10 + 40) / 450)
    assert told.changes == 3
    assert told.shares["resizing"] == pytest.approx((20 + 10 + 20) / 500)
    assert math.fsum(told.shares.values()) == pytest.approx(1)


def test_a_longer_step_while_extended_is_badput() -> None:
    there = Availability(((100.0, 1.0),))
    told = data_parallel(1, there, 100.0, resize_seconds=0, extended_step=1.6)

    assert told.relative_time == pytest.approx(0.8)
    assert told.shares["slower"] == pytest.approx(60 / 160)


def test_a_job_that_does_nothing_but_resize_is_never_done() -> None:
    there = Availability(((10.0, 0.0), (10.0, 1.0)))
    assert data_parallel(1, there, 100.0, resize_seconds=60).relative_time == math.inf


def test_a_trace_in_json_is_read_as_counts_of_one_length(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text('{"metadata": {"gap_seconds": 300}, "data": [0, 16, 3]}', encoding="utf-8")
    assert read_trace(file) == Availability(((300.0, 0.0), (300.0, 16.0), (300.0, 3.0)))


def test_a_trace_in_csv_holds_each_count_until_the_next(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("seconds,learners\n# night\n0,4\n600,0\n900,2\n", encoding="utf-8")
    assert read_trace(file) == Availability(((600.0, 4.0), (300.0, 0.0), (300.0, 2.0)))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"data": [1]}', "gap_seconds"),
        ('{"metadata": {"gap_seconds": 300}, "data": 3}', "no list"),
        ('{"metadata": {"gap_seconds": 300}, "data": []}', "0 points"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "gap_seconds is 0"),
        ('{"metadata": {"gap_seconds": 300}, "data": [1, -2]}', r"data\[1\] is -2"),
        ('{"metadata": {"gap_seconds": 300}, "data": [true]}', r"data\[0\] is True"),
        ("{", "want"),
        ("0,1\n", "fewer than two"),
        ("0,1\n0,2\n", "line 2: seconds must grow"),
        ("0,1\n5\n", "line 2: want seconds,learners"),
        ("0,1\n5,four\n", "line 2 is 'four'"),
        ("0,1\n5,nan\n", "line 2 is 'nan'"),
        ("\xff", "not a number|want seconds"),
    ],
)
def test_a_broken_trace_is_refused_with_the_place(tmp_path: Path, text: str, answer: str) -> None:
    file = tmp_path / "trace"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigInvalid, match=answer):
        read_trace(file)


def test_a_trace_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        read_trace(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigInvalid, match="UTF-8"):
        read_trace(tmp_path / "bytes")
