"""How a life stands with the byte gates, as one number: marks, from facts alone. Pure.

A delta that was left out for what its learner made it gives four marks, one that was merged and
pointed elsewhere than the others gives one, and any other that was merged takes one away. From
eight marks on what points elsewhere is left out, and at so many strikes of four the life is
quarantined. A new life begins without marks.
"""

from __future__ import annotations

from collections.abc import Iterable

from decodiloco.merge.gates import OF_THE_STORE
from decodiloco.syncer.in_flight import Offer
from decodiloco.syncer.state import Learner, State
from streams.frozen import replace
from streams.parts import LeftOut

STRIKE = 4
DISTRUST = 2 * STRIKE
MARKS_MAX = 1000


def judged(
    state: State, merged: Iterable[int], doubted: Iterable[int], left_out: Iterable[LeftOut]
) -> State:
    """The state once these waiting offers were judged; they are not settled yet."""
    doubts, left_out = frozenset(doubted), tuple(left_out)
    if not (doubts or left_out or any(one.marks for one in state.learners.values())):
        return state  # as mostly: nobody has a mark to lose
    for position in merged:
        if position in doubts:
            state = _marked(state, position, 1, "direction: doubted")
        else:
            state = _marked(state, position, -1, "")
    for each in left_out:
        if not each.reason.startswith(OF_THE_STORE):
            state = _marked(state, each.position, STRIKE, each.reason)
    return state


def is_distrusted(state: State, offer: Offer) -> bool:
    """Whether a delta of this life is left out if it points elsewhere than the others."""
    learner = state.learners[offer.learner]
    return learner.incarnation == offer.incarnation and learner.marks >= DISTRUST


def is_to_go(state: State, learner: Learner) -> bool:
    """Whether a life has had all the strikes that the run allows."""
    strikes = state.config.gates.strikes
    return strikes > 0 and learner.marks >= STRIKE * strikes


def _marked(state: State, position: int, marks: int, why: str) -> State:
    """Marks count for the life that made the offer, if it is the newest still."""
    offer = state.offers[position]
    learner = state.learners[offer.learner]
    if learner.incarnation != offer.incarnation or not (marks > 0 or learner.marks):
        return state
    learner = replace(
        learner,
        marks=min(MARKS_MAX, max(0, learner.marks + marks)),
        marked_for=why or learner.marked_for,
    )
    return replace(state, learners={**state.learners, learner.id: learner})
