"""Which residuals a learner has, and which deltas they are in: error feedback as the tape tells it.

A residual is what coding lost of an offer, named by the offer's position. It is there from the
merge that the offer is in, and is made good by the next merge of an offer that holds it. Knows
positions and steps; the numbers are the core's. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from decodiloco.learner.state import Copy, Residual, Sent, State
from streams.events import DeltaOffered
from streams.frozen import replace
from streams.parts import KEPT_MAX, RESIDUALS_MAX


def to_add(state: State, copy: Copy) -> tuple[int, ...]:
    """The residuals, by position, that the delta of this copy takes up.

    All of its fragment, but for those in an offer that may be merged beside this one: one whose
    steps are over before these begin. An offer that holds steps of this one is not merged if
    this one is, so both may hold the same residual.
    """
    beside = [
        residuals
        for fragment, learner_step, residuals in _unsettled(state)
        if fragment == copy.fragment and learner_step <= copy.base.learner_step
    ]
    found = [
        one.position
        for one in state.residuals
        if one.fragment == copy.fragment and not any(one.position in held for held in beside)
    ]
    return tuple(sorted(found)[:RESIDUALS_MAX])


def of(state: State, positions: Collection[int]) -> tuple[Residual, ...]:
    """The residuals of these positions that are there, in the order of their positions."""
    found = [one for one in state.residuals if one.position in positions]
    return tuple(sorted(found, key=lambda one: one.position))


def to_store(state: State) -> tuple[Residual, ...]:
    """The residuals that go into a checkpoint, in the order of their positions."""
    return tuple(sorted(state.residuals, key=lambda one: one.position)[-KEPT_MAX:])


def in_use(state: State) -> tuple[frozenset[int], ...]:
    """Of each fragment, the steps of offers whose residuals are there, or may come to be."""
    steps: list[set[int]] = [set() for _ in state.fragments]
    for fragment, learner_step, _ in _unsettled(state):
        steps[fragment].add(learner_step)
    for one in state.residuals:
        steps[one.fragment].add(one.learner_step)
    return tuple(map(frozenset, steps))


def heard_of(state: State, event: DeltaOffered) -> State:
    """An offer that an earlier life of this learner left on the tape."""
    if not state.opening.run.codecs.feeds_back:
        return state
    return replace(state, earlier=(*state.earlier, sent(state.position, event)))


def sent(position: int, event: DeltaOffered) -> Sent:
    """An offer of this learner on the tape."""
    return Sent(
        position,
        event.fragment,
        event.round,
        event.learner_step,
        event.tokens_trained,
        event.residuals,
    )


def merged(state: State, contributions: Collection[int]) -> State:
    """Offers of ours are in a merge: what they held is made good, and leaves what they lost.

    What an offer of an earlier life lost is of use to nobody, once that life can have stored it
    no more.
    """
    if not state.opening.run.codecs.feeds_back:
        return state
    earlier = [one for one in state.earlier if one.position in contributions]
    ours = [one for one in state.sent if one.position in contributions]
    good = [position for one in (*earlier, *ours) for position in one.residuals]
    left = [*ours, *(() if state.incarnation else earlier)]
    found = [one for one in state.residuals if one.position not in good]
    found += [Residual(one.position, one.fragment, one.learner_step) for one in left]
    return replace(_gone(state, contributions), residuals=tuple(found))


def never_merged(state: State, positions: Collection[int]) -> State:
    """Offers of earlier lives that came to another end: what they held is free again."""
    return _gone(state, positions)


def restored(state: State, positions: Collection[int]) -> State:
    """A life begins with those residuals that are in the checkpoint it goes on from."""
    held = tuple(one for one in state.residuals if one.position in positions)
    return replace(state, residuals=held, restored=tuple(one.position for one in held))


def joined(state: State) -> State:
    """From here on a residual is one that was restored, or one of this life."""
    held = tuple(one for one in state.residuals if one.position in state.restored)
    return replace(state, residuals=held)


def _gone(state: State, positions: Collection[int]) -> State:
    if not any(one.position in positions for one in state.earlier):
        return state
    earlier = tuple(one for one in state.earlier if one.position not in positions)
    return replace(state, earlier=earlier)


def _unsettled(state: State) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Offers that may still be merged: fragment, learner step, and the residuals that they hold."""
    drafted = (draft.copy for draft in state.drafts)
    word = state.in_flight if isinstance(state.in_flight, DeltaOffered) else None
    for one in (*state.earlier, *state.sent, word, *drafted, *state.making):
        if one is not None:
            yield one.fragment, one.learner_step, one.residuals
