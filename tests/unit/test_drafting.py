"""Drafts that come too late, facts that change nothing, and snapshots that cannot be read."""

from __future__ import annotations

import pytest

from decodiloco.errors import BlobCorrupt
from decodiloco.merge.fragment import Abandoned
from decodiloco.syncer.drafting import from_close, from_merge, from_snapshot
from decodiloco.syncer.machine import begin, fold
from decodiloco.syncer.owed import MergeFragment
from decodiloco.syncer.snapshot import decode_state, encode_state
from streams.codec import pack, seal
from streams.envelope import genesis
from streams.errors import ChainBroken
from streams.events import MergeAbandoned
from tests.builders import closed, closing, digest, left_out, manifest, message_refused, opened
from tests.desk import Desk


@pytest.fixture
def desk() -> Desk:
    """A window of one offer is closed."""
    desk = Desk()
    desk.join("a")
    desk.open_round()
    desk.answer("a", 1)
    desk.close_window(1)
    return desk


def test_a_merge_counts_only_for_the_window_that_it_was_made_for(desk: Desk) -> None:
    round_ = desk.state.rounds[1]
    ask = MergeFragment(1, round_.closed_at)
    draft = from_merge(ask, Abandoned((left_out(round_.offers[0]),)), 0.1)
    event = draft.decide(desk.state)
    assert isinstance(event, MergeAbandoned)
    desk.put(draft)
    assert draft.decide(desk.state) is None, "the round is open again"
    desk.answer("a", 1)
    desk.close_window(1)
    assert draft.decide(desk.state) is None, "this is another window of the same round"
    desk.merge(1)
    assert draft.decide(desk.state) is None, "the round is merged"


def test_a_run_is_closed_only_at_the_versions_of_its_digest(desk: Desk) -> None:
    draft = from_close(desk.state.versions, digest("model"))
    assert draft.decide(desk.state) is None, "it is not closing"
    desk.say(closing())
    assert draft.decide(desk.state) is not None
    desk.merge(1)
    assert draft.decide(desk.state) is None, "there is a newer version"


def test_a_closed_run_takes_no_snapshot_and_no_merge(desk: Desk) -> None:
    merge = from_merge(MergeFragment(1, desk.state.rounds[1].closed_at), Abandoned(()), 0.1)
    snapshot = from_snapshot(desk.state.position, manifest("snapshot", codec="msgpack"))
    assert merge.decide(desk.state) is not None and snapshot.decide(desk.state) is not None
    desk.write(closed(step=0, versions=(0, 0, 0, 0)))
    assert merge.decide(desk.state) is None and snapshot.decide(desk.state) is None


def test_a_message_that_was_refused_moves_nothing_but_the_tape(desk: Desk) -> None:
    before = desk.state
    desk.write(message_refused())
    assert encode_state(desk.state) != encode_state(before)
    assert (desk.state.learners, desk.state.rounds) == (before.learners, before.rounds)


def test_a_run_that_closes_keeps_its_first_reason_and_its_last_pass(desk: Desk) -> None:
    desk.write(closing("steps", said=0))
    first = desk.state
    desk.write(closing("asked", said=1))
    assert (desk.state.closing, desk.state.closing_rounds) == ("steps", (2, 3, 4, 5))
    assert desk.state.closing_at == first.closing_at


def test_a_run_is_opened_under_no_fence(desk: Desk) -> None:
    first = seal(1, genesis("trial"), 1, "opener", None, 0.0, opened())
    with pytest.raises(ChainBroken, match="fence 0"):
        fold(begin(desk.opening), first)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", pack([2, {}]), pack([1, {}]), pack([1, {"position": -1, "rounds": 3}]), pack(7)],
)
def test_bytes_that_are_no_snapshot_are_called_corrupt(desk: Desk, payload: bytes) -> None:
    with pytest.raises(BlobCorrupt):
        decode_state(desk.opening, payload)
