"""The horizon as the state knows it: which snapshot is next, when, and what a sweep ends."""

from __future__ import annotations

import pytest

from decodiloco.status_view import followed, lines_of, report_of
from decodiloco.syncer.drafting import from_horizon, from_sweep
from decodiloco.syncer.horizon import position
from decodiloco.syncer.owed import Ask, RaiseHorizon, SweepStore, owed
from decodiloco.syncer.snapshot import decode_state, encode_state
from decodiloco.syncer.state import Horizon, Retention, Snapshot
from tests.builders import closing, horizon_raised, retention, snapshot_stored, swept
from tests.desk import Desk


def desk_with(merges: int, keep_merges: int | None = 2) -> Desk:
    """A run of two fragments and one learner, after so many merges."""
    desk = Desk(fragments=2, retention={"keep_merges": keep_merges})
    merge(desk, merges)
    return desk


def merge(desk: Desk, merges: int) -> None:
    """So many merges more; a new life of the learner begins each from the newest versions."""
    for _ in range(merges):
        desk.join("a")
        number = desk.state.next_round
        desk.open_round()
        desk.answer("a", number)
        desk.close_window(number), desk.merge(number)


def snapshot(desk: Desk) -> int:
    """Stores a snapshot of the state as it stands; its position."""
    at = desk.state.position
    desk.write(snapshot_stored(at))
    return at


def letting_go(desk: Desk) -> list[Ask]:
    return [ask for ask in owed(desk.state) if isinstance(ask, RaiseHorizon | SweepStore)]


def test_a_run_keeps_everything_unless_it_is_told_otherwise() -> None:
    desk = desk_with(1, keep_merges=None)
    snapshot(desk)
    merge(desk, 5)

    assert desk.state.retention == Retention()
    assert letting_go(desk) == []


def test_a_state_that_keeps_everything_is_stored_as_it_always_was() -> None:
    desk = desk_with(1, keep_merges=None)
    assert b"retention" not in encode_state(desk.state)
    assert b"retention" in encode_state(raised(desk_with(1))[0].state)


def test_the_first_snapshot_becomes_the_horizon_once_enough_merges_stand_behind_it() -> None:
    desk = desk_with(1)
    first = snapshot(desk)
    merge(desk, 1)
    snapshot(desk)
    assert desk.state.retention.next == Snapshot(first, 1, snapshot_stored(first).manifest)
    assert letting_go(desk) == []

    merge(desk, 1)

    assert letting_go(desk) == [RaiseHorizon(first)]


def raised(desk: Desk) -> tuple[Desk, int]:
    at = snapshot(desk)
    merge(desk, 2)
    desk.write(horizon_raised(at, at - 1))
    return desk, at


def test_a_raised_horizon_is_swept_before_another_is_raised() -> None:
    desk, at = raised(desk_with(1))
    raised_at = desk.state.position
    later = snapshot(desk)
    merge(desk, 2)
    assert desk.state.retention.horizon == Horizon(at, raised_at, (at - 1,))
    assert letting_go(desk) == [SweepStore(at)]

    desk.write(swept(at))

    assert letting_go(desk) == [RaiseHorizon(later)]
    desk.write(horizon_raised(later))
    again = Horizon(later, desk.state.position, (), after=at, kept_before=(at - 1,))
    assert desk.state.retention.horizon == again
    assert position(desk.state) == later


def test_a_horizon_survives_a_snapshot_of_the_state() -> None:
    desk, _ = raised(desk_with(1))
    snapshot(desk)
    assert decode_state(desk.opening, encode_state(desk.state)) == desk.state


def test_a_late_snapshot_of_below_the_horizon_is_no_horizon() -> None:
    desk, at = raised(desk_with(1))
    desk.write(snapshot_stored(at - 1))
    assert desk.state.retention.next is None


def test_an_operator_says_how_much_is_kept_from_now_on() -> None:
    desk = desk_with(1, keep_merges=None)
    desk.say(retention(3))
    at = snapshot(desk)
    merge(desk, 2)
    assert desk.state.keep_merges == 3 and letting_go(desk) == []

    desk.say(retention(1, said=2))
    assert letting_go(desk) == [RaiseHorizon(at)]

    desk.say(retention(0, said=3))
    assert desk.state.retention == Retention(asked=0) and letting_go(desk) == []
    assert desk.state.keep_merges == 0


def test_what_a_fact_lets_go_of_is_swept_even_when_all_is_to_be_kept_since() -> None:
    desk, at = raised(desk_with(1))
    desk.say(retention(0))
    assert letting_go(desk) == [SweepStore(at)]


def test_a_run_that_closes_raises_no_horizon_any_more() -> None:
    desk = desk_with(1)
    at = snapshot(desk)
    merge(desk, 2)
    draft = from_horizon(RaiseHorizon(at), snapshot_stored(at).manifest, ())
    assert draft.decide(desk.state) == horizon_raised(at)

    desk.say(closing())

    assert letting_go(desk) == []
    assert draft.decide(desk.state) is None


def test_a_sweep_that_was_done_twice_is_told_once() -> None:
    desk, at = raised(desk_with(1))
    draft = from_sweep(SweepStore(at), 3, 12288)
    assert draft.decide(desk.state) == swept(at)
    desk.put(draft)
    assert draft.decide(desk.state) is None


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_horizon_that_is_no_snapshot_cannot_be_folded(at: int) -> None:
    desk = desk_with(1)
    there = snapshot(desk)
    merge(desk, 2)
    with pytest.raises(AssertionError):
        desk.write(horizon_raised(there + at if at else there - 1))


def test_facts_above_a_horizon_cannot_be_kept_below_it() -> None:
    desk = desk_with(1)
    at = snapshot(desk)
    merge(desk, 2)
    with pytest.raises(AssertionError):
        desk.write(horizon_raised(at, at + 1))


def test_status_tells_what_is_kept_and_where_the_horizon_is() -> None:
    def line_of(desk: Desk) -> list[str]:
        told = followed(desk.opening)
        for envelope in desk.tape:
            told.hear(envelope)
        report = report_of(told, {}, 100.0)
        assert report["horizon"] == position(desk.state)
        return [line for line in lines_of(report) if line.startswith("bytes")]

    assert line_of(desk_with(1, keep_merges=None)) == []
    assert line_of(desk_with(1)) == ["bytes      all are here; kept: at least 2 merges"]
    desk, at = raised(desk_with(1))
    told = f"bytes      exact from position {at} on; kept: "
    assert line_of(desk) == [f"{told}at least 2 merges"]
    desk.say(retention(0))
    assert line_of(desk) == [f"{told}all from now"]
