"""Waits that name what they wait for, those that follow from a setting, and what is advised."""

from __future__ import annotations

import pytest

from decodiloco.config import Run, Times, Window
from decodiloco.time_orders import advice, out_of_order
from decodiloco.times import DERIVED
from streams.times import Seconds, waits_in


def test_a_wait_is_a_number_that_says_what_it_is_for() -> None:
    wait = Seconds(1.5, "an answer", "another attempt")

    assert (wait, 2 * wait, f"{wait:.0f} s", wait.nanoseconds) == (1.5, 3.0, "2 s", 1_500_000_000)
    assert (wait.waits_for, wait.then) == ("an answer", "another attempt")
    assert waits_in({"A_SECONDS": wait, "B_SECONDS": 1.5, "c": "text"}) == {"A_SECONDS": wait}


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (Times(), {"echo": 1.5, "silent": 3.0, "faded": 2.0, "listen": 1.0, "close": 30.0}),
        (
            Times(heartbeat_seconds=5.0, takeover_seconds=10.0, lost_seconds=20.0),
            {"echo": 7.5, "silent": 30.0, "faded": 20.0, "listen": 10.0, "close": 30.0},
        ),
        (
            Times(heartbeat_seconds=5.0, takeover_seconds=40.0, lost_seconds=40.0),
            {"echo": 15.0, "silent": 30.0, "faded": 20.0, "listen": 10.0, "close": 120.0},
        ),
    ],
)
def test_what_depends_on_heartbeat_and_takeover_follows_them(
    times: Times, expected: dict[str, float]
) -> None:
    found = {one.seconds.__name__.removesuffix("_seconds"): one.seconds(times) for one in DERIVED}

    assert found == expected


def test_sound_times_are_in_order_and_need_no_advice() -> None:
    assert out_of_order(Times()) == []
    assert advice(Run(name="demo")) == []


def test_times_that_waste_work_are_told_and_not_refused() -> None:
    run = Run(
        name="demo",
        times=Times(takeover_seconds=4.0, lost_seconds=5.0, orphan_seconds_max=30.0),
        window=Window(step_seconds=11.0, upload_seconds=2.0),
    )

    assert advice(run) == [
        "lost_seconds = 5: a learner whose link breaks is silent for up to 6 s, and is declared "
        "lost meanwhile",
        "orphan_seconds_max = 30: takeovers that back off need up to 32 s, and learners stop "
        "before that",
        "window.step_seconds + upload_seconds = 13: a learner that is told to end leaves at its "
        "next step, and has 12 s to say farewell",
    ]
