"""Whose silence counts, for how long, and how patient a standby is. The clock is in our hand."""

from __future__ import annotations

import pytest

from decodiloco.config import Times
from decodiloco.syncer.leadership import (
    BACKOFF_DOUBLINGS_MAX,
    CALM_TAKEOVERS,
    FENCES_MAX,
    Heartbeats,
    Patience,
)
from decodiloco.syncer.machine import begin
from streams.pulse import Beat
from tests.builders import took_over
from tests.desk import Desk

TIMES = Times(heartbeat_seconds=0.5, takeover_seconds=2.0)


class Room:
    """A standby `s2` that listens; time passes half a second at a time, with its own beat."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.hearts = Heartbeats("s2", TIMES, lambda: self.now)
        self.state = Desk().state
        self.pass_time(0.5)

    def pass_time(self, seconds: float, *others: Beat, own: bool = True) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            if own:
                self.hearts.take(Beat("syncer", "s2", {"leading": 0, "fence": 1}))
            for beat in others:
                self.hearts.take(beat)


def leading(fence: int, name: str = "s1") -> Beat:
    return Beat("syncer", name, {"leading": 1, "fence": fence})


def test_a_leader_that_beats_is_never_silent() -> None:
    room = Room()
    room.pass_time(60.0, leading(1))
    assert room.hearts.leader_silent_seconds(room.state) == 0.0


def test_the_silence_of_the_leader_counts_from_its_last_beat() -> None:
    room = Room()
    room.pass_time(5.0, leading(1))
    room.pass_time(3.0)
    assert room.hearts.leader_silent_seconds(room.state) == 3.0


def test_who_leads_under_an_older_fence_does_not_keep_the_peace() -> None:
    room = Room()
    desk = Desk()
    desk.write(took_over("s1", 2), fence=2)
    room.pass_time(5.0, leading(1, "s0"))
    assert room.hearts.leader_silent_seconds(desk.state) == 5.0
    room.pass_time(5.0, leading(3, "s3"))
    assert room.hearts.leader_silent_seconds(desk.state) == 0.0, "the tape has not told us yet"


def test_while_our_own_beats_do_not_come_back_nobody_is_silent() -> None:
    room = Room()
    room.pass_time(5.0, leading(1), Beat("learner", "a", {}))
    room.pass_time(20.0, own=False)
    assert room.hearts.leader_silent_seconds(room.state) == 0.0
    assert room.hearts.silent_seconds("learner", "a", 0.0) == 0.0
    room.pass_time(1.0)
    assert room.hearts.leader_silent_seconds(room.state) == 0.5, "it counts anew"
    assert room.hearts.silent_seconds("learner", "a", 0.0) == 0.5


def test_a_learner_s_silence_is_broken_by_a_word_too_and_never_counts_before_it_joined() -> None:
    room = Room()
    room.pass_time(9.0)
    assert room.hearts.silent_seconds("learner", "a", room.now - 4.0) == 4.0
    room.hearts.heard("learner", "a")
    room.pass_time(3.0)
    assert room.hearts.silent_seconds("learner", "a", 0.0) == 3.0


def test_roles_are_told_apart() -> None:
    room = Room()
    room.pass_time(1.0, Beat("evaluator", "e", {}))
    room.pass_time(1.5)
    assert room.hearts.anyone("evaluator", 2.0) and not room.hearts.anyone("evaluator", 1.0)
    assert not room.hearts.anyone("learner", 100.0)


def test_invented_fences_do_not_pile_up() -> None:
    room = Room()
    for fence in range(10 * FENCES_MAX):
        room.hearts.take(leading(fence))
    assert len(room.hearts._leading) <= FENCES_MAX


def test_a_tape_without_a_syncer_is_taken_over_at_once() -> None:
    room = Room()
    patience = Patience(TIMES, lambda: room.now)
    assert patience.seconds(begin(room.state.opening)) == 0.0
    assert patience.seconds(room.state) == 2.0


@pytest.mark.parametrize("failures", [1, 2, BACKOFF_DOUBLINGS_MAX, BACKOFF_DOUBLINGS_MAX + 2])
def test_after_a_takeover_for_nothing_a_standby_is_more_patient_for_a_while(failures: int) -> None:
    room = Room()
    patience = Patience(TIMES, lambda: room.now)
    for _ in range(failures):
        patience.failed()
    assert patience.seconds(room.state) == 2.0 * 2 ** min(failures, BACKOFF_DOUBLINGS_MAX)
    room.now += CALM_TAKEOVERS * TIMES.takeover_seconds + 0.5
    assert patience.seconds(room.state) == 2.0
