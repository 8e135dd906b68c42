"""The invariants over a run that was recorded: its tape read again, its store looked into."""

from __future__ import annotations

from replay.errors import InvariantBroken
from replay.invariants.all_of_them import Invariants
from replay.place import Place
from replay.progress import Tell
from replay.reach import reach_of
from replay.state import opened_by, read_opening


def check_place(
    place: Place, tell: Tell, with_bytes: bool = True
) -> tuple[Invariants, InvariantBroken | None]:
    """Every invariant over a run's facts and bytes, and the first that broke.

    A synthetic run has no bytes to look into.

    Raises Corrupt for a tape or an opening that cannot be read at all, and Trouble when tape or
    store cannot be reached.
    """
    invariants: Invariants | None = None
    reach = reach_of(place.envelopes())
    for envelope in place.envelopes():
        if invariants is None:
            opened = opened_by(envelope, place)
            store = place.open_store(opened)
            opening = read_opening(store, opened)
            invariants = Invariants(opening, store if with_bytes else None, reach=reach)
        try:
            invariants.tell(envelope)
        except InvariantBroken as broken:
            return invariants, broken
        tell(envelope.position, 0)
    if invariants is None:
        opened_by(None, place)
    assert invariants is not None
    try:
        invariants.end()
    except InvariantBroken as broken:
        return invariants, broken
    return invariants, None
