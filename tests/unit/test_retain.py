"""`decodiloco retain`: what it says would go, from a state and the facts behind the horizon."""

from __future__ import annotations

from decodiloco.retain import Told, told_of
from decodiloco.store.retention import Named, may_go
from tests.builders import checkpointed, horizon_raised, snapshot_stored
from tests.desk import Desk


def desk_with(merges: int) -> Desk:
    """A run of one fragment and one learner, after so many merges; an offer is open."""
    desk = Desk(fragments=1, retention={"keep_merges": 1})
    for _ in range(merges):
        desk.join("a")
        number = desk.state.next_round
        desk.open_round()
        desk.answer("a", number)
        desk.close_window(number), desk.merge(number)
    life = desk.join("a")
    desk.write(checkpointed("a", learner_step=2, incarnation=life, said=1))
    desk.said["a"] = 1
    number = desk.state.next_round
    desk.open_round()
    desk.answer("a", number)
    return desk


def told(desk: Desk, keep_merges: int) -> Told:
    named = [Named(each.position, each.event) for each in desk.tape if may_go(each.event)]
    return told_of(desk.state, named, keep_merges)


def test_all_but_what_is_in_use_would_go() -> None:
    desk = desk_with(4)
    found = told(desk, 3)

    every = 4 * 3 + 5 + 1  # versions, each of three blobs; deltas; a checkpoint
    assert (found.blobs, found.going_blobs) == (every, 2 * 3 + 4)
    assert 0 < found.going_bytes < found.bytes
    lines = list(found.lines())
    assert f"{found.going_blobs} blobs would go" in lines[2]
    assert "exact stay: every fact" in lines[3]
    assert lines[-1] == "nothing was asked: give --apply to ask for it"


def test_to_keep_everything_lets_nothing_go() -> None:
    found = told(desk_with(4), 0)
    assert (found.going_blobs, found.going_bytes, found.keep_merges_before) == (0, 0, 1)
    assert any("what is gone stays gone" in line for line in found.lines())


def test_the_horizon_that_stands_is_told() -> None:
    desk = desk_with(2)
    at = desk.state.position
    desk.write(snapshot_stored(at))
    number = next(iter(desk.state.rounds))
    desk.close_window(number), desk.merge(number)
    desk.write(horizon_raised(at))
    found = told(desk, 1)
    assert found.horizon == at and f"from position {at} on" in next(found.lines())
    assert found.as_plain()["run"] == "trial"
