"""What a learner's state asks for: at a step boundary, and beside the training thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from decodiloco.fragments.schedule import fragment_of
from decodiloco.learner import residuals
from decodiloco.learner.state import (
    Adopt,
    BesideAsk,
    BoundaryAsk,
    Copy,
    CopyFragments,
    Fetch,
    Fragment,
    Leave,
    Offer,
    State,
    StoreCheckpoint,
)
from streams.events import DeltaOffered
from streams.frozen import replace


def owed_at_boundary(state: State, ahead: Iterable[int] = ()) -> tuple[BoundaryAsk, ...]:
    """What the training thread owes between two steps, in the order in which it is done.

    Copies come before adoptions, so that work is offered before it is overwritten. `ahead` are
    the rounds that may open before the next boundary.
    """
    if not state.alive:
        return ()
    return tuple(_at_boundary(state, tuple(ahead)))


def owed_beside(state: State) -> tuple[BesideAsk, ...]:
    """What may be done beside training: fetch merged versions, answer open rounds."""
    if not state.alive:
        return ()
    return (*_fetches(state), *_offers(state))


def due(state: State, ahead: Iterable[int] = ()) -> tuple[int, ...]:
    """Fragments worth a copy now: of rounds that want an answer, or soon will."""
    soon = {fragment_of(number, len(state.fragments)) for number in ahead}
    return tuple(
        index
        for index, fragment in enumerate(state.fragments)
        if (index in soon or _wants_answer(fragment))
        and state.learner_step >= fragment.offered_step + fragment.wait_steps
        and state.tokens_trained > fragment.anchor.tokens_trained
        and _is_free(fragment, fragment.anchor.version, fragment.anchor.learner_step)
    )


def is_usable(state: State, copy: Copy) -> bool:
    """Whether an offer of this copy could be merged: new work, not too old, merged nowhere."""
    fragment = state.fragments[copy.fragment]
    stale = fragment.newest - copy.base.version
    return (
        copy.tokens > 0
        and copy.learner_step >= fragment.offered_step + fragment.wait_steps
        and stale <= state.opening.run.merge.staleness_versions_max
        and _is_free(fragment, copy.base.version, copy.base.learner_step)
    )


def copies_in_use(state: State) -> tuple[frozenset[int], ...]:
    """Of each fragment, the steps of copies whose offers may be merged, or are and not adopted."""
    steps: list[set[int]] = [
        {fragment.merged_step} if fragment.merged_since(fragment.newest) is not None else set()
        for fragment in state.fragments
    ]
    drafted = (draft.copy for draft in state.drafts)
    boundary = (fragment.copy for fragment in state.fragments)
    for copy in (*state.making, *drafted, *boundary):
        if copy is not None:
            steps[copy.fragment].add(copy.learner_step)
    if isinstance(state.in_flight, DeltaOffered):
        steps[state.in_flight.fragment].add(state.in_flight.learner_step)
    for offer in state.sent:
        steps[offer.fragment].add(offer.learner_step)
    return tuple(map(frozenset, steps))


def adoptable(state: State) -> tuple[tuple[int, int], ...]:
    """Pairs of fragment and version that may be put into the model now.

    A refresh waits until every fragment is at hand and then writes all of them at once.
    """
    if state.refresh == "close":
        assert state.closed is not None
        ready = all(
            fragment.fetched == version
            for fragment, version in zip(state.fragments, state.closed.versions, strict=True)
        )
        return _all_fetched(state) if ready else ()
    if state.refresh == "heal":
        ready = all(
            fragment.fetched >= max(0, fragment.anchor.version) for fragment in state.fragments
        )
        return _all_fetched(state) if ready else ()
    return tuple(
        (index, fragment.fetched)
        for index, fragment in enumerate(state.fragments)
        if fragment.fetched > fragment.anchor.version
    )


def _at_boundary(state: State, ahead: tuple[int, ...]) -> Iterator[BoundaryAsk]:
    if state.final:
        yield Leave()
        return
    yield CopyFragments(() if state.refresh or state.closed else due(state, ahead))
    versions = adoptable(state)
    if versions:
        yield Adopt(versions, state.refresh)
    if not (state.checkpointing or state.closed or state.refresh):
        since_steps = state.learner_step - state.checkpointed_step
        if since_steps >= state.opening.run.checkpoint_steps or _must_speak(state):
            yield StoreCheckpoint(state.learner_step)


def _must_speak(state: State) -> bool:
    """Whether we are taken for dead and have no other word to say: no round may be open then."""
    return state.lost and state.in_flight is None and not (state.drafts or state.making)


def _all_fetched(state: State) -> tuple[tuple[int, int], ...]:
    return tuple((index, fragment.fetched) for index, fragment in enumerate(state.fragments))


def _fetches(state: State) -> Iterator[Fetch]:
    for index, fragment in enumerate(state.fragments):
        held = fragment.fetched
        if not state.refresh:
            held = max(held, fragment.anchor.version)
        if fragment.fetching < 0 and fragment.newest > held:
            yield Fetch(index, fragment.newest, fragment.manifest, fragment.clock)


def _offers(state: State) -> Iterator[Offer]:
    """One delta of a fragment is made at a time, so that its offers are said in their order."""
    if state.refresh or state.closed:
        return
    busy = [copy.fragment for copy in state.making]
    for fragment in state.fragments:
        copy = fragment.copy
        if copy is None or copy.fragment in busy:
            continue
        if _wants_answer(fragment) and is_usable(state, copy):
            assert fragment.round is not None
            held = residuals.to_add(state, copy)
            yield Offer(fragment.round.number, replace(copy, residuals=held) if held else copy)


def _wants_answer(fragment: Fragment) -> bool:
    round_ = fragment.round
    return round_ is not None and round_.collecting and fragment.answered != round_.number


def _is_free(fragment: Fragment, base_version: int, base_step: int) -> bool:
    """Whether work from this base overlaps nothing of ours that is merged."""
    return base_version >= fragment.merged_version and base_step >= fragment.merged_step
